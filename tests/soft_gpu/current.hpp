// current.hpp: whose context is current on this thread, and which stream a handle means.
#pragma once

#include <memory>

#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/stream.hpp"

namespace soft_gpu {

// SOFT_GPU_DEVICES of them, or one.
const std::vector<Gpu*>& gpus();

// enter(), and an error also where no context is current. `gpu`: whose context is.
int enter(Gpu** gpu);
Gpu* current();
// The stream of a handle. The default streams' are those of the current context.
int find_stream(CUstream handle, std::shared_ptr<StreamThread>* stream);
// For a call that puts something into the stream, or asks what it has come to: the default one is
// out of use while a stream that blocks is captured, and what is captured is invalid then.
int find_stream_to_use(CUstream handle, std::shared_ptr<StreamThread>* stream);
bool is_legacy(CUstream handle);  // the default stream's
// The handle of a new stream, which means it until it is taken away again.
CUstream add_handle(const std::shared_ptr<StreamThread>& stream);
std::shared_ptr<StreamThread> take_handle(CUstream handle);

}  // namespace soft_gpu
