// point_to_point_test.cpp: messages between two ranks: tags, receives from any source, and the
// order in which they meet, over every transport that ranks of one process can use.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/usable_transports.hpp"

using namespace std::chrono_literals;
using sennit_test::Ranks;

namespace {

class Messages : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { setenv("SENNIT_TRANSPORTS", GetParam().c_str(), 1); }
  void TearDown() override { unsetenv("SENNIT_TRANSPORTS"); }
};
INSTANTIATE_TEST_SUITE_P(Every, Messages, testing::ValuesIn(sennit_test::usable_transports()),
                         [](const auto& parameter) { return parameter.param; });

constexpr size_t kSmall = 3;
constexpr size_t kLarge = 40'000;  // of int32: more than goes before its receive

std::vector<int32_t> numbers(size_t count, int value) { return std::vector<int32_t>(count, value); }
void send(sennit_comm_t comm, int peer, int tag, size_t count, int value) {
  const std::vector<int32_t> data = numbers(count, value);
  ASSERT_EQ(sennit_send_tagged(data.data(), count, SENNIT_INT32, peer, tag, comm), SENNIT_OK)
      << sennit_last_error();
}
// The value that came.
int receive(sennit_comm_t comm, int peer, int tag, size_t count, int* source = nullptr) {
  std::vector<int32_t> data = numbers(count, -1);
  EXPECT_EQ(sennit_recv_tagged(data.data(), count, SENNIT_INT32, peer, tag, comm, source),
            SENNIT_OK)
      << sennit_last_error();
  EXPECT_EQ(data, numbers(count, data[0]));
  return data[0];
}

TEST_P(Messages, ATagFindsItsMessageWhateverTheOrder) {
  for (const size_t count : {kSmall, kLarge}) {
    Ranks ranks(2);
    ranks.run([&](int rank, sennit_comm_t comm) {
      if (rank == 0) {
        std::vector<std::vector<int32_t>> data;
        std::vector<sennit_work_t> works(6);
        for (int i = 0; i < 6; i++) data.push_back(numbers(count, i));
        for (size_t i = 0; i < 6; i++)
          ASSERT_EQ(sennit_send_tagged_start(data[i].data(), count, SENNIT_INT32, 1,
                                             static_cast<int>(i % 3), comm, &works[i]),
                    SENNIT_OK);
        for (sennit_work_t work : works) {
          EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
          sennit_work_free(work);
        }
        return;
      }
      EXPECT_EQ(receive(comm, 0, 2, count), 2);
      EXPECT_EQ(receive(comm, 0, 1, count), 1);
      EXPECT_EQ(receive(comm, 0, 2, count), 5);
      std::vector<int32_t> untagged(count);  // tag 0
      EXPECT_EQ(sennit_recv(untagged.data(), count, SENNIT_INT32, 0, comm), SENNIT_OK);
      EXPECT_EQ(untagged, numbers(count, 0));
      EXPECT_EQ(receive(comm, 0, 1, count), 4);
      EXPECT_EQ(receive(comm, 0, 0, count), 3);
    });
  }
}

TEST_P(Messages, AnySourceTakesWhoeverComes) {
  constexpr int kRanks = 4;
  for (const size_t count : {kSmall, kLarge}) {
    Ranks ranks(kRanks);
    ranks.run([&](int rank, sennit_comm_t comm) {
      constexpr int kEach = 5, kTag = 9;
      if (rank != 2) {
        for (int i = 0; i < kEach; i++) send(comm, 2, kTag, count, rank * 100 + i);
        return;
      }
      std::map<int, int> next;  // by source: messages of one rank come in their order
      for (int i = 0; i < kEach * (kRanks - 1); i++) {
        int source = -1;
        const int value = receive(comm, SENNIT_ANY_SOURCE, kTag, count, &source);
        EXPECT_EQ(value, source * 100 + next[source]++);
      }
      EXPECT_EQ(next, (std::map<int, int>{{0, kEach}, {1, kEach}, {3, kEach}}));
    });
  }
}

// What was started first is served first: the later one waits, although it names its peer.
TEST_P(Messages, AReceiveDoesNotOvertakeOneFromAnySource) {
  Ranks ranks(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    if (rank == 0) {
      for (int i = 0; i < 3; i++) send(comm, 1, 4, kSmall, i);
      return;
    }
    std::vector<std::vector<int32_t>> data(3, numbers(kSmall, -1));
    std::vector<sennit_work_t> works(3);
    const int peers[] = {SENNIT_ANY_SOURCE, 0, SENNIT_ANY_SOURCE};
    for (size_t i = 0; i < 3; i++)
      ASSERT_EQ(sennit_recv_tagged_start(data[i].data(), kSmall, SENNIT_INT32, peers[i], 4, comm,
                                         &works[i]),
                SENNIT_OK);
    for (size_t i = 3; i-- > 0;) {
      EXPECT_EQ(sennit_work_wait(works[i], -1), SENNIT_OK);
      EXPECT_EQ(data[i], numbers(kSmall, static_cast<int>(i)));
      int source = -1;
      EXPECT_EQ(sennit_work_source(works[i], &source), SENNIT_OK);
      EXPECT_EQ(source, 0);
      sennit_work_free(works[i]);
    }
  });
}

