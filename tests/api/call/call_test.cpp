// call_test.cpp: the parts that a call passes through, each alone: checks, requests, messages to
// oneself, the cache of plans, the places of small calls.
// ctest not-under-tsan: it has one thread
#include "api/call/call.hpp"

#include <gtest/gtest.h>

#include <array>

#include "api/call/call_trials.hpp"
#include "api/call/plan_cache.hpp"
#include "api/call/planning.hpp"
#include "api/call/self_messages.hpp"
#include "api/call/small_calls.hpp"

namespace sennit {
namespace {

constexpr int kRanks = 4;

Call call_of(Collective collective, const void* send, void* recv, uint64_t count) {
  Call call;
  call.collective = collective;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.type = DataType::int32;
  return call;
}

Call message(void* data, uint64_t count, bool receiving) {
  Call call =
      call_of(Collective::send_recv, receiving ? nullptr : data, receiving ? data : nullptr, count);
  call.receiving = receiving;
  return call;
}

TEST(Call, ChecksWhatThisRankUses) {
  const CustomOps none;
  std::array<int32_t, 64> data{};
  Call call = call_of(Collective::broadcast, nullptr, data.data(), 1);
  EXPECT_TRUE(check_call(call, none, 1, kRanks).ok());
  EXPECT_EQ(check_call(call, none, 0, kRanks).text(), "broadcast: the send buffer is NULL");
  call.root = kRanks;
  EXPECT_EQ(check_call(call, none, 0, kRanks).text(), "broadcast: root 4: expected 0 <= it < 4");
  call = message(nullptr, 1, true);
  EXPECT_EQ(check_call(call, none, 0, kRanks).text(), "recv: the receive buffer is NULL");
  call = call_of(Collective::all_reduce, data.data(), data.data(), uint64_t{1} << 60);
  EXPECT_EQ(check_call(call, none, 0, kRanks).kind(), SENNIT_INVALID_ARGUMENT);
  call = call_of(Collective::all_gather, data.data(), data.data(), 0);
  call.vector_variant = true;
  EXPECT_EQ(check_call(call, none, 0, kRanks).text(), "all_gather_v: counts is NULL");
}

// What of a v-variant's arrays makes a rank need a buffer: see VectorCall.
constexpr std::array<size_t, kRanks> kAll = {1, 2, 0, 3}, kNone = {};
constexpr std::array<size_t, kRanks> kOfRank1 = {0, 2, 0, 0}, kOfOthers = {1, 0, 0, 3};

// On rank 1; of rooted ones the root is rank 1 or 0.
struct VectorCall {
  Collective collective;
  int root;
  const std::array<size_t, kRanks>& counts;
  const std::array<size_t, kRanks>* recv_counts;  // all_to_all_v
  bool reads, writes;                             // whether it needs that buffer
};
constexpr VectorCall kVectorCalls[] = {
    {Collective::all_gather, 0, kAll, nullptr, true, true},
    {Collective::all_gather, 0, kOfOthers, nullptr, false, true},
    {Collective::all_gather, 0, kNone, nullptr, false, false},
    {Collective::reduce_scatter, 0, kAll, nullptr, true, true},
    {Collective::reduce_scatter, 0, kOfOthers, nullptr, true, false},
    {Collective::reduce_scatter, 0, kNone, nullptr, false, false},
    {Collective::gather, 1, kAll, nullptr, true, true},
    {Collective::gather, 1, kOfOthers, nullptr, false, true},
    {Collective::gather, 1, kNone, nullptr, false, false},
    {Collective::gather, 0, kOfRank1, nullptr, true, false},
    {Collective::gather, 0, kNone, nullptr, false, false},
    {Collective::scatter, 1, kAll, nullptr, true, true},
    {Collective::scatter, 1, kOfOthers, nullptr, true, false},
    {Collective::scatter, 1, kNone, nullptr, false, false},
    {Collective::scatter, 0, kOfRank1, nullptr, false, true},
    {Collective::scatter, 0, kNone, nullptr, false, false},
    {Collective::all_to_all, 0, kAll, &kOfRank1, true, true},
    {Collective::all_to_all, 0, kOfOthers, &kNone, true, false},
    {Collective::all_to_all, 0, kNone, &kOfOthers, false, true},
    {Collective::all_to_all, 0, kNone, &kNone, false, false},
};

TEST(Call, VectorVariantsNeedTheBuffersThatTheirCountsUse) {
  std::array<int32_t, 6> out{}, in{};
  for (const VectorCall& row : kVectorCalls) {
    Call call = call_of(row.collective, out.data(), in.data(), 0);
    call.vector_variant = true;
    call.root = row.root;
    call.counts = row.counts.data();
    if (row.recv_counts) call.recv_counts = row.recv_counts->data();
    const std::string called = std::string(name(row.collective)) + "_v: ";
    SCOPED_TRACE(called + std::to_string(&row - kVectorCalls));
    const auto checked = [&] { return check_call(call, CustomOps{}, 1, kRanks).text(); };
    EXPECT_EQ(checked(), "");
    call.send = nullptr;
    EXPECT_EQ(checked(), row.reads ? called + "the send buffer is NULL" : "");
    call.send = out.data();
    call.recv = nullptr;
    EXPECT_EQ(checked(), row.writes ? called + "the receive buffer is NULL" : "");
  }
}

TEST(Call, AnExchangeInPlaceHasTheSameBlocksOnBothSides) {
  const std::array<size_t, kRanks> twice = {2, 4, 0, 6}, packed = {0, 1, 3, 3};
  const std::array<size_t, kRanks> apart = {0, 8, 99, 16};
  std::array<int32_t, 64> data{};
  Call call = call_of(Collective::all_to_all, data.data(), data.data(), 0);
  call.vector_variant = true;
  call.counts = call.recv_counts = kAll.data();
  const auto taken = [&] { return check_call(call, CustomOps{}, 2, kRanks).ok(); };
  EXPECT_TRUE(taken());
  call.displacements = packed.data();
  EXPECT_TRUE(taken());
  call.recv_displacements = apart.data();
  EXPECT_FALSE(taken());
  call.displacements = apart.data();
  EXPECT_TRUE(taken());
  call.recv_counts = twice.data();
  EXPECT_FALSE(taken());
  call.recv = &data[32];
  EXPECT_TRUE(taken());
  call.recv = data.data();
  call.counts = kNone.data();  // it only receives
  EXPECT_TRUE(taken());
  const std::string own = check_call(call, CustomOps{}, 1, kRanks).text();
  EXPECT_NE(own.find("rank 1 sends 0 elements to itself"), std::string::npos) << own;
}

// Of one element, by that operation.
Call reduced_by(int op, int32_t* data) {
  Call call = call_of(Collective::all_reduce, data, data, 1);
  call.op = op;
  return call;
}

TEST(Call, CustomOpsAreOfOneTypeAndNeverTheSameTwice) {
  CustomOps ops;
  const int32_t three = 3;
  const int first = ops.create(&three, DataType::int32);
  const int second = ops.create(&three, DataType::int32);
  EXPECT_NE(first, second);
  int32_t data = 0;
  Call call = reduced_by(first, &data);
  EXPECT_TRUE(check_call(call, ops, 0, kRanks).ok());
  call.type = DataType::float32;
  EXPECT_FALSE(check_call(call, ops, 0, kRanks).ok());
  EXPECT_TRUE(ops.destroy(first).ok());
  EXPECT_FALSE(ops.destroy(first).ok());
  call.type = DataType::int32;
  EXPECT_FALSE(check_call(call, ops, 0, kRanks).ok());
  EXPECT_NE(ops.create(&three, DataType::int32), first);
}

TEST(Call, ACustomOpOfAnotherCommunicatorIsNone) {
  CustomOps ops, others;
  const int32_t three = 3;
  const int own = ops.create(&three, DataType::int32);
  const int foreign = others.create(&three, DataType::int32);
  EXPECT_GE(own, SENNIT_OP_CUSTOM_BASE);
  int32_t data = 0;
  const std::string refused = check_call(reduced_by(foreign, &data), ops, 0, kRanks).text();
  EXPECT_NE(refused.find("was not created on this communicator"), std::string::npos) << refused;
  EXPECT_FALSE(ops.destroy(foreign).ok());
  EXPECT_TRUE(check_call(reduced_by(own, &data), ops, 0, kRanks).ok());
}

TEST(Call, IsInPlaceWhereItsOwnBlockIs) {
  std::array<int32_t, 2 * kRanks> data{};
  EXPECT_TRUE(is_in_place(call_of(Collective::all_reduce, data.data(), data.data(), 2), 1));
  EXPECT_TRUE(is_in_place(call_of(Collective::all_gather, &data[2], data.data(), 2), 1));
  EXPECT_FALSE(is_in_place(call_of(Collective::all_gather, &data[2], data.data(), 2), 2));
  EXPECT_TRUE(is_in_place(call_of(Collective::reduce_scatter, data.data(), &data[4], 2), 2));
  Call gather = call_of(Collective::gather, &data[2], data.data(), 2);
  EXPECT_FALSE(is_in_place(gather, 1));  // not the root
  gather.root = 1;
  EXPECT_TRUE(is_in_place(gather, 1));
}

// Blocks of a v-variant come in fabric order; displacements that are not given follow the counts.
TEST(Call, LaysOutBlocksInFabricOrder) {
  TierTree tree = TierTree::flat(3);
  tree.rank_of_position = {2, 0, 1};
  tree.position_of_rank = {1, 2, 0};
  const std::array<size_t, 3> counts = {1, 2, 4};
  std::array<int32_t, 7> data{};
  Call call = call_of(Collective::all_gather, data.data(), data.data(), 0);
  call.vector_variant = true;
  call.counts = counts.data();
  const Request request = request_of(call, tree, 0);
  EXPECT_EQ(request.counts, (std::vector<uint64_t>{4, 1, 2}));
  EXPECT_TRUE(request.in_place);
  EXPECT_EQ(describe_request(request, tree), "all_gather_v counts 4..2 int32");
  Buffers buffers;
  std::vector<std::byte> scaled;
  fill_buffers(call, request, tree, 0, CustomOps{}, &scaled, &buffers);
  const std::array<uint64_t, 3> offsets = {3, 0, 1};
  for (uint64_t block = 0; block < 3; block++) {
    EXPECT_EQ(buffers.output_layout.offset(block), offsets[block]);
    EXPECT_EQ(buffers.input_layout.offset(block), 0u);
  }
  EXPECT_TRUE(scaled.empty());
}

// Of an exchange in place the slots are the rank's own row of the blocks from everyone to everyone.
TEST(Call, SlotsOfAnExchangeHaveTheSizesOfWhatGoesOut) {
  TierTree tree = TierTree::flat(3);
  tree.rank_of_position = {2, 0, 1};
  tree.position_of_rank = {1, 2, 0};
  const std::array<size_t, 3> counts = {1, 2, 4};
  std::array<int32_t, 7> data{};
  Call call = call_of(Collective::all_to_all, data.data(), data.data(), 0);
  call.vector_variant = true;
  call.counts = call.recv_counts = counts.data();
  constexpr int kRank = 1;
  const Request request = request_of(call, tree, kRank);
  EXPECT_TRUE(request.in_place);
  Buffers buffers;
  std::vector<std::byte> scaled;
  fill_buffers(call, request, tree, kRank, CustomOps{}, &scaled, &buffers);
  const uint64_t row = uint64_t{2} * 3;  // of the rank's position
  EXPECT_EQ(buffers.wire_layout.elements(row), 4u);
  EXPECT_EQ(buffers.wire_layout.elements(row + 1), 1u);
  EXPECT_EQ(buffers.wire_layout.elements(row + 2), 2u);
}

// Of no device's memory.
Status no_copy(void*, const void*, size_t, const SelfMessages::Copied&) {
  return {SENNIT_INTERNAL, "it is the host's"};
}

TEST(SelfMessages, MeetInTheirOrder) {
  SelfMessages messages;
  std::array<int32_t, 2> sent = {7, 8};
  std::array<int32_t, 2> received{};
  const auto matched = [] { return std::make_shared<SelfMessages::Meeting>(false); };
  const SelfMessages::Matched first = matched(), second = matched(), third = matched();
  EXPECT_TRUE(messages.start(message(&sent[0], 1, false), first, 1, 0, no_copy).ok());
  EXPECT_TRUE(messages.start(message(&sent[1], 1, false), second, 1, 0, no_copy).ok());
  EXPECT_FALSE(first->met || first->copied);
  EXPECT_TRUE(messages.start(message(&received[0], 1, true), third, 1, 0, no_copy).ok());
  EXPECT_TRUE(first->met && first->copied);
  EXPECT_TRUE(third->met && third->copied);
  EXPECT_FALSE(second->met || second->copied);
  EXPECT_EQ(received[0], 7);
  EXPECT_EQ(messages.start(message(received.data(), 2, true), matched(), 1, 0, no_copy).kind(),
            SENNIT_MISMATCH);
}

// The copy of memory of a device is made later; who has no handle does not ask for it.
TEST(SelfMessages, AreCopiedWhenTheDeviceHasCopied) {
  for (const bool has_handle : {true, false}) {
    SelfMessages messages;
    std::array<int32_t, 2> data{};
    Call send = message(&data[0], 1, false), receive = message(&data[1], 1, true);
    send.on_device = receive.on_device = true;
    const auto first = std::make_shared<SelfMessages::Meeting>(has_handle);
    const auto second = std::make_shared<SelfMessages::Meeting>(false);
    SelfMessages::Copied over;
    const auto copy = [&](void* to, const void* from, size_t bytes, SelfMessages::Copied copied) {
      EXPECT_TRUE(to == &data[1] && from == &data[0] && bytes == sizeof data[0]);
      over = std::move(copied);
      return Status();
    };
    EXPECT_TRUE(messages.start(send, first, 1, 0, copy).ok());
    EXPECT_TRUE(messages.start(receive, second, 1, 0, copy).ok());
    EXPECT_TRUE(first->met && second->met);
    EXPECT_EQ(first->copied || second->copied, !has_handle);
    ASSERT_EQ(over != nullptr, has_handle);
    if (over) over();
    EXPECT_TRUE(first->copied && second->copied);
  }
}

TEST(SelfMessages, AreWithdrawn) {
  SelfMessages messages;
  int32_t data = 0;
  const Call call = message(&data, 1, true);
  const auto withdrawn = std::make_shared<SelfMessages::Meeting>(false);
  EXPECT_TRUE(messages.start(call, withdrawn, 1, 0, no_copy).ok());
  EXPECT_EQ(messages.withdraw(call, withdrawn).kind(), SENNIT_INVALID_ARGUMENT);
  const auto sent = std::make_shared<SelfMessages::Meeting>(false);
  EXPECT_TRUE(messages.start(message(&data, 1, false), sent, 1, 0, no_copy).ok());
  EXPECT_FALSE(sent->met);  // nobody is there any more
  const auto received = std::make_shared<SelfMessages::Meeting>(false);
  EXPECT_TRUE(messages.start(call, received, 1, 0, no_copy).ok());
  EXPECT_TRUE(messages.withdraw(call, received).ok()) << "it has met its other half";
}

// An engine without transports, and a tree of ranks that are alike.
class Cached : public testing::Test {
 protected:
  std::shared_ptr<const Prepared> prepare(const Request& request) {
    Result<std::shared_ptr<const Prepared>> made =
        planning_.prepare(request, Planning::Memory::host, nullptr, 0);
    EXPECT_TRUE(made.ok()) << made.status().text();
    return *std::move(made);
  }
  Request request(uint64_t count) const {
    Request made;
    made.count = count;
    return made;
  }

