// engine_parts_test.cpp: the parts of the engine, each alone: which transport reaches whom, memory
// that is handed out and registered, and where the data of steps lies.
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "engine/data_places.hpp"
#include "engine/memory_pool.hpp"
#include "engine/routes.hpp"

namespace sennit {
namespace {

// Reaches the peers whose address is one byte; with a descriptor, or to be driven.
class Toy : public Transport {
 public:
  explicit Toy(std::string name, int fd = -1, bool withdraws = true)
      : name_(std::move(name)), fd_(fd), withdraws_(withdraws) {}
  std::string_view name() const override { return name_; }
  std::vector<std::byte> address() const override { return {std::byte{1}}; }
  Reach reach(int, std::span<const std::byte> address) override {
    return address.size() == 1 ? Reach::network : Reach::none;
  }
  std::string obstacle() const override { return "the address is too long"; }
  Status add_peer(int, std::span<const std::byte>) override { return trouble; }
  void send(SendRequest&) override {}
  void recv(RecvRequest&) override {}
  void release(RecvRequest&) override {}
  bool has_come(int, const Key&) override { return false; }
  bool progress(Completions&) override {
    progressed++;
    return false;
  }
  void fail_peer(int, const Status&) override {}
  void cancel(uint32_t, const Status&) override {}
  int event_fd() const override { return fd_; }
  bool withdraws_at_once() const override { return withdraws_; }
  bool prepare_wait() override { return !moves; }

  int progressed = 0;
  bool moves = false;
  Status trouble;  // of add_peer()

 private:
  const std::string name_;
  const int fd_;
  const bool withdraws_;
};

const std::vector<std::byte> kNear(1), kFar(2), kNowhere;

TEST(Routes, TheFirstThatReachesAPeerIsItsOwn) {
  Routes routes;
  auto first = std::make_unique<Toy>("first"), second = std::make_unique<Toy>("second", 7);
  Toy* const one = first.get();
  Toy* const two = second.get();
  std::vector<std::unique_ptr<Transport>> both;
  both.push_back(std::move(first));
  both.push_back(std::move(second));
  routes.set_transports(std::move(both), "; third: did not start");
  routes.set_addresses({{kNear, kNear}, {kFar, kNear}, {kFar, kNowhere}});
  EXPECT_EQ(routes.to(0), one);
  EXPECT_FALSE(routes.wakes_waiters());  // the second is not in use
  EXPECT_EQ(routes.to(1), two);
  EXPECT_TRUE(routes.wakes_waiters());
  EXPECT_EQ(routes.to(2), nullptr);
  EXPECT_EQ(routes.unreachable(2).text(),
            "no transport reaches rank 2 (SENNIT_TRANSPORTS says which may be used); first: the "
            "address is too long; second: rank 2 does not use it; third: did not start");
  EXPECT_TRUE(routes.knows(2));
  EXPECT_FALSE(routes.knows(3));
}

// The peer takes the first, and would wait there for what comes over the second.
TEST(Routes, WhereTheOneThatReachesAPeerFailsNoOtherIsTried) {
  Routes routes;
  auto first = std::make_unique<Toy>("first"), second = std::make_unique<Toy>("second");
  first->trouble = {SENNIT_OUT_OF_RESOURCES, "no descriptors left"};
  Toy* const two = second.get();
  std::vector<std::unique_ptr<Transport>> both;
  both.push_back(std::move(first));
  both.push_back(std::move(second));
  routes.set_transports(std::move(both), "");
  routes.set_addresses({{kNear, kNear}, {kFar, kNear}});
  EXPECT_EQ(routes.to(0), nullptr);
  EXPECT_EQ(routes.to(0), nullptr) << "asked again";
  EXPECT_EQ(routes.unreachable(0).kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_EQ(routes.unreachable(0).text(),
            "rank 0 is reached over first, which fails here: no descriptors left");
  EXPECT_EQ(routes.to(1), two);
}

TEST(Routes, OnlyThoseInUseAreDrivenAndWaitedFor) {
  Routes routes;
  auto used = std::make_unique<Toy>("used", 5), tended = std::make_unique<Toy>("tended", 6, false);
  Toy* const one = used.get();
  Toy* const two = tended.get();
  std::vector<std::unique_ptr<Transport>> both;
  both.push_back(std::move(used));
  both.push_back(std::move(tended));
  routes.set_transports(std::move(both), "");
  routes.set_addresses({{kNear, kNear}});
  EXPECT_TRUE(routes.tends());
  EXPECT_EQ(routes.to(0), one);
  Completions completions;
  routes.progress(Routes::Driven::used, completions);
  EXPECT_EQ(one->progressed, 1);
  EXPECT_EQ(two->progressed, 0);
  routes.progress(Routes::Driven::used_or_tended, completions);
  EXPECT_EQ(two->progressed, 1);
  Routes::Descriptors found = routes.prepare_wait(Routes::Awaited::used);
  ASSERT_EQ(found.count, 1u);
  EXPECT_EQ(found.fds[0], 5);
  EXPECT_TRUE(found.all);
  found = routes.prepare_wait(Routes::Awaited::tended);
  ASSERT_EQ(found.count, 1u);
  EXPECT_EQ(found.fds[0], 6);
  one->moves = true;
  EXPECT_TRUE(routes.prepare_wait(Routes::Awaited::used).some_moves);
}

TEST(MemoryPool, IsZeroAlignedAndFreedOnce) {
  Routes routes;
  MemoryPool memory(routes);
  const Result<void*> got = memory.allocate(1000);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*got) % 64, 0u);
  for (size_t i = 0; i < 1000; i++) ASSERT_EQ(static_cast<const char*>(*got)[i], 0);
  EXPECT_TRUE(memory.free(*got));
  EXPECT_FALSE(memory.free(*got));
}

TEST(MemoryPool, ScratchServesAgainUnlessItIsFarTooLarge) {
  Routes routes;
  MemoryPool memory(routes);
  const auto first = memory.take_scratch(4096);
  ASSERT_TRUE(first.ok());
  memory.give_back_scratch(*first);
  const auto small = memory.take_scratch(1000);
  ASSERT_TRUE(small.ok());
  EXPECT_NE(small->memory, first->memory);
  const auto again = memory.take_scratch(1024);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->memory, first->memory);
  EXPECT_EQ(again->bytes, 4096u);
  memory.give_back_scratch(*small);
  memory.give_back_scratch(*again);
  memory.give_back_scratch({});
  memory.free_scratch();
  EXPECT_FALSE(memory.free(first->memory));
}