// Nobody waits for it, so the helper has to find out that its message has come.
TEST_P(Messages, AReceiveFromAnySourceCompletesWhileNobodyWaits) {
  Ranks ranks(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    if (rank == 0) {
      std::this_thread::sleep_for(20ms);
      send(comm, 1, 0, kLarge, 5);  // goes only once its receive has been matched
      send(comm, 1, 1, kSmall, 6);
      return;
    }
    std::vector<int32_t> data(kLarge);
    sennit_work_t work = nullptr;
    ASSERT_EQ(sennit_recv_tagged_start(data.data(), kLarge, SENNIT_INT32, SENNIT_ANY_SOURCE, 0,
                                       comm, &work),
              SENNIT_OK);
    int source = -1;
    EXPECT_EQ(sennit_work_source(work, &source), SENNIT_IN_PROGRESS);
    EXPECT_EQ(receive(comm, 0, 1, kSmall), 6);
    EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
    EXPECT_EQ(data, numbers(kLarge, 5));
    sennit_work_free(work);
  });
}

TEST_P(Messages, WhatWaitsForAnySourceEndsWithItsCommunicator) {
  Ranks ranks(3);
  std::vector<sennit_comm_t> copies(3);
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t& copy = copies[static_cast<size_t>(rank)];
    ASSERT_EQ(sennit_comm_dup(comm, &copy), SENNIT_OK);
    if (rank == 2) {
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(sennit_comm_abort(copy), SENNIT_OK);
    } else {
      int32_t number = 0;
      EXPECT_EQ(sennit_recv_tagged(&number, 1, SENNIT_INT32, SENNIT_ANY_SOURCE, 0, copy, nullptr),
                SENNIT_ABORTED);
    }
    sennit_comm_destroy(copy);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

TEST_P(Messages, AWrongCountFromAnySourceIsAMismatch) {
  Ranks ranks(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t copy = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &copy), SENNIT_OK);
    std::vector<int32_t> data(8);
    if (rank == 0)
      sennit_send_tagged(data.data(), 8, SENNIT_INT32, 1, 3, copy);
    else
      EXPECT_EQ(
          sennit_recv_tagged(data.data(), 7, SENNIT_INT32, SENNIT_ANY_SOURCE, 3, copy, nullptr),
          SENNIT_MISMATCH);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
    sennit_comm_destroy(copy);
  });
}

// Random messages of random tags and sizes to one rank, which takes them as it likes: a message is
// the first of its source and tag that was not taken before.
TEST_P(Messages, RandomTagsSizesAndSources) {
  const uint64_t seed = sennit_test::seed();
  constexpr int kRanks = 3, kTags = 3, kEach = 40;
  Ranks ranks(kRanks);
  const auto count_of = [](int value) {
    return value % 7 == 0 ? kLarge : static_cast<size_t>(1 + value % 5);
  };
  // [source][i]: tag of its i-th message; counts are known to both sides by source, tag and number
  std::vector<std::vector<int>> tags(kRanks);
  std::mt19937_64 random(seed);
  for (int source = 1; source < kRanks; source++)
    for (int i = 0; i < kEach; i++)
      tags[static_cast<size_t>(source)].push_back(static_cast<int>(random() % kTags));
  ranks.run([&](int rank, sennit_comm_t comm) {
    if (rank > 0) {
      std::vector<int> numbers_of(kTags, 0);
      for (const int tag : tags[static_cast<size_t>(rank)]) {
        const int number = numbers_of[static_cast<size_t>(tag)]++;
        send(comm, 0, tag, count_of(number), rank * 1000 + tag * 100 + number);
      }
      return;
    }
    // Every rank sends in its order, so what is taken must not wait for what the sender has not
    // come to: each receive is started, and all are waited for at the end.
    struct Open {
      sennit_work_t work;
      std::vector<int32_t> data;
    };
    std::vector<Open> open;
    std::vector<std::vector<int>> left(kRanks, std::vector<int>(kTags, 0));
    for (int source = 1; source < kRanks; source++)
      for (const int tag : tags[static_cast<size_t>(source)])
        left[static_cast<size_t>(source)][static_cast<size_t>(tag)]++;
    std::mt19937_64 choice(seed + 1);
    for (int source = 1; source < kRanks; source++)
      for (int tag = 0; tag < kTags; tag++)
        for (int i = 0; i < left[static_cast<size_t>(source)][static_cast<size_t>(tag)]; i++) {
          Open& one = open.emplace_back();
          one.data.resize(count_of(i));
          ASSERT_EQ(sennit_recv_tagged_start(one.data.data(), one.data.size(), SENNIT_INT32, source,
                                             tag, comm, &one.work),
                    SENNIT_OK);
        }
    std::shuffle(open.begin(), open.end(), choice);
    std::set<int> seen;
    for (Open& one : open) {
      EXPECT_EQ(sennit_work_wait(one.work, -1), SENNIT_OK);
      EXPECT_EQ(one.data, numbers(one.data.size(), one.data[0]));
      EXPECT_TRUE(seen.insert(one.data[0]).second);
      sennit_work_free(one.work);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>((kRanks - 1) * kEach));
  });
}

