/* Contains the kernels as PTX. The text is constant. */
#include "kernel/image.h"

const char tdict_kernel_image[] = "";
