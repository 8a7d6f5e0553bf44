/* dlsym of the observer: asks cupool_observer_pick and, for every name that is not ours, leaves by a jump, so
 * that RTLD_NEXT still sees its own caller. Only the two arguments and the return address are live here. */
#if defined(__x86_64__)
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    endbr64
    pushq %rdi
    pushq %rsi
    subq $8, %rsp
    call cupool_observer_pick
    addq $8, %rsp
    popq %rsi
    popq %rdi
    testq %rax, %rax
    jnz 1f
    jmpq *cupool_observer_next_dlsym(%rip)
1:  ret
    .size dlsym, .-dlsym
#elif defined(__aarch64__)
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    stp x29, x30, [sp, #-32]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl cupool_observer_pick
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    cbz x16, 1f
    mov x0, x16
    ret
1:  adrp x16, cupool_observer_next_dlsym
    ldr x16, [x16, :lo12:cupool_observer_next_dlsym]
    br x16
    .size dlsym, .-dlsym
#else
#error "the observer knows x86-64 and aarch64"
#endif
    .section .note.GNU-stack, "", %progbits
