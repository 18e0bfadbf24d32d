// cuda.cpp: a CUDA device as an accelerator. One object for each device of the process, made when
// a communicator first gets a stream of it.
#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/kernel_image.hpp"
#include "accelerator/cuda/mailboxes.hpp"
#include "base/options.hpp"

namespace sennit {
namespace {

using namespace cuda;

constexpr size_t kLeastBlockBytes = 64 * 1024;
// A block that is kept serves for down to a quarter of its size.
constexpr size_t kMostWaste = 4;

// Memory that was given back, of one kind.
class Kept {
 public:
  std::byte* take(size_t bytes) {
    auto found = blocks_.lower_bound(bytes);
    if (found == blocks_.end() || found->first > kMostWaste * bytes) return nullptr;
    std::byte* const memory = found->second;
    blocks_.erase(found);
    return memory;
  }
  void put(std::byte* memory, size_t bytes) { blocks_.emplace(bytes, memory); }

 private:
  std::multimap<size_t, std::byte*> blocks_;
};

size_t rounded(size_t bytes) {
  size_t block = kLeastBlockBytes;
  while (block < bytes) block *= 2;
  return block;
}

// NULL, the legacy stream and that of each thread have no context of their own.
constexpr uintptr_t kLastDefaultStream = 2;

class CudaDevice final : public Accelerator {
 public:
  CudaDevice(const Kernel& kernel, Stream stream, Device ordinal, bool alone, uint64_t cache_bytes)
      : kernel_(kernel),
        driver_(*kernel.driver),
        ordinal_(ordinal),
        alone_(alone),
        cache_bytes_(cache_bytes),
        mailboxes_(*kernel.driver, stream) {}

  std::string_view name() const override { return "cuda"; }
  uint32_t most_inputs() const override { return kMostInputs; }
  bool alone() const override { return alone_; }
  uint64_t cache_bytes() const override { return cache_bytes_; }

  Result<MemoryKind> look(const void* memory) override {
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    const int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
    void* data[] = {&type, &managed, &ordinal};
    const int error = driver_.cuPointerGetAttributes(std::size(attributes), attributes, data,
                                                     reinterpret_cast<Address>(memory));
    if (error != kSuccess || type == 0) return MemoryKind::plain;
    if (type == kTypeHost) return MemoryKind::pinned;
    if (ordinal != ordinal_ && managed == 0)
      return invalid(
          fmt::format("the memory at {} is CUDA device {}'s, the communicator's stream is of "
                      "device {}",
                      memory, ordinal, ordinal_));
    return MemoryKind::device;
  }

  Result<bool> is_captured(void* stream) override {
    int capturing = 0;
    const CurrentContext current(driver_, kernel_.context);
    SENNIT_RETURN_IF_ERROR(
        checked(driver_.cuStreamIsCapturing(static_cast<Stream>(stream), &capturing),
                "cuStreamIsCapturing"));
    if (capturing == kCaptureInvalid)
      return Status(SENNIT_INVALID_ARGUMENT,
                    "what the stream is being captured into is invalid since an earlier call: end "
                    "the capture, and look for the call that made it so");
    return capturing == kCapturing;
  }

  Result<std::unique_ptr<StreamWorker>> make_worker(const StreamOwner& owner,
                                                    bool in_graph) override {
    const CurrentContext current(driver_, kernel_.context);
    const Result<Post> post = mailboxes_.take();
    if (!post) return post.status();
    if (in_graph)
      return std::unique_ptr<StreamWorker>(
          std::make_unique<GraphWorker>(kernel_, mailboxes_, *post, owner));
    return std::unique_ptr<StreamWorker>(
        std::make_unique<CallWorker>(kernel_, mailboxes_, *post, owner));
  }

  Status copy(void* stream, void* to, const void* from, size_t bytes) override {
    const CurrentContext current(driver_, kernel_.context);
    return checked(
        driver_.cuMemcpyAsync(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                              static_cast<Stream>(stream)),
        "cuMemcpyAsync");
  }

  Status synchronize(void* stream) override {
    const CurrentContext current(driver_, kernel_.context);
    return checked(driver_.cuStreamSynchronize(static_cast<Stream>(stream)), "cuStreamSynchronize");
  }

  Result<std::byte*> allocate(size_t bytes, MemoryKind kind) override {
    const size_t block = rounded(bytes);
    {
      const MutexLock lock(mutex_);
      if (std::byte* const memory = kept(kind).take(block)) return memory;
    }
    const CurrentContext current(driver_, kernel_.context);
    if (kind == MemoryKind::device) {
      Address memory = 0;
      SENNIT_RETURN_IF_ERROR(checked(driver_.cuMemAlloc_v2(&memory, block), "cuMemAlloc", block));
      return reinterpret_cast<std::byte*>(memory);
    }
    return pinned_memory(driver_, block);
  }

  // To free it would wait for every kernel of the device.
  void free(std::byte* memory, size_t bytes, MemoryKind kind) override {
    if (!memory) return;
    const MutexLock lock(mutex_);
    kept(kind).put(memory, rounded(bytes));
  }

 private:
  Status checked(int error, const char* what, size_t bytes = 0) const {
    if (error == kSuccess) return {};
    const std::string of = bytes ? fmt::format(" of {} bytes", bytes) : "";
    return {bytes ? SENNIT_OUT_OF_RESOURCES : SENNIT_INTERNAL,
            fmt::format("{}{}: {}", what, of, error_text(driver_, error))};
  }
  Kept& kept(MemoryKind kind) SENNIT_REQUIRES(mutex_) {
    return kind == MemoryKind::device ? device_ : pinned_;
  }