// Blocks keep their size, whatever they served for.
TEST(MemoryPool, ScratchDoesNotGrowWithTheNumberOfCalls) {
  constexpr int kCalls = 10'000;
  constexpr size_t kMostBlocks = 30;  // about ten are larger than all before
  Routes routes;
  MemoryPool memory(routes);
  std::mt19937 random(1);
  std::uniform_int_distribution<size_t> size(1024, 4095);
  std::set<std::byte*> blocks;
  for (int i = 0; i < kCalls; i++) {
    const auto taken = memory.take_scratch(size(random));
    ASSERT_TRUE(taken.ok());
    blocks.insert(taken->memory);
    memory.give_back_scratch(*taken);
  }
  EXPECT_LE(blocks.size(), kMostBlocks);
  memory.free_scratch();
}

TEST(MemoryPool, RegisteredRangesDoNotOverlapAndCount) {
  Routes routes;
  MemoryPool memory(routes);
  std::array<std::byte, 100> data{};
  EXPECT_TRUE(memory.register_range(&data[10], 20).ok());
  EXPECT_TRUE(memory.register_range(&data[10], 20).ok());
  for (const auto& [begin, bytes] : std::initializer_list<std::pair<size_t, size_t>>{
           {10, 19}, {10, 21}, {29, 1}, {0, 11}, {0, 100}, {15, 1}})
    EXPECT_EQ(memory.register_range(&data[begin], bytes).kind(), SENNIT_INVALID_ARGUMENT)
        << begin << " " << bytes;
  EXPECT_TRUE(memory.register_range(&data[30], 10).ok());
  EXPECT_TRUE(memory.register_range(&data[0], 10).ok());
  EXPECT_TRUE(memory.deregister_range(&data[10]).ok());
  EXPECT_TRUE(memory.deregister_range(&data[10]).ok());
  EXPECT_FALSE(memory.deregister_range(&data[10]).ok());
  EXPECT_FALSE(memory.register_range(data.data(), SIZE_MAX).ok());
}

TEST(DataPlaces, FindsPartsOfSlotsThatArePackedInOrder) {
  ProgramBuilder builder;
  const std::vector<Range> held = {{0, 0, kUnits / 2}, {2, 0, kUnits}};
  const std::vector<Range> part = {{2, kUnits / 2, kUnits}, {0, 0, kUnits / 4}};
  const Operand slot = builder.scratch(held);
  builder.recv(1, slot, 0);
  const Operand wanted = builder.part(slot, part);
  builder.send(1, wanted, 0);
  const Program program = builder.finish();
  DataPlaces places(program, 4);
  places.buffers.wire_layout.count = 16;
  SlotPlaces slots;
  slots.base.resize(1);
  slots.offset.resize(1);
  ASSERT_EQ(places.lay_out(slots), 128u);  // 8 and 16 elements of 4 bytes, aligned
  std::array<std::byte, 128> arena;
  slots.arena = arena.data();
  places.use_arena(slots);
  std::vector<Segment> segments;
  EXPECT_EQ(places.locate(slots, wanted, &segments), 48u);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].data - arena.data(), 64);
  EXPECT_EQ(segments[0].bytes, 32u);
  EXPECT_EQ(segments[1].data - arena.data(), 0);
  EXPECT_EQ(segments[1].bytes, 16u);
}

TEST(DataPlaces, JoinsWhatTouches) {
  ProgramBuilder builder;
  const std::vector<Range> all = {{0, 0, kUnits}, {1, 0, kUnits}};
  const Operand input = builder.input(all);
  builder.send(1, input, 0);
  const Program program = builder.finish();
  DataPlaces places(program, 4);
  std::array<std::byte, 64> data;
  const std::array<int32_t, 2> order = {0, 1}, swapped = {1, 0};
  places.buffers.input = data.data();
  places.buffers.input_layout.count = 8;
  places.buffers.input_layout.places = order.data();
  std::vector<Segment> segments;
  EXPECT_EQ(places.locate({}, input, &segments), 64u);
  EXPECT_EQ(segments.size(), 1u);
  segments.clear();
  places.buffers.input_layout.places = swapped.data();
  EXPECT_EQ(places.locate({}, input, &segments), 64u);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].data, &data[32]);
}

}  // namespace
}  // namespace sennit
