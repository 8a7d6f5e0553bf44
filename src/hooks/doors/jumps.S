// The entry points that must leave by a jump, with every argument and the caller's return address unchanged: dlsym, because
// RTLD_NEXT is resolved relative to the caller; dlopen, dlmopen and dlclose, because the caller's search path counts; and functions
// whose argument types we do not have. Nothing here may clobber an argument register without saving and restoring it.

#if defined(__x86_64__)

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

    .text
    .balign 16
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    _CET_ENDBR
    mov (%rsp), %rdx
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call cupool_find_symbol
    add $8, %rsp
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    test %rdx, %rdx
    jne 1f
    jmp *%rax
1:  ret
    .cfi_endproc
    .size dlsym, . - dlsym

    .balign 16
    .globl cupool_untracked_jump
    .hidden cupool_untracked_jump
    .type cupool_untracked_jump, @function
cupool_untracked_jump:
    .cfi_startproc
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    push %rdx
    .cfi_adjust_cfa_offset 8
    push %rcx
    .cfi_adjust_cfa_offset 8
    push %r8
    .cfi_adjust_cfa_offset 8
    push %r9
    .cfi_adjust_cfa_offset 8
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call *%r11
    mov %rax, %r11
    add $8, %rsp
    .cfi_adjust_cfa_offset -8
    pop %r9
    .cfi_adjust_cfa_offset -8
    pop %r8
    .cfi_adjust_cfa_offset -8
    pop %rcx
    .cfi_adjust_cfa_offset -8
    pop %rdx
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    .cfi_endproc
    .size cupool_untracked_jump, . - cupool_untracked_jump

    .balign 16
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    _CET_ENDBR
    lea cupool_before_dlopen(%rip), %r11
    jmp cupool_untracked_jump
    .cfi_endproc
    .size dlopen, . - dlopen

    .balign 16
    .globl dlmopen
    .type dlmopen, @function
dlmopen:
    .cfi_startproc
    _CET_ENDBR
    lea cupool_before_dlmopen(%rip), %r11
    jmp cupool_untracked_jump
    .cfi_endproc
    .size dlmopen, . - dlmopen

    .balign 16
    .globl dlclose
    .type dlclose, @function
dlclose:
    .cfi_startproc
    _CET_ENDBR
    lea cupool_before_dlclose(%rip), %r11
    jmp cupool_untracked_jump
    .cfi_endproc
    .size dlclose, . - dlclose

#elif defined(__aarch64__)

    .text
    .balign 16
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
    mov x2, x30
    bl cupool_find_symbol
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    cbnz x17, 1f
    br x16
1:  mov x0, x16
    ret
    .cfi_endproc
    .size dlsym, . - dlsym

    .balign 16
    .globl cupool_untracked_jump
    .hidden cupool_untracked_jump
    .type cupool_untracked_jump, %function
cupool_untracked_jump:
    .cfi_startproc
    stp x29, x30, [sp, #-96]!
    .cfi_def_cfa_offset 96
    .cfi_offset x29, -96
    .cfi_offset x30, -88
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    blr x16
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp x29, x30, [sp], #96
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size cupool_untracked_jump, . - cupool_untracked_jump

    .balign 16
    .globl dlopen
    .type dlopen, %function
dlopen:
    .cfi_startproc
    hint #34
    adrp x16, cupool_before_dlopen
    add x16, x16, :lo12:cupool_before_dlopen
    b cupool_untracked_jump
    .cfi_endproc
    .size dlopen, . - dlopen

    .balign 16
    .globl dlmopen
    .type dlmopen, %function
dlmopen:
    .cfi_startproc
    hint #34
    adrp x16, cupool_before_dlmopen
    add x16, x16, :lo12:cupool_before_dlmopen
    b cupool_untracked_jump
    .cfi_endproc
    .size dlmopen, . - dlmopen

    .balign 16
    .globl dlclose
    .type dlclose, %function
dlclose:
    .cfi_startproc
    hint #34
    adrp x16, cupool_before_dlclose
    add x16, x16, :lo12:cupool_before_dlclose
    b cupool_untracked_jump
    .cfi_endproc
    .size dlclose, . - dlclose

#endif

#include "base/object_notes.inc"
