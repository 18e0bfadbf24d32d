// cuda.cpp: a CUDA device as an accelerator. One object for each device of the process, made when
// a communicator first gets a stream of it.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/kernel_image.hpp"
#include "accelerator/cuda/mailboxes.hpp"
#include "accelerator/cuda/pieces.hpp"
#include "base/options.hpp"

namespace sennit {
namespace {

using namespace cuda;

constexpr size_t kLeastBlockBytes = 64 * 1024;
// Blocks have sizes of powers of two, larger ones are whole steps.
constexpr size_t kLargeBlockBytes = 32 * 1024 * 1024;
constexpr size_t kLargeStepBytes = 2 * 1024 * 1024;
// A block that is kept serves for down to a quarter of its size.
constexpr size_t kMostWaste = 4;

// Memory that was given back, of one kind, and how large all blocks are that were ever taken.
class Kept {
 public:
  std::byte* take(size_t bytes) {
    auto found = blocks_.lower_bound(bytes);
    if (found == blocks_.end() || found->first > kMostWaste * bytes) return nullptr;
    std::byte* const memory = found->second;
    blocks_.erase(found);
    return memory;
  }
  // A new one, which is out.
  void add(std::byte* memory, size_t bytes) { bytes_of_.emplace(memory, bytes); }
  void put(std::byte* memory) {
    const auto found = bytes_of_.find(memory);
    SENNIT_CHECK(found != bytes_of_.end());
    blocks_.emplace(found->second, memory);
  }

 private:
  std::multimap<size_t, std::byte*> blocks_;
  std::unordered_map<std::byte*, size_t> bytes_of_;
};

size_t rounded(size_t bytes) {
  if (bytes > kLargeBlockBytes)
    return (bytes + kLargeStepBytes - 1) / kLargeStepBytes * kLargeStepBytes;
  size_t block = kLeastBlockBytes;
  while (block < bytes) block *= 2;
  return block;
}

class CudaDevice;
// All of this process, in a list of its own: another device may be in the making, which asks the
// driver.
struct AllDevices {
  Mutex mutex;
  std::vector<CudaDevice*> list SENNIT_GUARDED_BY(mutex);
};
AllDevices& all() {
  static AllDevices& devices = *new AllDevices;
  return devices;
}
std::vector<CudaDevice*> all_devices() {
  const MutexLock lock(all().mutex);
  return all().list;
}

class CudaDevice final : public Accelerator {
 public:
  CudaDevice(const Kernel& kernel, Stream stream, Device ordinal, bool alone, uint64_t cache_bytes)
      : kernel_(kernel),
        driver_(*kernel.driver),
        ordinal_(ordinal),
        alone_(alone),
        cache_bytes_(cache_bytes),
        mailboxes_(*kernel.driver, stream),
        pieces_(*kernel.driver) {}

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

  void* handle_of(void* stream) const override { return is_legacy(stream) ? nullptr : stream; }

  Result<bool> is_captured(void* stream) override {
    int capturing = 0;
    const CurrentContext current(driver_, kernel_.context);
    const int error = driver_.cuStreamIsCapturing(static_cast<Stream>(stream), &capturing);
    if (error == kCaptureImplicit)
      return invalid(
          "a stream that blocks is being captured into a graph, and nothing can go into the "
          "default stream meanwhile, which would wait for it: give the communicator another one");
    if (error == kInvalidHandle)
      return invalid(
          fmt::format("the stream at {} is none of the device's any more: was it destroyed? give "
                      "the communicator another one",
                      stream));
    SENNIT_RETURN_IF_ERROR(checked(error, "cuStreamIsCapturing"));
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
    Result<std::byte*> made =
        kind == MemoryKind::device ? pieces_.cut(block) : pinned_memory(driver_, block);
    if (!made) return made;
    const MutexLock lock(mutex_);
    kept(kind).add(*made, block);
    return made;
  }

