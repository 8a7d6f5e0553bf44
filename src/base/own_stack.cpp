// See own_stack.hpp. The frame pointer stays on the old stack, so a debugger still sees the caller.
#include "base/own_stack.hpp"

#if defined(__x86_64__)

asm(R"(
    .text
    .balign 16
    .globl cupool_call_on_stack
    .hidden cupool_call_on_stack
    .type cupool_call_on_stack, @function
cupool_call_on_stack:
    .cfi_startproc
    endbr64
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    mov %rdi, %rsp
    mov %rdx, %rdi
    call *%rsi
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size cupool_call_on_stack, . - cupool_call_on_stack
)");

#elif defined(__aarch64__)

asm(R"(
    .text
    .balign 16
    .globl cupool_call_on_stack
    .hidden cupool_call_on_stack
    .type cupool_call_on_stack, %function
cupool_call_on_stack:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    mov sp, x0
    mov x0, x2
    blr x1
    mov sp, x29
    .cfi_def_cfa_register sp
    ldp x29, x30, [sp], #16
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size cupool_call_on_stack, . - cupool_call_on_stack
)");

#else
#error "a stack switch for this architecture is missing"
#endif
