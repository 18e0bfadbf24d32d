// messages_test.cpp: every message of the control plane comes back as it was, is refused when it is
// cut short, has bytes too many or names ranks that the job does not have, and goes over the wire
// as it always did.
//
// ctest not-under-tsan: it has one thread
#include "control/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "tests/support/seed.hpp"

namespace sennit::control {
namespace {

constexpr int kSize = 5;
const Status kWhy{SENNIT_PEER_FAILED, "rank 3 died"};
const Blob kBlob = {std::byte{7}, std::byte{0}, std::byte{9}};

Address address(uint16_t port) {
  Address result;
  result.ip[15] = 1;
  result.port = port;
  return result;
}

Table table() {
  Table result{77, {}};
  for (int rank = 0; rank < kSize; rank++)
    result.members.push_back(
        {address(static_cast<uint16_t>(rank)), 100 + rank, rank < 3 ? "one host" : "another"});
  return result;
}

StallReport report() {
  StallReport result;
  result.call.comm = 1;
  result.call.seq = 17;
  result.call.signature = 0x123456789abcdef;
  result.call.text = "all_reduce count 8";
  result.reporter = 2;
  result.mismatching_peer = 4;
  result.waited_ms = 500;
  result.stalled_ms = 400;
  result.expired_ms = 300;
  result.members = {1, 2, 4};
  result.makes_group = result.call.refused_before = true;
  return result;
}

// One of each, with something in every field.
auto one_of_each() {
  return std::tuple{
      Enlist{3, kSize, 77, {address(4242), 123, "a host"}, kWhy, {{78, 9, {std::byte{5}}}}},
      RootAt{RootAt::Where::elsewhere, kSize, {address(4242), address(4243)}},
      Shared{{78, 12, {9, 8, 7, 6, 0}}},
      Parent{77, 1, address(9)},
      Refuse{kWhy},
      Joined{},
      table(),
      StartFailed{kWhy},
      Attach{3, kSize, 77, true, {0, 1}, {2}, kWhy},
      Welcome{{0, 1}, {2}, kWhy},
      Heartbeat{},
      Goodbye{4},
      GoodbyeAck{4},
      Leaving{true, {0, 2, 4}},
      Probe{0, 3},
      ProbeAnswer{3},
      Suspicion{3, 9, 1, "reset"},
      Decision{{2, 3}, kWhy},
      LinkDown{0x100000002, 1, 2, kWhy},
      Gather{6, {{1, kBlob}, {3, {}}}},
      Gathered{6, {kBlob, {}, kBlob, {}, kBlob}},
      Broadcast{6, kBlob},
      CollectiveOff{6, kWhy},
      report(),
      Inquiry{8, 1, 17, 99, 2},
      InquiryAnswers{8,
                     {0, 2, 4},
                     {{3, InquiryAnswer::Where::past, 18, 98, "barrier", true},
                      {1, InquiryAnswer::Where::absent, 0, 0, "", false}}},
      CommFailed{0x200000001, 1, 2, kWhy},
      AbortRequest{1, 2, kWhy},
      Tell{true, {{3, 9, kBlob}, {4, 9, {}}, {3, 8, kBlob}}},
      Announce{0x200000001, 9, 77, kBlob},
      ClockAsk{0x123456789},
      ClockAnswer{0x123456789, 0x223456789, 0x223456799, 2, -77, 99},
  };
}

template <typename Visit>
void for_each_message(Visit visit) {
  std::apply([&](const auto&... message) { (visit(message), ...); }, one_of_each());
}

template <typename T>
Result<T> decode_from(const std::vector<std::byte>& payload, int size = kSize) {
  return decode<T>(payload, size);
}

TEST(Messages, ComeBackAsTheyWere) {
  std::set<FrameType> seen;
  for_each_message([&]<typename T>(const T& message) {
    const EncodedFrame frame = encode(message);
    const ReceivedFrame opened = open_frame(frame);
    EXPECT_EQ(opened.type, T::kType);
    const Result<T> back = decode_from<T>(opened.payload);
    ASSERT_TRUE(back.ok()) << name(T::kType) << ": " << back.status().text();
    EXPECT_EQ(*encode(*back), *frame) << name(T::kType);
    seen.insert(T::kType);
  });
  EXPECT_EQ(seen.size(), static_cast<size_t>(FrameType::last_)) << "a type has no message here";
}

TEST(Messages, KeepTheirFields) {
  const auto back = [](const auto& message) {
    return *decode_from<std::decay_t<decltype(message)>>(open_frame(encode(message)).payload);
  };
  const Enlist enlist = back(Enlist{3, 9, 77, {address(4242), 123, "a host"}, kWhy});
  EXPECT_EQ(enlist.rank, 3);
  EXPECT_EQ(enlist.ranks, 9);
  EXPECT_EQ(enlist.member.address, address(4242));
  EXPECT_EQ(enlist.member.host, "a host");
  EXPECT_EQ(enlist.complaint.text(), kWhy.text());
  EXPECT_TRUE(back(Enlist{3, 9, 77, {address(1), 1, ""}, {}}).complaint.ok());
  const Table members = back(table());
  EXPECT_EQ(members.members[2].host, "one host");
  EXPECT_EQ(members.members[4].host, "another");
  EXPECT_EQ(members.members[4].pid, 104);
  const Attach attach = back(Attach{3, kSize, 77, false, {1}, {}, kWhy});
  EXPECT_FALSE(attach.running);
  EXPECT_TRUE(attach.decision.ok()) << "about nobody";
  const StallReport again = back(report());
  EXPECT_EQ(again.call.text, report().call.text);
  EXPECT_EQ(again.members, report().members);
  EXPECT_EQ(again.stalled_ms, 400);
  EXPECT_EQ(again.expired_ms, 300);
  EXPECT_TRUE(again.makes_group && again.call.refused_before);
  const InquiryAnswers answers =
      back(InquiryAnswers{8, {1, 2}, {{3, InquiryAnswer::Where::past, 18, 98, ""}}});
  EXPECT_EQ(answers.alike, (std::set{1, 2}));
  ASSERT_EQ(answers.others.size(), 1u);
  EXPECT_EQ(answers.others[0].where, InquiryAnswer::Where::past);
}

TEST(Messages, CutShortAnywhereAreRefused) {
  for_each_message([]<typename T>(const T& message) {
    const std::vector<std::byte> payload = open_frame(encode(message)).payload;
    for (size_t length = 0; length < payload.size(); length++) {
      const Status status =
          decode_from<T>({payload.begin(), payload.begin() + static_cast<ptrdiff_t>(length)})
              .status();
      EXPECT_EQ(status.kind(), SENNIT_INTERNAL) << name(T::kType) << " of " << length;
    }
  });
}

TEST(Messages, WithBytesTooManyAreRefused) {
  for_each_message([]<typename T>(const T& message) {
    std::vector<std::byte> payload = open_frame(encode(message)).payload;
    payload.push_back(std::byte{0});
    const Status status = decode_from<T>(payload).status();
    EXPECT_NE(status.text().find("1 bytes too many"), std::string::npos)
        << name(T::kType) << ": " << status.text();
  });
}

TEST(Messages, AboutRanksOutsideTheJobAreRefused) {
  const auto refused = [](const auto& message) {
    const auto payload = open_frame(encode(message)).payload;
    return !decode_from<std::decay_t<decltype(message)>>(payload).ok();
  };
  EXPECT_TRUE(refused(Parent{77, kSize, {}}));
  EXPECT_TRUE(refused(Goodbye{-1}));
  EXPECT_TRUE(refused(Leaving{false, {kSize}}));
  EXPECT_TRUE(refused(Suspicion{kSize, 1, 0, ""}));
  EXPECT_TRUE(refused(Suspicion{2, 1, 2, ""})) << "of itself";
  EXPECT_TRUE(refused(Decision{{kSize}, kWhy}));
  EXPECT_TRUE(refused(Gather{6, {{kSize, kBlob}}}));
  EXPECT_TRUE(refused(Gathered{6, {kBlob}})) << "of one rank";
  EXPECT_TRUE(refused(Inquiry{8, 1, 17, 99, kSize}));
  EXPECT_TRUE(refused(Refuse{})) << "without an error";
  StallReport without_members = report();
  without_members.members.clear();
  EXPECT_TRUE(refused(without_members));
  Enlist long_name{3, kSize, 77, {{}, 123, std::string(256, 'x')}, {}};
  EXPECT_TRUE(refused(long_name));
}

TEST(Messages, AtRandomDoNoHarm) {
  std::mt19937_64 random(sennit_test::seed());
  for_each_message([&]<typename T>(const T& message) {
    const std::vector<std::byte> good = open_frame(encode(message)).payload;
    for (int trial = 0; trial < 300; trial++) {
      std::vector<std::byte> payload = good;
      for (int change = 0; change < 3 && !payload.empty(); change++)
        payload[random() % payload.size()] = static_cast<std::byte>(random());
      if (const Result<T> read = decode_from<T>(payload); read.ok()) {
        const Result<T> again = decode_from<T>(open_frame(encode(*read)).payload);
        EXPECT_TRUE(again.ok()) << name(T::kType);
      }
    }
  });
}

TEST(Frames, AreAsTheyAlwaysWere) {
  const EncodedFrame frame = encode(Suspicion{1, 8, 2, "x"});
  const std::vector<uint8_t> expected = {14, 0, 0, 0, 16, 0, 0, 0,  // length, type, 0
                                         1,  0, 0, 0, 8,  2, 0, 0, 0, 1, 0, 0, 0, 'x'};
  ASSERT_EQ(frame->size(), expected.size());
  EXPECT_TRUE(std::ranges::equal(*frame, expected,
                                 [](std::byte a, uint8_t b) { return a == std::byte{b}; }));
}

}  // namespace
}  // namespace sennit::control
