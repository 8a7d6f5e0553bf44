"""Surroundings made broken on purpose: a driver that lacks functions, a /proc that cannot be read.

Each is a tiny library built for the machine the tests run on, from text generated here.
"""

import subprocess

import harness

TRAMPOLINE = {
    "x86_64": "jmp *{slot}(%rip)",
    "aarch64": "adrp x16, {slot}; ldr x16, [x16, :lo12:{slot}]; br x16",
}

OLDEST = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}


def _machine():
    done = subprocess.run([harness.COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True)
    return done.stdout.split("-")[0]


def _version():
    """The first glibc of an architecture, under which every old symbol can be had."""
    return [f'-DVERSION="{OLDEST[_machine()]}"']


def _simulated_functions():
    done = subprocess.run(["nm", "-D", "--defined-only", harness.BUILD / "sim/libcuda.so.1"], capture_output=True,
                          text=True, check=True)
    names = [line.split()[-1].split("@")[0] for line in done.stdout.splitlines()]
    return [name for name in names if name.startswith("cu")]


def reduced_driver(directory, missing):
    """A libcuda.so.1 that is the simulated driver without some of its functions, as an older driver would be.

    Every function left is a jump through a slot that a constructor fills from the simulated driver.
    """
    names = _simulated_functions()
    absent = missing - set(names)
    if absent:
        raise AssertionError(f"the simulated driver has no {absent} to leave out")
    names = [name for name in names if name not in missing]
    jump = TRAMPOLINE[_machine()]
    slots = "".join(f"__attribute__((visibility(\"hidden\"))) void* slot_{n};\n" for n in names)
    jumps = "".join(f'__asm__(".text; .globl {n}; .type {n}, %function; {n}: {jump.format(slot="slot_" + n)}");\n'
                    for n in names)
    fills = "".join(f'  slot_{n} = find(driver, "{n}");\n' for n in names)
    source = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
{slots}{jumps}
__attribute__((constructor)) static void fill_slots(void) {{
  void* driver = dlopen("{harness.BUILD / 'sim/libcuda.so.1'}", RTLD_NOW | RTLD_LOCAL);
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);
  // Past any override of dlsym: what it would find is this very library, not ready yet.
  void* (*find)(void*, const char*) = dlvsym(libc, "dlsym", VERSION);
  if (driver == 0 || find == 0) abort();
{fills}}}
"""
    return harness.compile_shared(directory, "libcuda.so.1", source, "-Wl,-soname,libcuda.so.1", *_version(), "-ldl")


def without_proc(directory):
    """A library to preload: every way a program opens a file refuses those under /proc."""
    source = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int refused(const char* path) {
  if (strncmp(path, "/proc", 5) != 0) return 0;
  errno = EACCES;
  return 1;
}
#define NEXT(type, name) ((type)dlvsym(RTLD_NEXT, name, VERSION))

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  return refused(path) ? -1 : openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

FILE* fopen(const char* path, const char* how) {
  return refused(path) ? 0 : NEXT(FILE* (*)(const char*, const char*), "fopen")(path, how);
}
FILE* fopen64(const char* path, const char* how) __attribute__((alias("fopen")));

DIR* opendir(const char* path) { return refused(path) ? 0 : NEXT(DIR* (*)(const char*), "opendir")(path); }

ssize_t readlink(const char* path, char* to, size_t size) {
  return refused(path) ? -1 : readlinkat(AT_FDCWD, path, to, size);
}
"""
    return harness.compile_shared(directory, "libnoproc.so", source, *_version(), "-ldl")
