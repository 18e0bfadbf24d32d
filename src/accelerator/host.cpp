// host.cpp: the processor as an accelerator: every place in a stream is reached at once, and what
// is submitted is done at once.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/core.h>

#include "accelerator/accelerator.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

constexpr size_t kAlignment = 256;

class HostWorker final : public StreamWorker {
 public:
  Status enqueue(void*, uint64_t) override { return {}; }
  bool over() const override { return false; }
  bool reached() override { return true; }
  void submit(const LocalWork& work, uint64_t token) override {
    if (!work.copies)
      reduce(work.type, work.op, work.out, work.inputs, work.count, work.divisor);
    else if (work.inputs[0] != work.out)
      std::memmove(work.out, work.inputs[0], work.count);
    done_.push_back(token);
  }
  void poll(std::vector<uint64_t>* done) override {
    done->insert(done->end(), done_.begin(), done_.end());
    done_.clear();
  }
  Status lost() const override { return {}; }
  void leave() override {}
  void retire() override {}

 private:
  std::vector<uint64_t> done_;
};

class HostAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "host"; }
  Result<MemoryKind> look(const void*) override { return MemoryKind::pinned; }
  void* handle_of(void* stream) const override { return stream; }
  Result<bool> is_captured(void*) override { return false; }
  Result<std::unique_ptr<StreamWorker>> make_worker(const StreamOwner&, bool) override {
    return std::unique_ptr<StreamWorker>(std::make_unique<HostWorker>());
  }
  uint32_t most_inputs() const override { return UINT32_MAX; }
  bool alone() const override { return true; }
  uint64_t cache_bytes() const override { return 0; }
  Status copy(void*, void* to, const void* from, size_t bytes) override {
    std::memmove(to, from, bytes);
    return {};
  }
  Status synchronize(void*) override { return {}; }
  Result<std::byte*> allocate(size_t bytes, MemoryKind) override {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, std::max(bytes, kAlignment)) != 0)
      return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("no memory for {} bytes", bytes));
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory, size_t, MemoryKind) override { std::free(memory); }
  bool exports() const override { return false; }
  Result<ExportedMemory> export_memory(const std::byte*) override { return no_other_process(); }
  Result<std::byte*> import_memory(const ExportedMemory&) override { return no_other_process(); }
  void end_import(std::byte*) override {}

 private:
  static Status no_other_process() {
    return {SENNIT_UNSUPPORTED, "the host's memory is exported by transports"};
  }
};

}  // namespace

Accelerator& host_accelerator() {
  static HostAccelerator host;
  return host;
}

}  // namespace sennit
