// device_imports_test.cpp: what a device has mapped of its peers' is given back without the
// engine's lock, since the driver may have whoever asks wait for a kernel, and that for the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "engine/engine.hpp"
#include "tests/engine/idle_transport.hpp"

namespace sennit {
namespace {

constexpr size_t kInFlightBytes = 1 << 20;
constexpr uint64_t kStallNs = 1'000'000'000;

Status no_device() { return {SENNIT_UNSUPPORTED, "there is no device"}; }

// Maps whatever it is asked to, and looks whether the engine is locked when that ends.
class Mapper final : public Accelerator {
 public:
  std::string_view name() const override { return "mapper"; }
  Result<MemoryKind> look(const void*) override { return MemoryKind::plain; }
  void* handle_of(void* stream) const override { return stream; }
  Result<bool> is_captured(void*) override { return false; }
  Result<std::unique_ptr<StreamWorker>> make_worker(const StreamOwner&, bool) override {
    return no_device();
  }
  uint32_t most_inputs() const override { return 1; }
  bool alone() const override { return true; }
  uint64_t cache_bytes() const override { return 0; }
  Status copy(void*, void*, const void*, size_t) override { return no_device(); }
  Status synchronize(void*) override { return no_device(); }
  Result<std::byte*> allocate(size_t, MemoryKind) override { return no_device(); }
  void free(std::byte*, size_t, MemoryKind) override {}
  bool exports() const override { return true; }
  Result<ExportedMemory> export_memory(const std::byte*) override { return no_device(); }
  Result<std::byte*> import_memory(const ExportedMemory& memory) override { return memory.begin; }
  void end_import(std::byte* memory) override {
    ended.push_back(memory);
    std::thread([this] {
      if (!mutex->try_lock()) return;
      unlocked++;
      mutex->unlock();
    }).join();
  }

  Mutex* mutex = nullptr;  // the engine's
  std::vector<std::byte*> ended;
  size_t unlocked = 0;
};

// Peers have told it of two pieces; the answer for the second counts for nothing.
class TwoPieces final : public sennit_test::IdleTransport {
 public:
  std::string_view name() const override { return "two_pieces"; }
  Reach reach(int, std::span<const std::byte>) override { return Reach::same_host; }
  std::vector<PeerMemory> unanswered() const override {
    return {{1, {first, 1, 1, {}}}, {1, {second, 1, 1, {}}}};
  }
  bool answer(const PeerMemory& memory, std::byte*) override {
    return memory.memory.begin == first;
  }

  static inline std::byte pieces[2];
  static constexpr std::byte *first = &pieces[0], *second = &pieces[1];
};

TEST(DeviceImports, EndWithoutTheEnginesLock) {
  Mapper mapper;
  auto engine = std::make_unique<Engine>(false, kInFlightBytes, kStallNs, Engine::Callbacks{});
  mapper.mutex = &engine->mutex();
  std::vector<std::unique_ptr<Transport>> all;
  all.push_back(std::make_unique<TwoPieces>());
  engine->set_transports(std::move(all));
  engine->map_peers_memory(mapper);
  EXPECT_EQ(mapper.ended, std::vector{TwoPieces::second});
  EXPECT_EQ(mapper.unlocked, 1u);
  engine.reset();
  EXPECT_EQ(mapper.ended, (std::vector{TwoPieces::second, TwoPieces::first}));
  EXPECT_EQ(mapper.unlocked, 2u);
}

}  // namespace
}  // namespace sennit