// It has no bytes, but its receiver learns that it has come, and from whom.
TEST_P(Messages, WithoutElementsComeAsWell) {
  Ranks ranks(3);
  ranks.run([](int rank, sennit_comm_t comm) {
    if (rank > 0) {
      EXPECT_EQ(sennit_send_tagged(nullptr, 0, SENNIT_INT32, 0, 4, comm), SENNIT_OK);
      return;
    }
    std::set<int> sources;
    for (int i = 0; i < 2; i++) {
      sennit_work_t work = nullptr;
      int source = -1;
      ASSERT_EQ(
          sennit_recv_tagged_start(nullptr, 0, SENNIT_INT32, SENNIT_ANY_SOURCE, 4, comm, &work),
          SENNIT_OK);
      ASSERT_EQ(sennit_work_wait(work, 20'000), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(sennit_work_source(work, &source), SENNIT_OK);
      sources.insert(source);
      sennit_work_free(work);
    }
    EXPECT_EQ(sources, (std::set<int>{1, 2}));
  });
}

TEST_P(Messages, WithoutElementsDoNotFitOneThatHasSome) {
  Ranks ranks(2);
  ranks.run([](int rank, sennit_comm_t comm) {
    std::vector<int32_t> data(5);
    sennit_work_t work = nullptr;
    if (rank == 1) {
      // It is done when the message is under way, or told what the receiver has found.
      const sennit_status_t sent = sennit_send(data.data(), 0, SENNIT_INT32, 0, comm);
      EXPECT_TRUE(sent == SENNIT_OK || sent == SENNIT_MISMATCH) << sennit_status_name(sent);
    } else {
      ASSERT_EQ(sennit_recv_start(data.data(), 5, SENNIT_INT32, 1, comm, &work), SENNIT_OK);
      EXPECT_EQ(sennit_work_wait(work, 20'000), SENNIT_MISMATCH) << sennit_last_error();
      sennit_work_free(work);
    }
  });
}

TEST(MessagesToOneself, MeetByTheirTag) {
  Ranks ranks(1);
  ranks.run([](int, sennit_comm_t comm) {
    int32_t one = 1, two = 2, got = 0;
    sennit_work_t first = nullptr, second = nullptr;
    ASSERT_EQ(sennit_send_tagged_start(&one, 1, SENNIT_INT32, 0, 1, comm, &first), SENNIT_OK);
    ASSERT_EQ(sennit_send_tagged_start(&two, 1, SENNIT_INT32, 0, 2, comm, &second), SENNIT_OK);
    int source = -1;
    EXPECT_EQ(sennit_recv_tagged(&got, 1, SENNIT_INT32, 0, 2, comm, &source), SENNIT_OK);
    EXPECT_EQ(got, 2);
    EXPECT_EQ(source, 0);
    EXPECT_EQ(sennit_recv_tagged(&got, 1, SENNIT_INT32, 0, 1, comm, nullptr), SENNIT_OK);
    EXPECT_EQ(got, 1);
    for (sennit_work_t work : {first, second}) {
      EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
      EXPECT_EQ(sennit_work_source(work, &source), SENNIT_INVALID_ARGUMENT) << "it is a send";
      sennit_work_free(work);
    }
    EXPECT_EQ(sennit_recv_tagged(&got, 1, SENNIT_INT32, SENNIT_ANY_SOURCE, 0, comm, nullptr),
              SENNIT_INVALID_ARGUMENT)
        << "there is nobody";
  });
}

TEST(MessageArguments, AreChecked) {
  Ranks ranks(2);
  ranks.run([](int, sennit_comm_t comm) {
    int32_t number = 0;
    const auto error = [](sennit_status_t status) {
      EXPECT_EQ(status, SENNIT_INVALID_ARGUMENT);
      return std::string(sennit_last_error());
    };
    EXPECT_NE(error(sennit_send_tagged(&number, 1, SENNIT_INT32, 0, -1, comm)).find("tag -1"),
              std::string::npos);
    EXPECT_NE(error(sennit_send_tagged(&number, 1, SENNIT_INT32, SENNIT_ANY_SOURCE, 0, comm))
                  .find("peer -1000"),
              std::string::npos);
    EXPECT_NE(
        error(sennit_recv_tagged(&number, 1, SENNIT_INT32, -2, 0, comm, nullptr)).find("peer -2"),
        std::string::npos);
    EXPECT_EQ(sennit_work_source(nullptr, &number), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_group_start(), SENNIT_OK);
    EXPECT_NE(
        error(sennit_recv_tagged(&number, 1, SENNIT_INT32, SENNIT_ANY_SOURCE, 0, comm, &number))
            .find("within a group"),
        std::string::npos);
    EXPECT_NE(error(sennit_group_end()).find("none of the group's calls was made"),
              std::string::npos);
  });
}

}  // namespace
