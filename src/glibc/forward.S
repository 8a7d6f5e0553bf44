// Functions that glibc 2.29 and later export under a new version (most moved from libpthread and libdl into libc in
// 2.34). Each name is defined here, hidden, and jumps to the version that every glibc since 2.28 has, so that our own
// objects and the static C++ library alike load on old systems. A jump, not a call: dlsym and dlvsym look at their
// return address. A name that nothing in the link refers to is dropped by --gc-sections.
//
// CUPOOL_GLIBC_LOADER adds the functions that libcupool.so defines itself.

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#if defined(__x86_64__)
#define BASE GLIBC_2.2.5
#define DLINFO GLIBC_2.3.3
#define DLMOPEN GLIBC_2.3.4
#elif defined(__aarch64__)
#define BASE GLIBC_2.17
#define DLINFO GLIBC_2.17
#define DLMOPEN GLIBC_2.17
#else
#error "name the oldest glibc version of this architecture"
#endif

.macro forward name, version
  .section .text.cupool_glibc.\name, "ax", %progbits
  .balign 16
  .globl \name
  .hidden \name
  .type \name, %function
  .symver cupool_old_\name, \name@\version
\name:
#if defined(__x86_64__)
  _CET_ENDBR
  jmp *cupool_old_\name@GOTPCREL(%rip)
#else
  hint #34  // bti c
  adrp x16, :got:cupool_old_\name
  ldr x16, [x16, :got_lo12:cupool_old_\name]
  br x16
#endif
  .size \name, . - \name
.endm

#define FORWARD(name, version) forward name, version

FORWARD(dladdr, BASE)
FORWARD(dladdr1, DLINFO)
FORWARD(dlerror, BASE)
FORWARD(dlinfo, DLINFO)
FORWARD(dlvsym, BASE)
#ifdef CUPOOL_GLIBC_LOADER
FORWARD(dlclose, BASE)
FORWARD(dlmopen, DLMOPEN)
FORWARD(dlopen, BASE)
FORWARD(dlsym, BASE)
#endif

FORWARD(pthread_attr_getstacksize, BASE)
FORWARD(pthread_attr_setstacksize, BASE)
FORWARD(__pthread_key_create, BASE)
FORWARD(pthread_create, BASE)
FORWARD(pthread_detach, BASE)
FORWARD(pthread_getspecific, BASE)
FORWARD(pthread_join, BASE)
FORWARD(pthread_key_create, BASE)
FORWARD(pthread_key_delete, BASE)
FORWARD(pthread_kill, BASE)
FORWARD(pthread_mutex_trylock, BASE)
FORWARD(pthread_once, BASE)
FORWARD(pthread_rwlock_rdlock, BASE)
FORWARD(pthread_rwlock_unlock, BASE)
FORWARD(pthread_rwlock_wrlock, BASE)
FORWARD(pthread_setspecific, BASE)
FORWARD(pthread_sigmask, BASE)
FORWARD(sem_destroy, BASE)
FORWARD(sem_init, BASE)
FORWARD(sem_post, BASE)
FORWARD(sem_wait, BASE)

#include "base/object_notes.inc"
