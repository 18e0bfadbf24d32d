// device_health.cpp: see accelerator/cuda/device_health.hpp.
#include "accelerator/cuda/device_health.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/core.h>

namespace sennit::cuda {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1};

}  // namespace

DeviceHealth::DeviceHealth(const Driver& driver, Context context, Stream stream,
                           const KernelsOut& kernels)
    : driver_(driver), context_(context), stream_(stream), kernels_(kernels) {
  std::thread([this] { watch(); }).detach();
}

void DeviceHealth::watch() {
  for (uint64_t ended_before = UINT64_MAX;;) {
    std::this_thread::sleep_for(kBetweenLooks);
    const uint64_t ended = kernels_.have_ended();
    if (!kernels_.any() || std::exchange(ended_before, ended) != ended) continue;
    const CurrentContext current(driver_, context_);
    const int error =
        current.error() == kSuccess ? driver_.cuStreamQuery(stream_) : current.error();
    if (error == kSuccess || error == kNotReady) continue;
    error_.store(error, std::memory_order_relaxed);
    return;
  }
}

Status DeviceHealth::status() const {
  const int error = error_.load(std::memory_order_relaxed);
  if (error == kSuccess) return {};
  if (error == kContextDestroyed)
    return {SENNIT_INTERNAL,
            fmt::format("{}: the CUDA device was reset, as cudaDeviceReset does, and what was in "
                        "its streams is lost: end communicators first",
                        error_text(driver_, error))};
  return {SENNIT_INTERNAL,
          fmt::format("the CUDA device has failed with {}, and what was in its streams is lost: "
                      "some kernel of this process is at fault, compute-sanitizer finds which; the "
                      "process has to be started again",
                      error_text(driver_, error))};
}

}  // namespace sennit::cuda
