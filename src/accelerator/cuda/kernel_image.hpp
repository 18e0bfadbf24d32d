// kernel_image.hpp: the compiled kernel that is in this build of the library.
#pragma once

namespace sennit::cuda {

// For cuModuleLoadData(); null where the library was built without CUDA's compiler.
const void* worker_image();

}  // namespace sennit::cuda
