// registered.cpp: see python/sennit_torch/core/registered.hpp.
#include "core/registered.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace sennit_torch {
namespace {

// Smaller ones gain less than the look at the page map costs, which every use of them needs.
constexpr size_t kLeastBytes = size_t{256} << 10;

std::atomic<bool> asked_for{false};

// What a storage's memory belongs to from its registration on: who frees it deregisters it first.
struct Registered {
  std::weak_ptr<HeldCommunicator> comm;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  pid_t owner = getpid();
  at::DataPtr rest;  // as the storage had it

  ~Registered() {
    if (owner == getpid())
      deregister();
    else
      leave_to_parent();
  }
  void deregister() const {
    std::shared_ptr<HeldCommunicator> any = comm.lock();
    if (!any) any = WholeJob::instance().held();
    if (any) sennit_mem_deregister(any->comm, memory);
  }
  // This process is a forked child. Whatever its allocator puts there next is its own.
  void leave_to_parent() const {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = (address + page - 1) / page * page;
    const uintptr_t end = (address + bytes) / page * page;
    if (begin < end)
      mmap(reinterpret_cast<void*>(begin), end - begin,  // NOLINT(performance-no-int-to-ptr)
           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
};

void free_registered(void* registered) { delete static_cast<Registered*>(registered); }

// Whether it is large, its storage says when its memory is freed, and is not registered yet. What
// CUDA has pinned has to stay in its pages.
bool can_be_registered(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.is_contiguous() || tensor.nbytes() < kLeastBytes || tensor.is_pinned())
    return false;
  const c10::DeleterFnPtr deleter = tensor.storage().data_ptr().get_deleter();
  return deleter != &c10::detail::deleteNothing && deleter != &free_registered;
}

// How often large ranges were used that are not registered. An address may come again for other
// memory, which is registered sooner then.
struct Uses {
  static constexpr size_t kMost = 4096;  // begins anew beyond
  static constexpr int kNever = -1;      // cannot be registered
  std::mutex mutex;
  std::map<std::pair<const void*, size_t>, int> of_range;
};
Uses& uses() {
  static auto* const all = new Uses;
  return *all;
}

void use(const std::shared_ptr<HeldCommunicator>& comm, const at::Tensor& tensor) {
  auto* const memory = static_cast<std::byte*>(tensor.data_ptr());
  const std::scoped_lock lock(uses().mutex);
  if (uses().of_range.size() >= Uses::kMost) uses().of_range.clear();
  int& count = uses().of_range[{memory, tensor.nbytes()}];
  if (count == Uses::kNever || ++count < 2) return;
  count = Uses::kNever;
  if (sennit_mem_register(comm->comm, memory, tensor.nbytes()) != SENNIT_OK) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  auto registered = std::make_unique<Registered>();
  registered->comm = comm;
  registered->memory = memory;
  registered->bytes = tensor.nbytes();
  void* const data = storage->mutable_data();
  Registered* const held = registered.get();
  held->rest = storage->set_data_ptr(
      at::DataPtr(data, registered.release(), &free_registered, tensor.device()));
  uses().of_range.erase({memory, tensor.nbytes()});
}

}  // namespace

void register_memory(bool wanted) { asked_for = wanted; }

void used(const std::shared_ptr<HeldCommunicator>& comm, const std::vector<at::Tensor>& tensors) {
  if (!asked_for) return;
  const void* last = nullptr;
  for (const at::Tensor& tensor : tensors)
    if (can_be_registered(tensor) && tensor.const_data_ptr() != last) {
      last = tensor.const_data_ptr();
      use(comm, tensor);
    }
}

}  // namespace sennit_torch
