// accelerator.hpp: the contract of the accelerators family: memory that the processor does not
// reach, the streams that order work on it, and copies and reductions that are done there.
//
// An accelerator answers three questions of the engine: what memory is this, has the stream come to
// this call, and is this copy or reduction done. A *worker* is a place in a stream at which calls
// do their local work. Once it is enqueued, nothing is asked of a driver any more: it is told what
// to do through memory, so that nothing a program does to its device meanwhile can wait for us
// while we wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/process/exported_memory.hpp"
#include "base/status.hpp"
#include "schedule/request.hpp"

namespace sennit {

// Who reaches it.
enum class MemoryKind : uint8_t {
  plain,   // the processor's alone
  pinned,  // the processor's, and the device reaches it
  device,  // the device's; the processor may not touch it
};

// Whose calls go into a stream: a rank of a job.
struct StreamOwner {
  uint64_t job = 0;
  int rank = 0;
};

// out = in[0] op in[1] op ..., as reduce() has it (reduce/reduce.hpp), or a copy of the only input.
// `out` may be an input. Of those that are out at once none writes what another one uses.
struct LocalWork {
  bool copies = true;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  uint64_t divisor = 1;
  std::byte* out = nullptr;
  std::span<const void* const> inputs;  // read by submit(); at most most_inputs()
  uint64_t count = 0;                   // elements; of a copy: bytes
};

// A place in a stream. enqueue() is called once; all else by one thread at a time, also before it
// has returned. No call waits.
class StreamWorker {
 public:
  virtual ~StreamWorker() = default;
  // Puts the place behind all that is in the stream now; an error where another rank of the owner's
  // job has one that is not over there, or in a stream that this one waits for by itself.
  // `work_bytes`: of the results of all that will be submitted, for how much of the device is
  // taken.
  virtual Status enqueue(void* stream, uint64_t work_bytes) = 0;
  // Whether the stream has come here. Before, nothing of the call's memory may be touched. In a
  // graph, after each leave(): whether the stream has come here again.
  virtual bool reached() = 0;
  // In a graph: whether the graph is gone, so that no stream will come here any more.
  virtual bool over() const = 0;
  // Any number. All inputs and outputs are memory that the device reaches. `token` comes out of
  // poll() once it is done.
  virtual void submit(const LocalWork& work, uint64_t token) = 0;
  // Appends the tokens of what is done.
  virtual void poll(std::vector<uint64_t>* done) = 0;
  // An error where the device has failed, so that nothing here will be reached or done any more.
  // What is not known yet is no error.
  virtual Status lost() const = 0;
  // The stream goes on; where it has not come here yet, as soon as it does. Nothing more is
  // submitted, and what was and is not done may be left undone.
  virtual void leave() = 0;
  // In a graph: whenever the stream comes here from now on, it goes on.
  virtual void retire() = 0;
};

// One device.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual std::string_view name() const = 0;  // "cuda"
  // What is at this address; an error where it is memory that this device does not serve.
  virtual Result<MemoryKind> look(const void* memory) = 0;
  // The one handle of the stream, which may have several.
  virtual void* handle_of(void* stream) const = 0;
  // Whether what is put into the stream becomes part of a graph; an error where nothing can be.
  virtual Result<bool> is_captured(void* stream) = 0;
  // `in_graph`: for a stream that is captured. Once the worker is destroyed it has retired.
  virtual Result<std::unique_ptr<StreamWorker>> make_worker(const StreamOwner& owner,
                                                            bool in_graph) = 0;
  virtual uint32_t most_inputs() const = 0;  // of one LocalWork
  // Whether it is the only device of this process, so that addresses of all its ranks serve.
  virtual bool alone() const = 0;
  // What lies within so many bytes may be faster than its memory; 0: unknown.
  virtual uint64_t cache_bytes() const = 0;
  // Puts a copy between memory that the device reaches into the stream.
  virtual Status copy(void* stream, void* to, const void* from, size_t bytes) = 0;
  // Waits until the stream has come to its end.
  virtual Status synchronize(void* stream) = 0;
  // Pinned or device memory, aligned to 256 bytes at least. Kept for the next who asks. Any thread;
  // asks the driver, so not while a worker of the caller is enqueued.
  virtual Result<std::byte*> allocate(size_t bytes, MemoryKind kind) = 0;
  virtual void free(std::byte* memory, size_t bytes, MemoryKind kind) = 0;  // null is nothing
  // Whether others can map its memory, as far as it is known.
  virtual bool exports() const = 0;
  // What another process of this host, or another device of this one, needs to map device memory of
  // allocate()'s, and what lies around it; an error where none can.
  virtual Result<ExportedMemory> export_memory(const std::byte* memory) = 0;
  // Where such memory lies for this device from now on, until end_import(); an error where it
  // cannot be mapped. Null: not now, as the driver might wait for a worker that is out.
  virtual Result<std::byte*> import_memory(const ExportedMemory& memory) = 0;
  virtual void end_import(std::byte* memory) = 0;
};

// The CUDA device of the stream; of a default stream, the one that is current in the calling
// thread. Lives until the process ends.
Result<Accelerator*> cuda_device_of(void* stream);
// A new stream of the device with this number. The device is current in this thread from then on.
Result<void*> new_cuda_stream(int device);
Result<int> cuda_devices();  // how many this process has
// The processor, whose streams are always at their end, and all of whose memory serves. `stream`
// is not looked at. What a device is held against in tests.
Accelerator& host_accelerator();

}  // namespace sennit
