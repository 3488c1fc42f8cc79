/* Declares the kernels as PTX. The array is constant. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_KERNELS_IMAGE_H
#define TDICT_DEVICE_KERNELS_IMAGE_H

/* The text of kernels.ptx, which ends with 0. */
extern const char tdict_kernel_image[] __attribute__((visibility("hidden")));

#endif
