// short_way_test.cpp: the short way of small blocking calls (engine/short_way.hpp), over a
// transport that is a table of messages: when it can be taken, what it does, and where it is left.
//
// ctest not-under-tsan: it has one thread
#include "engine/short_way.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "base/clock.hpp"
#include "engine/engine.hpp"
#include "tests/engine/idle_transport.hpp"

namespace sennit {
namespace {

constexpr size_t kMost = 64;  // what the transport takes at once
constexpr int kPeer = 1;

// Keeps what is sent, and hands out what was put there.
class Table final : public sennit_test::IdleTransport {
 public:
  std::string_view name() const override { return "table"; }
  Reach reach(int, std::span<const std::byte>) override { return Reach::same_host; }
  size_t now_bytes() const override { return kMost; }
  Now send_now(const SmallMessage& message) override {
    if (full) return Now::never;
    EXPECT_EQ(message.bytes, sizeof(int32_t));
    std::memcpy(&sent[message.key.seq], message.data, sizeof(int32_t));
    return Now::done;
  }
  Now recv_now(const SmallMessage& message) override {
    const auto found = coming.find(message.key.seq);
    if (found == coming.end()) return large_comes ? Now::never : Now::later;
    std::memcpy(message.data, &found->second, sizeof(int32_t));
    return Now::done;
  }

  std::map<uint32_t, int32_t> sent, coming;  // by call
  bool full = false;
  bool large_comes = false;
};

// Two ranks that swap a number and add up: a send, a receive into scratch, and a reduction.
class ShortWays : public testing::Test {
 protected:
  ShortWays() {
    auto table = std::make_unique<Table>();
    table_ = table.get();
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::move(table));
    engine_.set_transports(std::move(transports));
    engine_.set_addresses({{{std::byte{1}}}, {{std::byte{1}}}});
  }

  static std::shared_ptr<Prepared> sum(uint64_t count) {
    const std::vector<Range> all = {{0, 0, kUnits}};
    ProgramBuilder builder;
    const Operand input = builder.input(all);
    const Operand slot = builder.scratch(all);
    builder.send(kPeer, input, 0);
    builder.recv(kPeer, slot, 0);
    const std::array<Operand, 2> both = {input, slot};
    builder.reduce(builder.output(all), both, true);
    Request request;
    request.collective = Collective::all_reduce;
    request.count = count;
    request.type = DataType::int32;
    return prepare(request, {}, builder.finish());
  }
  // Null where the short way cannot be taken.
  std::unique_ptr<ShortWay> compile(uint64_t count) {
    const MutexLock lock(engine_.mutex());
    prepared_ = sum(count);
    places_ = std::make_unique<DataPlaces>(prepared_->program, sizeof(int32_t));
    Buffers& buffers = places_->buffers;
    buffers.input = reinterpret_cast<const std::byte*>(&input_);
    buffers.output = reinterpret_cast<std::byte*>(&output_);
    buffers.input_layout.count = buffers.output_layout.count = buffers.wire_layout.count = count;
    slots_.chunk = {0, 1};
    slots_.base.resize(1);
    slots_.offset.resize(1);
    arena_.resize(places_->lay_out(slots_));
    slots_.arena = arena_.data();
    places_->use_arena(slots_);
    return ShortWay::compile(engine_, kComm, world_, *prepared_, *places_, slots_, true);
  }
  bool poll(ShortWay& way) {
    const MutexLock lock(engine_.mutex());
    return way.poll();
  }
  void start(ShortWay& way, uint32_t seq) {
    const MutexLock lock(engine_.mutex());
    way.start(seq, now_ns());
  }

  static constexpr uint32_t kComm = 3;
  static constexpr uint64_t kStallNs = 1'000'000'000;
  Engine engine_{false, 1 << 20, kStallNs, {}};
  Table* table_ = nullptr;
  const std::vector<int> world_ = {0, kPeer};
  std::shared_ptr<Prepared> prepared_;
  std::unique_ptr<DataPlaces> places_;
  SlotPlaces slots_;
  std::vector<std::byte> arena_;
  int32_t input_ = 0, output_ = 0;
};

TEST_F(ShortWays, SendsAtOnceAndReducesWhenTheMessageComes) {
  const auto way = compile(1);
  ASSERT_NE(way, nullptr);
  for (int call = 1; call < 4; call++) {
    const auto seq = static_cast<uint32_t>(call);
    input_ = 10 * call;
    start(*way, seq);
    EXPECT_EQ(table_->sent.at(seq), input_);
    EXPECT_FALSE(way->done());
    EXPECT_TRUE(poll(*way)) << "the peer may still be quick";
    EXPECT_FALSE(way->done());
    table_->coming[seq] = call;
    EXPECT_TRUE(poll(*way));
    EXPECT_TRUE(way->done());
    EXPECT_EQ(output_, 11 * call);
  }
}

TEST_F(ShortWays, BuffersMayBeOthersInEveryCall) {
  const auto way = compile(1);
  ASSERT_NE(way, nullptr);
  int32_t other_input = 5, other_output = 0;
  places_->buffers.input = reinterpret_cast<const std::byte*>(&other_input);
  places_->buffers.output = reinterpret_cast<std::byte*>(&other_output);
  table_->coming[9] = 6;
  start(*way, 9);
  EXPECT_TRUE(poll(*way));
  EXPECT_EQ(other_output, 11);
  EXPECT_EQ(output_, 0);
}

TEST_F(ShortWays, IsNotTakenWhereAMessageIsTooLarge) {
  EXPECT_NE(compile(1), nullptr);
  EXPECT_EQ(compile(kMost / sizeof(int32_t) + 1), nullptr);
}

// What is left goes the general way: which steps are ready, and for how many the others wait.
TEST_F(ShortWays, IsHandedOverWhereTheTransportDeclines) {
  const auto way = compile(1);
  ASSERT_NE(way, nullptr);
  const auto step_of = [&](StepKind kind) {
    uint32_t step = 0;
    while (prepared_->program.steps[step].kind != kind) step++;
    return step;
  };
  table_->full = true;
  start(*way, 1);
  EXPECT_FALSE(poll(*way));
  EXPECT_EQ(way->remaining(), 3u);
  EXPECT_EQ(way->deps()[step_of(StepKind::reduce)], 2u) << "the send, in place, and the receive";
  EXPECT_EQ(way->take_ready(),
            (std::vector<uint32_t>{step_of(StepKind::send), step_of(StepKind::recv)}));

  table_->full = false;
  table_->large_comes = true;
  start(*way, 2);
  EXPECT_FALSE(poll(*way));
  EXPECT_EQ(way->remaining(), 2u);
  EXPECT_EQ(way->take_ready(), std::vector<uint32_t>{step_of(StepKind::recv)});
}

}  // namespace
}  // namespace sennit
