// shm_parts_test.cpp: the parts of the shm transport, each tried without the others: ids, lists,
// peers and their rings, small messages, offers and transfers. Slots are handed from one end to the
// other by the test itself.
// ctest not-under-tsan: it has one thread
#include <cstring>

#include "tests/transports/shm/shm_world.hpp"
#include "transports/request_list.hpp"
#include "transports/shm/id_table.hpp"
#include "transports/shm/offers.hpp"
#include "transports/shm/peers.hpp"
#include "transports/shm/small.hpp"
#include "transports/shm/transfers.hpp"

namespace sennit::shm {
namespace {

TEST(IdTable, GivesNoIdTwice) {
  IdTable<int> table;
  const uint64_t first = table.insert(1);
  EXPECT_NE(first, 0u);
  ASSERT_NE(table.find(first), nullptr);
  table.erase(first);
  EXPECT_EQ(table.find(first), nullptr);
  const uint64_t second = table.insert(2);  // in the same place
  EXPECT_NE(second, first);
  table.erase(first);  // of none
  ASSERT_NE(table.find(second), nullptr);
  EXPECT_EQ(*table.find(second), 2);
  EXPECT_EQ(table.find(0), nullptr);
}

TEST(RequestList, TakesOutWhatIsAskedFor) {
  SendRequest requests[4];
  RequestList<SendRequest> list;
  for (int i = 0; i < 4; i++) {
    requests[i].peer = i;
    list.push_back(requests[i]);
  }
  list.remove(requests[1]);
  list.push_front(requests[1]);
  std::vector<int> taken;
  list.take_if([](const SendRequest& request) { return request.peer % 2 == 1; },
               [&](SendRequest& request) { taken.push_back(request.peer); });
  EXPECT_EQ(taken, (std::vector<int>{1, 3}));
  EXPECT_EQ(list.front(), &requests[0]);
  EXPECT_EQ(list.after(&requests[0]), &requests[2]);
  EXPECT_EQ(list.after(&requests[2]), nullptr);
}

std::unique_ptr<OwnSegment> make_segment(const TransportContext& context) {
  Result<std::unique_ptr<OwnSegment>> made = OwnSegment::create(context);
  EXPECT_TRUE(made.ok()) << made.status().text();
  return std::move(*made);
}

// The parts of one of two ranks.
struct End {
  End(int rank, uint64_t job)
      : setting(context(rank, 2, job)), peers(setting, make_segment(setting), returns) {}
  void meet(const End& other) {
    const auto* address = reinterpret_cast<const std::byte*>(&other.peers.own().address());
    const Result<LocalPeer*> opened =
        peers.open(other.setting.rank, {address, sizeof(SegmentAddress)});
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    peer = *opened;
    ASSERT_NE(peer, nullptr) << peers.obstacle();
    ASSERT_TRUE(peers.claim_ring(*peer).ok());
  }
  // What lies in the other's ring, each slot given to `take`.
  template <typename Take>
  int take_all(Take take) {
    if (!peer->in) peers.find_rings();
    int count = 0;
    for (; const Slot* slot = peer->in.peek(); count++) {
      take(*slot);
      peer->in.pop(*slot);
    }
    return count;
  }
  Completions come_back() {
    Completions completions;
    returns.hand_over(completions);
    return completions;
  }

  const TransportContext setting;
  Returns returns;
  Clock clock;
  Peers peers;
  LocalPeer* peer = nullptr;  // the other
  Arenas arenas;
  Registrations registered{arenas};
  Matcher matcher;
  SmallMessages small{peers, matcher, returns, clock};
  Offers offers{peers, returns, clock, arenas, registered};
  Transfers transfers{peers, matcher, returns, clock};
};

class Parts : public testing::Test {
 protected:
  void SetUp() override {
    sender_.meet(receiver_);
    receiver_.meet(sender_);
    from_.fill(7);
    set(send_, 1, kKey, from_);
    set(recv_, 0, kKey, to_);
  }
  void offer() {
    ASSERT_TRUE(sender_.offers.send(*sender_.peer, send_));
    ASSERT_EQ(receiver_.matcher.post(recv_), nullptr);
    receiver_.peer->posted++;
    EXPECT_EQ(receiver_.take_all([&](const Slot& slot) {
      EXPECT_EQ(slot.kind, SlotKind::offer);
      receiver_.transfers.take_offer(*receiver_.peer, slot);
    }),
              1);
  }

