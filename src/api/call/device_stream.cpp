// device_stream.cpp: see api/call/device_stream.hpp.
#include "api/call/device_stream.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fmt/core.h>

namespace sennit {
namespace {

// Whether there is memory that this process may touch; also where the kernel does not say.
bool is_there(uintptr_t memory) {
  std::byte seen{};
  const iovec here{&seen, 1}, there{reinterpret_cast<void*>(memory), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

// Of memory that no device knows. It may have been one's, and to touch what was freed there ends
// the process. `bytes`: as many at least are used.
Status check_there(const void* memory, size_t bytes) {
  if (!memory || bytes == 0) return {};
  constexpr uintptr_t kPageBytes = 4096;
  const auto first = reinterpret_cast<uintptr_t>(memory), last = first + bytes - 1;
  const bool one_page = first / kPageBytes == last / kPageBytes;
  for (const uintptr_t at : {first, last})
    if ((at == first || !one_page) && !is_there(at))
      return invalid(
          fmt::format("there is no memory of the host's at {:#x}, and none that the "
                      "device knows: was it freed?",
                      at));
  return {};
}

}  // namespace

Status DeviceStream::set(Accelerator* device, void* stream) {
  void* const handle = device->handle_of(stream);
  const MutexLock lock(mutex_);
  if (target_.accelerator && target_.accelerator != device)
    return invalid("the communicator has a stream of another device: one device a communicator");
  target_ = {device, handle};
  is_set_ = true;
  return {};
}

StreamTarget DeviceStream::target() const {
  const MutexLock lock(mutex_);
  return target_;
}

Result<StreamTarget> DeviceStream::target_of(const Call& call) const {
  if (!is_set_ || call.internal) return StreamTarget{};
  StreamTarget target = this->target();
  const CallMemory memory = memory_of(call, rank_);
  const void* plain = nullptr;
  const void* other = nullptr;
  for (const void* const at : {memory.read, memory.written}) {
    if (!at || (call.count == 0 && !call.vector_variant)) continue;
    const Result<MemoryKind> kind = target.accelerator->look(at);
    if (!kind) return kind.status();
    (*kind == MemoryKind::plain ? plain : other) = at;
  }
  if (plain && other)
    return invalid(
        fmt::format("the memory at {} is the host's alone, that at {} is a device's or pinned: "
                    "both have to be of a kind",
                    plain, other));
  if (call.collective == Collective::barrier) return StreamTarget{};
  const Result<bool> captured = target.accelerator->is_captured(target.stream);
  if (!captured) return captured.status();
  target.in_graph = *captured;
  if (target.in_graph && call.receiving && call.root == SENNIT_ANY_SOURCE)
    return Status(SENNIT_UNSUPPORTED,
                  "the stream is being captured into a graph: a receive there names its source");
  if (target.in_graph && plain)
    return invalid(
        fmt::format("the stream is being captured into a graph, and the memory at {} is "
                    "the host's alone: a graph has calls on memory of the device",
                    plain));
  // Who has no memory in a call makes the others' call, which is on the device.
  if (!plain) return target;
  // Of a v-variant only its counts tell how much is used, which are checked later.
  const size_t bytes = call.vector_variant ? 0 : call.count * type_bytes(call.type);
  SENNIT_RETURN_IF_ERROR(check_there(memory.read, bytes));
  if (memory.written != memory.read) SENNIT_RETURN_IF_ERROR(check_there(memory.written, bytes));
  // In the stream's order all the same.
  SENNIT_RETURN_IF_ERROR(target.accelerator->synchronize(target.stream));
  return StreamTarget{};
}

Result<MemoryKind> DeviceStream::kind_of_scalar(const void* scalar) const {
  Accelerator* const device = target().accelerator;
  if (!device)
    return invalid(
        "the communicator has no stream, in whose order the scalar would be read: call "
        "sennit_comm_set_stream first");
  const Result<MemoryKind> kind = device->look(scalar);
  if (kind && *kind == MemoryKind::plain)
    return invalid(
        fmt::format("the scalar at {} is in the host's own memory, which no device "
                    "reaches: call sennit_op_create_premul_sum, which copies it",
                    scalar));
  return kind;
}

}  // namespace sennit