  // To free it would wait for every kernel of the device. It may be larger than was asked for.
  void free(std::byte* memory, size_t, MemoryKind kind) override {
    if (!memory) return;
    const MutexLock lock(mutex_);
    kept(kind).put(memory);
  }

  bool exports() const override {
    return option_flag("SENNIT_DEVICE_IPC") && pieces_.can_be_mapped();
  }

  Result<ExportedMemory> export_memory(const std::byte* memory) override {
    if (!exports()) return no_exports();
    const ExportedMemory piece = pieces_.holding(memory);
    if (piece.bytes > 0) return piece;
    return invalid(fmt::format("the memory at {} is none that Sennit has taken on the device",
                               static_cast<const void*>(memory)));
  }

  // Memory of another device of this process has its address here too, once this one reaches it.
  Result<std::byte*> import_memory(const ExportedMemory& memory) override {
    if (!exports()) return no_exports();
    CudaDevice* const owner = memory.process == getpid() ? owner_of(memory.begin) : nullptr;
    if (owner && reaches(*owner)) return memory.begin;
    const NothingOut nothing;
    if (!nothing) return nullptr;
    if (!owner) return map(memory);
    SENNIT_RETURN_IF_ERROR(reach(*owner));
    return memory.begin;
  }

  // The driver is told when nothing is out.
  void end_import(std::byte* memory) override {
    if (owner_of(memory)) return;
    {
      const MutexLock lock(mutex_);
      over_.push_back(memory);
    }
    const NothingOut nothing;
    if (nothing) close_those_over();
  }

  // Has this device reach all others of the process, and them it, where that can be done now.
  void reach_all() {
    const NothingOut nothing;
    if (!nothing) return;
    for (CudaDevice* const other : all_devices()) {
      if (other == this) continue;
      reach(*other).ok();
      other->reach(*this).ok();
    }
  }

 private:
  // While one lives, no kernel of this process is out on any device, and none begins, nor is one in
  // a stream that is stuck, although nobody waits for it any more; false: that cannot be.
  class NothingOut {
   public:
    NothingOut() : devices_(all_devices()) {
      while (stopped_ < devices_.size() && devices_[stopped_]->kernel_.kernels->may_ask())
        stopped_++;
      nothing_ = stopped_ == devices_.size() &&
                 std::all_of(devices_.begin(), devices_.end(),
                             [](CudaDevice* device) { return device->mailboxes_.none_is_stuck(); });
    }
    ~NothingOut() {
      for (size_t i = 0; i < stopped_; i++) devices_[i]->kernel_.kernels->done_asking();
    }
    NothingOut(const NothingOut&) = delete;
    NothingOut& operator=(const NothingOut&) = delete;
    explicit operator bool() const { return nothing_; }

   private:
    const std::vector<CudaDevice*> devices_;
    size_t stopped_ = 0;
    bool nothing_ = false;
  };

  // The device of this process whose piece begins there, or null.
  static CudaDevice* owner_of(const std::byte* begin) {
    for (CudaDevice* const device : all_devices())
      if (device->pieces_.holding(begin).begin == begin) return device;
    return nullptr;
  }

  bool reaches(const CudaDevice& other) {
    const MutexLock lock(mutex_);
    return &other == this || std::find(reached_.begin(), reached_.end(), &other) != reached_.end();
  }

  // While nothing is out.
  Status reach(const CudaDevice& other) {
    if (reaches(other)) return {};
    const CurrentContext current(driver_, kernel_.context);
    const int error = driver_.cuCtxEnablePeerAccess(other.kernel_.context, 0);
    if (error != kPeerAccessAlreadyEnabled)
      SENNIT_RETURN_IF_ERROR(checked(error, "cuCtxEnablePeerAccess"));
    const MutexLock lock(mutex_);
    reached_.push_back(&other);
    return {};
  }