  // The sender takes its memory back, and uses it again.
  void take_back() {
    ASSERT_TRUE(sender_.peers.cancel(kKey.comm, over_));
    sender_.offers.hand_back(*sender_.peer, kAll, over_);
    EXPECT_EQ(sender_.come_back().sends.size(), 1u);
    from_.fill(8);
  }
  // More communicators than are remembered.
  void give_up_others() {
    for (uint32_t i = 0; i < 2 * SegmentHeader::kCancelledRemembered; i++)
      ASSERT_TRUE(sender_.peers.cancel(100 + i, over_));
  }
  void fetch_all() {
    while (receiver_.transfers.fetch_some()) {
    }
  }
  // What the receiver asks for comes through the ring, as far as the sender still has it.
  void stream() {
    sender_.take_all([&](const Slot& slot) {
      EXPECT_EQ(slot.kind, SlotKind::want);
      sender_.offers.take_want(*sender_.peer, slot);
    });
    for (int i = 0; i < 100 && sender_.offers.stream(*sender_.peer); i++)
      receiver_.take_all([&](const Slot& slot) {
        EXPECT_EQ(slot.kind, SlotKind::fragment);
        receiver_.transfers.take_fragment(*receiver_.peer, slot);
      });
  }
  void expect_that_it_waits_for_its_own_cancel() {
    EXPECT_TRUE(receiver_.come_back().receives.empty());
    receiver_.transfers.hand_back(*receiver_.peer, kAll, over_);
    EXPECT_EQ(receiver_.come_back().receives.size(), 1u);
    EXPECT_EQ(recv_.status.text(), "over");
  }

