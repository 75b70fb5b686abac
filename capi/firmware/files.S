/* The program and the picture, in flash: the program at a multiple of 16, so that its weights are used in place. */

    .section .rodata.files, "a"
    .global program_start, program_end, picture_start, picture_end
    .balign 16
program_start:
    .incbin PROGRAM
program_end:
    .balign 16
picture_start:
    .incbin PICTURE
picture_end:

    .section .note.GNU-stack, "", %progbits
