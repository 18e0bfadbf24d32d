// notes_test.cpp: notes of a recording come back as they were written; what is cut off or unknown
// is passed over.
// ctest not-under-tsan: it has one thread
#include "record/notes.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace sennit {
namespace {

ConnectionRecord record_of(int peer) {
  ConnectionRecord record;
  record.latest = {peer, 310, 4200, 1, 24'750'000, {99, 8, 7, 6, 500, 40, 30000, 2000}};
  record.before = {55, 4, 3, 2, 100, 10, 9000, 900};
  record.check = record.expected_check();
  return record;
}

std::vector<Note> samples() {
  PlanNote plan;
  plan.comm = 3;
  plan.hash = 0x123456789abcdef0;
  plan.request.collective = Collective::all_gather;
  plan.request.type = DataType::bfloat16;
  plan.request.op = Op::max;
  plan.request.in_place = true;
  plan.request.root = 5;
  plan.request.count = 1 << 20;
  plan.request.counts = {1, 0, uint64_t{1} << 40};
  plan.request.vector_variant = true;
  plan.algorithm = "tiered";
  plan.parameters = {64, {2, 4}, 1};
  plan.predicted_ns = 99;
  plan.slow = {{"h1", true, 250}};
  return {FabricNote{"host a\n", {{"a", 1, "mlx5_0"}, {"b", -1, ""}}},
          CommunicatorNote{7, {0, 2, 5}},
          plan,
          FailureNote{7, 12345, "rank 3 died"},
          VerdictNote{77,
                      true,
                      VerdictAbout::hang,
                      "out of h1: 40%",
                      {"out of h1", "h2"},
                      {3, 4},
                      2.5,
                      0.25,
                      0.5,
                      1,
                      9,
                      3,
                      1234},
          ConnectionsNote{{record_of(3), record_of(0)}}};
}

TEST(Notes, ComeBackAsTheyWere) {
  std::vector<std::byte> bytes;
  for (const Note& note : samples()) {
    const std::vector<std::byte> one = encode(note);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  EXPECT_EQ(decode_notes(bytes), samples());
}

TEST(Notes, OfWhichTheLastIsCutOff) {
  for (const Note& note : samples()) {
    const std::vector<std::byte> first = encode(samples()[1]), second = encode(note);
    std::vector<std::byte> bytes = first;
    bytes.insert(bytes.end(), second.begin(), second.end());
    for (size_t length = first.size(); length < bytes.size(); length++)
      EXPECT_EQ(decode_notes({bytes.data(), length}), (std::vector<Note>{samples()[1]}));
  }
}

// It has not said yet by whose calls it was found, and still older ones not whether a whole tier is
// slow.
TEST(Notes, AVerdictOfAnOlderRecordingIsOfOneLink) {
  auto verdict = std::get<VerdictNote>(samples()[4]);
  std::vector<std::byte> bytes = encode(verdict);
  const size_t who_and_when =
      sizeof verdict.comm + sizeof verdict.first_member + sizeof verdict.noted_ns;
  verdict.comm = 0;
  verdict.first_member = -1;
  verdict.noted_ns = 0;
  for (const size_t not_there : {who_and_when, sizeof(uint32_t)}) {
    bytes.resize(bytes.size() - not_there);
    const auto length = static_cast<uint32_t>(bytes.size() - 2 * sizeof(uint32_t));
    std::memcpy(bytes.data() + sizeof(uint32_t), &length, sizeof length);
    if (not_there == sizeof(uint32_t)) verdict.tier = -1;
    EXPECT_EQ(decode_notes(bytes), (std::vector<Note>{verdict}));
  }
}

TEST(Notes, OfUnknownKindsArePassedOver) {
  std::vector<std::byte> bytes = encode(samples()[3]);
  bytes[0] = std::byte{77};
  const std::vector<std::byte> known = encode(samples()[1]);
  bytes.insert(bytes.end(), known.begin(), known.end());
  EXPECT_EQ(decode_notes(bytes), (std::vector<Note>{samples()[1]}));
}

TEST(Notes, OfConnectionsTheHalfWrittenAndTheEmptyPlacesArePassedOver) {
  ConnectionRecord torn = record_of(7);
  torn.latest.counters.segments++;
  const ConnectionsNote table{{record_of(3), torn, ConnectionRecord(), record_of(0)}};
  EXPECT_EQ(decode_notes(encode(table)),
            (std::vector<Note>{ConnectionsNote{{record_of(3), record_of(0)}}}));
  EXPECT_EQ(decode_notes(encode(ConnectionsNote{{torn, ConnectionRecord()}})), std::vector<Note>());
}

TEST(Notes, WhatWasCountedLatelyIsTheDifference) {
  const ConnectionCounters lately = record_of(3).lately();
  EXPECT_EQ(lately, (ConnectionCounters{99, 4, 4, 4, 400, 30, 21000, 1100}));
  EXPECT_EQ(difference({}, lately), ConnectionCounters()) << "what goes backwards is nothing";
}

}  // namespace
}  // namespace sennit