  static constexpr auto kAll = [](const MessageRequest&) { return true; };
  const Status over_{SENNIT_ABORTED, "over"};
  static constexpr Key kKey = {1, 2, 3, 4};
  const uint64_t job_ = random_job();
  End sender_{0, job_}, receiver_{1, job_};
  Buffer from_{300'000}, to_{300'000};
  SendRequest send_;
  RecvRequest recv_;
};

TEST_F(Parts, PeersKnowWhoIsNot) {
  EXPECT_EQ(*sender_.peers.open(1, {}), sender_.peer) << "opened before";
  EXPECT_EQ(*sender_.peers.open(7, {}), nullptr);
  EXPECT_EQ(sender_.peers.find(0), nullptr) << "itself";
  EXPECT_EQ(sender_.peers.refused(*sender_.peer, 5), nullptr);
  EXPECT_TRUE(sender_.peers.cancel(5, {SENNIT_ABORTED, "over"}));
  EXPECT_FALSE(sender_.peers.cancel(5, {SENNIT_ABORTED, "again"}));
  EXPECT_EQ(sender_.peers.refused(*sender_.peer, 5)->text(), "over");
  sender_.peers.report(*sender_.peer, {SENNIT_PEER_FAILED, "gone"});
  sender_.peers.report(*sender_.peer, {SENNIT_PEER_FAILED, "gone"});
  EXPECT_EQ(sender_.come_back().events.size(), 1u) << "said once";
}

TEST_F(Parts, ReceiverReadsAndAnswers) {
  offer();
  fetch_all();
  EXPECT_EQ(receiver_.come_back().receives.size(), 1u);
  EXPECT_TRUE(recv_.status.ok() && to_.holds(7));
  EXPECT_EQ(receiver_.transfers.read_bytes() + receiver_.transfers.mapped_bytes(), 300'000u);
  EXPECT_TRUE(sender_.offers.reads({from_.segment.data + 100, 1}));
  sender_.take_all([&](const Slot& slot) {
    EXPECT_EQ(slot.kind, SlotKind::done);
    sender_.offers.take_done(*sender_.peer, slot);
  });
  EXPECT_FALSE(sender_.offers.reads({from_.segment.data + 100, 1}));
  EXPECT_EQ(sender_.come_back().sends.size(), 1u);
  EXPECT_TRUE(send_.status.ok());
}

TEST_F(Parts, WhatCannotBeReadIsStreamed) {
  receiver_.transfers.forbid_direct_reads();
  offer();
  EXPECT_FALSE(receiver_.transfers.fetch_some());
  stream();
  EXPECT_EQ(receiver_.come_back().receives.size(), 1u);
  EXPECT_TRUE(to_.holds(7));
  EXPECT_EQ(sender_.come_back().sends.size(), 1u) << "no answer is needed";
  EXPECT_EQ(sender_.offers.streamed_bytes(), 300'000u);
}

TEST_F(Parts, WhatIsTakenBackIsNotTrusted) {
  offer();
  take_back();
  fetch_all();
  expect_that_it_waits_for_its_own_cancel();
}

TEST_F(Parts, NorWhereThatIsForgotten) {
  offer();
  take_back();
  give_up_others();
  fetch_all();
  stream();
  expect_that_it_waits_for_its_own_cancel();
}

TEST_F(Parts, NorWhereItWasOfferedBeforeItWasAskedFor) {
  ASSERT_TRUE(sender_.offers.send(*sender_.peer, send_));
  receiver_.take_all(
      [&](const Slot& slot) { receiver_.transfers.take_offer(*receiver_.peer, slot); });
  take_back();
  give_up_others();
  Arrival* const early = receiver_.matcher.post(recv_);
  ASSERT_NE(early, nullptr);
  receiver_.transfers.take_early(*receiver_.peer, recv_, *early);
  receiver_.matcher.recycle(early);
  fetch_all();
  stream();
  expect_that_it_waits_for_its_own_cancel();
}

TEST_F(Parts, WhereNobodyCanTellItComesOnceMore) {
  offer();
  give_up_others();
  fetch_all();
  EXPECT_TRUE(receiver_.come_back().receives.empty());
  to_.fill(9);
  stream();
  EXPECT_EQ(receiver_.come_back().receives.size(), 1u);
  EXPECT_TRUE(recv_.status.ok() && to_.holds(7));
  EXPECT_EQ(sender_.come_back().sends.size(), 1u);
}

TEST_F(Parts, TakenBackIsToldOfTheLast) {
  OwnSegment& own = sender_.peers.own();
  constexpr uint32_t kLast = SegmentHeader::kCancelledRemembered - 1;
  own.note_cancelled(5);
  const uint16_t since = own.cancelled_count();
  EXPECT_EQ(taken_back(own.header(), 5, since), TakenBack::no) << "before";
  for (uint32_t i = 0; i < kLast; i++) own.note_cancelled(100 + i);
  EXPECT_EQ(taken_back(own.header(), 5, since), TakenBack::no);
  EXPECT_EQ(taken_back(own.header(), 100, since), TakenBack::yes);
  EXPECT_EQ(taken_back(own.header(), 99 + kLast, since), TakenBack::yes);
  own.note_cancelled(7);
  EXPECT_EQ(taken_back(own.header(), 5, since), TakenBack::unknown);
  EXPECT_EQ(taken_back(own.header(), 7, own.cancelled_count()), TakenBack::no);
}

// Nobody asks for them: the window fills, and the sender is told to offer only, until they are
// taken.
TEST_F(Parts, EarlyMessagesAreBounded) {
  constexpr size_t kBytes = 4096;
  uint32_t sent = 0;
  for (; sent < 1000 && SmallMessages::takes(*sender_.peer, 1, kBytes); sent++) {
    ASSERT_EQ(sender_.small.send_now({1, {1, sent, 0, 0}, 1, from_.segment.data, kBytes}),
              Now::done);
    receiver_.take_all([&](const Slot& slot) { receiver_.small.take(*receiver_.peer, slot); });
  }
  EXPECT_LT(sent, 30u);
  EXPECT_EQ(receiver_.small.came_early(), sent);
  EXPECT_TRUE(SmallMessages::takes(*sender_.peer, 2, kBytes)) << "another communicator";
  for (uint32_t i = 0; i < sent; i++)
    ASSERT_EQ(receiver_.small.recv_now({0, {1, i, 0, 0}, 1, to_.segment.data, kBytes},
                                       [](LocalPeer&, const Slot&) {}),
              Now::done);
  EXPECT_EQ(std::memcmp(from_.segment.data, to_.segment.data, kBytes), 0);
  EXPECT_TRUE(SmallMessages::takes(*sender_.peer, 1, kBytes));
  EXPECT_TRUE(receiver_.peer->comms.empty()) << "nothing is kept";
}

}  // namespace
}  // namespace sennit::shm