  // While nothing is out.
  Result<std::byte*> map(const ExportedMemory& memory) {
    close_those_over();
    const CurrentContext current(driver_, kernel_.context);
    MemoryHandle handle;
    static_assert(sizeof handle == sizeof memory.handle);
    std::memcpy(&handle, memory.handle.data(), sizeof handle);
    Address here = 0;
    SENNIT_RETURN_IF_ERROR(
        checked(driver_.cuIpcOpenMemHandle_v2(&here, handle, kReachPeer), "cuIpcOpenMemHandle"));
    return reinterpret_cast<std::byte*>(here);
  }

  void close_those_over() {
    std::vector<std::byte*> over;
    {
      const MutexLock lock(mutex_);
      over.swap(over_);
    }
    const CurrentContext current(driver_, kernel_.context);
    for (const std::byte* const memory : over)
      driver_.cuIpcCloseMemHandle(reinterpret_cast<Address>(memory));
  }

  static Status no_exports() {
    return {SENNIT_UNSUPPORTED,
            "the device exports no memory: SENNIT_DEVICE_IPC is 0, or CUDA cannot here"};
  }

  Status checked(int error, const char* what) const {
    if (error == kSuccess) return {};
    return {SENNIT_INTERNAL, fmt::format("{}: {}", what, error_text(driver_, error))};
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
  Pieces pieces_;
  Mutex mutex_;
  Kept pinned_ SENNIT_GUARDED_BY(mutex_), device_ SENNIT_GUARDED_BY(mutex_);
  std::vector<std::byte*> over_ SENNIT_GUARDED_BY(mutex_);  // imports that the driver is to end
  std::vector<const CudaDevice*> reached_ SENNIT_GUARDED_BY(mutex_);  // of this process
};

// What is known of a device before anything is made there.
struct DeviceFacts {
  Device ordinal = 0;
  int multiprocessors = 0, devices = 0, cache_bytes = 0, host_pointers_serve = 0;
};

Status cannot_be_used(const DeviceFacts& facts, const std::string& why) {
  return {SENNIT_UNSUPPORTED, fmt::format("CUDA device {}: {}", facts.ordinal, why)};
}

// Its context is `current`.
Result<DeviceFacts> facts_of(const Driver& driver, const CurrentContext& current) {
  DeviceFacts facts;
  std::string what;
  const auto ok = [&](int error, const char* function) {
    if (error != kSuccess) what = fmt::format("{}: {}", function, error_text(driver, error));
    return error == kSuccess;
  };
  const auto has = [&](int* value, int attribute) {
    return ok(driver.cuDeviceGetAttribute(value, attribute, facts.ordinal), "cuDeviceGetAttribute");
  };
  if (ok(current.error(), "cuCtxPushCurrent") &&
      ok(driver.cuCtxGetDevice(&facts.ordinal), "cuCtxGetDevice") &&
      ok(driver.cuDeviceGetCount(&facts.devices), "cuDeviceGetCount") &&
      has(&facts.multiprocessors, kMultiprocessors) && has(&facts.cache_bytes, kCacheBytes) &&
      has(&facts.host_pointers_serve, kHostPointersServe))
    return facts;
  return cannot_be_used(facts, what);
}

// The kernel's function, and a stream of ours. Where that fails nothing is left of it.
Status load(const Driver& driver, const DeviceFacts& facts, Function* function, Stream* stream) {
  // Without one of its own, what stands for a device in tests takes any.
  const void* const image = worker_image() ? worker_image() : "";
  Module module = nullptr;
  const char* what = "cuModuleLoadData";
  int error = driver.cuModuleLoadData(&module, image);
  if (error == kSuccess) {
    what = "cuModuleGetFunction";
    error = driver.cuModuleGetFunction(function, module, kKernelName);
  }
  if (error == kSuccess) {
    what = "cuStreamCreate";
    error = driver.cuStreamCreate(stream, kNonBlocking);
  }
  if (error == kSuccess) return {};
  if (module) driver.cuModuleUnload(module);
  const char* why = "";
  if (!worker_image())
    why = ": this build of Sennit has no kernels: build it where nvcc is found";
  else if (error == kNoBinary || error == kUnsupportedPtx)
    why =
        ": the kernel is for compute capability 8.0 and later, and for drivers that are as new "
        "as the nvcc of this build";
  return cannot_be_used(facts, fmt::format("{}: {}{}", what, error_text(driver, error), why));
}

// Devices are known by the addresses of their contexts, and another context may get the address of
// one that is gone. So a primary context stays from now on; those that a program has made itself
// are the program's to keep. One that is not there yet is not asked for, since that would make it.
void keep_primary(const Driver& driver, Context context, Device ordinal) {
  unsigned flags = 0;
  int active = 0;
  Context primary = nullptr;
  if (driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != kSuccess || active == 0 ||
      driver.cuDevicePrimaryCtxRetain(&primary, ordinal) != kSuccess)
    return;
  if (primary != context) driver.cuDevicePrimaryCtxRelease_v2(ordinal);
}

// `never`: it fails, and so would every later try.
Result<CudaDevice*> make_device(const Driver& driver, Context context, bool* never) {
  const CurrentContext current(driver, context);
  const Result<DeviceFacts> facts = facts_of(driver, current);
  if (!facts) return facts.status();
  if (!facts->host_pointers_serve) {
    *never = true;
    keep_primary(driver, context, facts->ordinal);
    return cannot_be_used(*facts,
                          "it does not reach registered memory by the host's addresses, which "
                          "Sennit needs");
  }
  Kernel kernel{&driver, context};
  Stream stream = nullptr;
  const Status loaded = load(driver, *facts, &kernel.function, &stream);
  *never = !loaded.ok() && !worker_image();
  if (loaded.ok() || *never) keep_primary(driver, context, facts->ordinal);
  SENNIT_RETURN_IF_ERROR(loaded);
  const int64_t most = option_integer("SENNIT_DEVICE_BLOCKS");
  kernel.most_blocks = static_cast<unsigned>(std::clamp<int64_t>(most, 1, facts->multiprocessors));
  // As long as the device, and that lives as long as the process.
  kernel.shares = new BlockShares(static_cast<unsigned>(facts->multiprocessors));
  kernel.owners = new StreamOwners;
  kernel.kernels = new KernelsOut;
  kernel.health = new DeviceHealth(driver, context, stream, *kernel.kernels);
  auto* const device = new CudaDevice(kernel, stream, facts->ordinal, facts->devices == 1,
                                      static_cast<uint64_t>(facts->cache_bytes));
  {
    const MutexLock lock(all().mutex);
    all().list.push_back(device);
  }
  if (device->exports()) device->reach_all();
  return device;
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
  // The default stream and that of each thread have no context of their own.
  const int error = is_legacy(stream) || is_per_thread(stream)
                        ? (*driver)->cuCtxGetCurrent(&context)
                        : (*driver)->cuStreamGetCtx(static_cast<Stream>(stream), &context);
  if (error != kSuccess)
    return invalid(fmt::format("the stream at {}: {}: {}", stream, error_text(**driver, error),
                               error == kNotInitialized
                                   ? "CUDA was started before this process was forked, which has "
                                     "to start by exec, as Python's spawn does"
                                   : "it is no CUDA stream"));
  if (!context)
    return invalid("no CUDA device is current in this thread: call cudaSetDevice first");
  struct Known {
    CudaDevice* device = nullptr;
    Status why_never;  // where there will be none
  };
  // Never destroyed: what other static objects do at the exit may still ask for a device.
  struct Devices {
    Mutex mutex;
    std::map<Context, Known> of SENNIT_GUARDED_BY(mutex);
  };
  static Devices& devices = *new Devices;
  const MutexLock lock(devices.mutex);
  Known& known = devices.of[context];
  SENNIT_RETURN_IF_ERROR(known.why_never);
  if (!known.device) {
    bool never = false;
    const Result<CudaDevice*> made = make_device(**driver, context, &never);
    if (never) known.why_never = made.status();
    if (!made) return made.status();
    known.device = *made;
  }
  return known.device;
}

}  // namespace sennit
