// kernel_image.cpp: see accelerator/cuda/kernel_image.hpp; src/accelerator/kernel.cmake compiles
// the kernel and gives its file's name as SENNIT_KERNEL_FILE.
#include "accelerator/cuda/kernel_image.hpp"

#if defined(SENNIT_HAVE_KERNEL)

// The file's bytes between other constants. Hidden, so that no other library's copy is taken.
asm(".pushsection .rodata.sennit_worker_image, \"a\", @progbits\n"
    ".balign 64\n"
    ".globl sennit_worker_image\n"
    ".hidden sennit_worker_image\n"
    ".type sennit_worker_image, @object\n"
    "sennit_worker_image:\n"
    ".incbin \"" SENNIT_KERNEL_FILE
    "\"\n"
    ".size sennit_worker_image, . - sennit_worker_image\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char sennit_worker_image[];

namespace sennit::cuda {
const void* worker_image() { return sennit_worker_image; }
}  // namespace sennit::cuda

#else

namespace sennit::cuda {
const void* worker_image() { return nullptr; }
}  // namespace sennit::cuda

#endif