  const Kernel kernel_;
  const Driver& driver_;
  const Device ordinal_;
  const bool alone_;
  const uint64_t cache_bytes_;
  Mailboxes mailboxes_;
  Mutex mutex_;
  Kept pinned_ SENNIT_GUARDED_BY(mutex_), device_ SENNIT_GUARDED_BY(mutex_);
};

Result<CudaDevice*> make_device(const Driver& driver, Context context) {
  // Without one of its own, what stands for a device in tests takes any.
  const void* const image = worker_image() ? worker_image() : "";
  std::string what;
  const auto ok = [&](int error, const char* function) {
    if (error != kSuccess && what.empty())
      what = fmt::format("{}: {}", function, error_text(driver, error));
    return what.empty();
  };
  const CurrentContext current(driver, context);
  Device ordinal = 0;
  int multiprocessors = 0, host_pointers_serve = 0, devices = 0, cache_bytes = 0;
  Kernel kernel{&driver, context};
  Module module = nullptr;
  Stream stream = nullptr;
  ok(current.error(), "cuCtxPushCurrent") &&
      ok(driver.cuCtxGetDevice(&ordinal), "cuCtxGetDevice") &&
      ok(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount") &&
      ok(driver.cuDeviceGetAttribute(&multiprocessors, kMultiprocessors, ordinal),
         "cuDeviceGetAttribute") &&
      ok(driver.cuDeviceGetAttribute(&host_pointers_serve, kHostPointersServe, ordinal),
         "cuDeviceGetAttribute") &&
      ok(driver.cuDeviceGetAttribute(&cache_bytes, kCacheBytes, ordinal), "cuDeviceGetAttribute") &&
      ok(driver.cuModuleLoadData(&module, image), "cuModuleLoadData") &&
      ok(driver.cuModuleGetFunction(&kernel.function, module, kKernelName),
         "cuModuleGetFunction") &&
      ok(driver.cuStreamCreate(&stream, kNonBlocking), "cuStreamCreate");
  if (!what.empty())
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("CUDA device {}: {}{}", ordinal, what,
                              worker_image() ? ""
                                             : ": this build of Sennit has no kernels: build it "
                                               "where nvcc is found"));
  if (!host_pointers_serve)
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("CUDA device {}: it does not reach registered memory by the host's "
                              "addresses, which Sennit needs",
                              ordinal));
  const int64_t most = option_integer("SENNIT_DEVICE_BLOCKS");
  kernel.most_blocks = static_cast<unsigned>(std::clamp<int64_t>(most, 1, multiprocessors));
  // As long as the device, and that lives as long as the process.
  kernel.shares = new BlockShares(static_cast<unsigned>(multiprocessors));
  kernel.owners = new StreamOwners;
  kernel.health = new DeviceHealth(driver, context, stream);
  return new CudaDevice(kernel, stream, ordinal, devices == 1, static_cast<uint64_t>(cache_bytes));
}

}  // namespace

Result<int> cuda_devices() {
  const Result<const Driver*> driver = cuda::driver();
  if (!driver) return driver.status();
  int devices = 0;
  if (const int error = (*driver)->cuDeviceGetCount(&devices); error != kSuccess)
    return Status(SENNIT_NOT_FOUND,
                  fmt::format("cuDeviceGetCount: {}", error_text(**driver, error)));
  return devices;
}

Result<void*> new_cuda_stream(int device) {
  const Result<const Driver*> driver = cuda::driver();
  if (!driver) return driver.status();
  Context context = nullptr;
  Stream stream = nullptr;
  int error = (*driver)->cuDevicePrimaryCtxRetain(&context, device);
  if (error == kSuccess) error = (*driver)->cuCtxSetCurrent(context);
  if (error == kSuccess) error = (*driver)->cuStreamCreate(&stream, kNonBlocking);
  if (error == kSuccess) return static_cast<void*>(stream);
  return Status(SENNIT_NOT_FOUND, fmt::format("no stream on CUDA device {}: {}", device,
                                              error_text(**driver, error)));
}

Result<Accelerator*> cuda_device_of(void* stream) {
  const Result<const Driver*> driver = cuda::driver();
  if (!driver) return driver.status();
  Context context = nullptr;
  const int error = reinterpret_cast<uintptr_t>(stream) > kLastDefaultStream
                        ? (*driver)->cuStreamGetCtx(static_cast<Stream>(stream), &context)
                        : (*driver)->cuCtxGetCurrent(&context);
  if (error != kSuccess)
    return invalid(fmt::format("the stream at {}: {}: it is no CUDA stream", stream,
                               error_text(**driver, error)));
  if (!context)
    return invalid("no CUDA device is current in this thread: call cudaSetDevice first");
  // Never destroyed: what other static objects do at the exit may still ask for a device.
  struct Devices {
    Mutex mutex;
    std::map<Context, CudaDevice*> of SENNIT_GUARDED_BY(mutex);
  };
  static Devices& devices = *new Devices;
  const MutexLock lock(devices.mutex);
  CudaDevice*& device = devices.of[context];
  if (!device) {
    const Result<CudaDevice*> made = make_device(**driver, context);
    if (!made) return made.status();
    device = *made;
  }
  return device;
}

}  // namespace sennit