  Engine engine_{false, 1 << 20, 1'000'000'000, {}};
  PlanOptions options_;
  Planning planning_{TierTree::flat(kRanks), options_, true, {}};
  const std::vector<int> world_ = {0, 1, 2, 3};
};

TEST_F(Cached, PlansComeBackWithTheirExecutions) {
  PlanCache cache(engine_);
  const PlanCache::Key key{request(8), PlanCache::Role::collective, PlanCache::kPlanned};
  EXPECT_EQ(cache.find(key), nullptr);
  const std::shared_ptr<const Prepared> prepared = prepare(key.request);
  cache.add(key, prepared);
  cache.give_back(std::make_unique<Execution>(engine_, 1, world_, prepared));
  ASSERT_NE(cache.find(key), nullptr);
  EXPECT_EQ(cache.find(key)->idle.size(), 1u);
  PlanCache::Key other = key;
  other.variant = 1;
  EXPECT_EQ(cache.find(other), nullptr);
  other = key;
  other.role = PlanCache::Role::send;
  EXPECT_EQ(cache.find(other), nullptr);
  cache.forget(Collective::broadcast);
  EXPECT_EQ(cache.size(), 1u);
  cache.forget(Collective::all_reduce);
  EXPECT_EQ(cache.size(), 0u);
  cache.give_back(std::make_unique<Execution>(engine_, 1, world_, prepared));  // its entry is gone
}

TEST_F(Cached, TheLeastRecentlyUsedGoesFirst) {
  PlanCache cache(engine_);
  const std::shared_ptr<const Prepared> prepared = prepare(request(1));
  const auto key = [&](uint64_t count) {
    return PlanCache::Key{request(count), PlanCache::Role::collective, PlanCache::kPlanned};
  };
  for (uint64_t count = 1; count <= PlanCache::kMostEntries; count++)
    cache.add(key(count), prepared);
  EXPECT_NE(cache.find(key(1)), nullptr);  // used again
  cache.add(key(PlanCache::kMostEntries + 1), prepared);
  EXPECT_EQ(cache.size(), PlanCache::kMostEntries);
  EXPECT_NE(cache.find(key(1)), nullptr);
  EXPECT_EQ(cache.find(key(2)), nullptr);
}

TEST_F(Cached, SmallCallsHaveAPlaceByWhatTheyAre) {
  SmallCalls calls(engine_);
  std::array<int32_t, 4> data{};
  const Call call = call_of(Collective::all_reduce, data.data(), data.data(), 2);
  SmallCalls::KeptCall* const place = calls.place(call);
  ASSERT_NE(place, nullptr);
  EXPECT_FALSE(place->holds(call, 0));
  place->call = call;
  place->in_place = true;
  EXPECT_TRUE(place->holds(call, 0));
  EXPECT_EQ(place->execution, nullptr);
  Call other = call;
  other.recv = &data[2];
  EXPECT_EQ(calls.place(other), place);
  EXPECT_FALSE(place->holds(other, 0));  // not in place
  other = call;
  other.count = 1 << 20;
  EXPECT_EQ(calls.place(other), nullptr);
  calls.forget(Collective::all_reduce);
  EXPECT_FALSE(calls.place(call)->holds(call, 0));
}

TEST_F(Cached, TrialsAreByRequestWithoutItsPlace) {
  CallTrials trials;
  Request asked = request(1 << 20);
  EXPECT_EQ(trials.find(asked), nullptr);
  const Result<Trials*> begun = trials.begin(asked, planning_);
  ASSERT_TRUE(begun.ok());
  ASSERT_NE(*begun, nullptr);
  asked.in_place = true;
  EXPECT_EQ(trials.find(asked), *begun);
  trials.restart();
  EXPECT_EQ(trials.find(asked), nullptr);
  Call call = call_of(Collective::all_reduce, &asked, &asked, 1);
  EXPECT_TRUE(CallTrials::takes_part(call, 2));
  EXPECT_FALSE(CallTrials::takes_part(call, 1));
  call.as_planned = true;
  EXPECT_FALSE(CallTrials::takes_part(call, 2));
}

}  // namespace
}  // namespace sennit
