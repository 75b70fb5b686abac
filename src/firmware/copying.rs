//! Small `memcpy`, `memmove` and `memset` for Cortex-M3 and up (feature `small-mem`): 170 bytes,
//! where the compiler's versions occupy 3.4 kB.
//!
//! The compiler's versions are weak symbols, so these replace them in the whole image. Blocks are
//! copied four words at a time, at any alignment: disable the feature if the processor traps
//! unaligned accesses. Overlapping moves to higher addresses go word by word.

#![allow(unsafe_code)]

// SAFETY: each symbol implements the function of its name in C, or in the Arm run-time ABI (where
// `__aeabi_memset` has the length before the value). It accesses only the ranges passed by the
// caller, and modifies only registers that calls may clobber.
core::arch::global_asm!(
    ".pushsection .text.torchlet_copying, \"ax\", %progbits
     .syntax unified
     .thumb
     .balign 4
     .irp name, memcpy, __aeabi_memcpy, __aeabi_memcpy4, __aeabi_memcpy8
     .global \\name
     .type \\name, %function
     .thumb_func
     \\name:
     .endr
     mov r12, r0
     subs r2, r2, #16
     blo 2f
     1:
     ldr r3, [r1], #4
     str r3, [r12], #4
     ldr r3, [r1], #4
     str r3, [r12], #4
     ldr r3, [r1], #4
     str r3, [r12], #4
     ldr r3, [r1], #4
     str r3, [r12], #4
     subs r2, r2, #16
     bhs 1b
     2:
     adds r2, r2, #16
     3:
     subs r2, r2, #4
     blo 4f
     ldr r3, [r1], #4
     str r3, [r12], #4
     b 3b
     4:
     adds r2, r2, #4
     beq 6f
     5:
     ldrb r3, [r1], #1
     strb r3, [r12], #1
     subs r2, r2, #1
     bne 5b
     6:
     bx lr

     .irp name, memmove, __aeabi_memmove, __aeabi_memmove4, __aeabi_memmove8
     .global \\name
     .type \\name, %function
     .thumb_func
     \\name:
     .endr
     subs r3, r0, r1
     cmp r3, r2
     bhs memcpy
     adds r1, r1, r2
     add r12, r0, r2
     1:
     subs r2, r2, #4
     blo 2f
     ldr r3, [r1, #-4]!
     str r3, [r12, #-4]!
     b 1b
     2:
     adds r2, r2, #4
     beq 4f
     3:
     ldrb r3, [r1, #-1]!
     strb r3, [r12, #-1]!
     subs r2, r2, #1
     bne 3b
     4:
     bx lr

     .irp name, __aeabi_memclr, __aeabi_memclr4, __aeabi_memclr8
     .global \\name
     .type \\name, %function
     .thumb_func
     \\name:
     .endr
     movs r2, #0
     .irp name, __aeabi_memset, __aeabi_memset4, __aeabi_memset8
     .global \\name
     .type \\name, %function
     .thumb_func
     \\name:
     .endr
     mov r3, r1
     mov r1, r2
     mov r2, r3
     .global memset
     .type memset, %function
     .thumb_func
     memset:
     uxtb r1, r1
     orr r1, r1, r1, lsl #8
     orr r1, r1, r1, lsl #16
     mov r12, r0
     1:
     subs r2, r2, #4
     blo 2f
     str r1, [r12], #4
     b 1b
     2:
     adds r2, r2, #4
     beq 4f
     3:
     strb r1, [r12], #1
     subs r2, r2, #1
     bne 3b
     4:
     bx lr
     .popsection"
);
