/* The kernels as PTX. The assembler includes the file, because a string literal of its size is not portable. */
#include "device/kernels/image.h"

__asm__(".section .rodata\n"
        ".global tdict_kernel_image\n"
        ".hidden tdict_kernel_image\n"
        ".type tdict_kernel_image, %object\n"
        "tdict_kernel_image:\n"
        ".incbin \"" TDICT_KERNEL_IMAGE_FILE "\"\n"
        ".byte 0\n"
        ".size tdict_kernel_image, . - tdict_kernel_image\n"
        ".previous\n");
