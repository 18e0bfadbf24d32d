// threads_test.cpp: one communicator, several threads: works that one starts and another ends,
// messages of several threads at once, and small calls that want the same place.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/ranks.hpp"

using sennit_test::Ranks;

namespace {

// From the thread that starts works to the one that ends them.
template <typename T>
class Queue {
 public:
  void push(T value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_one();
  }
  T pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !values_.empty(); });
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
};

struct Started {
  sennit_work_t work = nullptr;
  std::vector<int32_t> in, out;
  int32_t expected = 0;
};

constexpr int kRanks = 3;
constexpr int kCalls = 400;

// Call `i`, of the same kind on all ranks.
std::unique_ptr<Started> start_call(sennit_comm_t comm, int rank, int i) {
  auto call = std::make_unique<Started>();
  const size_t count = i % 4 == 3 ? 30'000 : 1 + static_cast<size_t>(i % 5);
  call->in.assign(count, rank + i);
  call->out.assign(count, -1);
  sennit_status_t status = SENNIT_OK;
  switch (i % 3) {
    case 0:
      call->expected = kRanks * i + 3;
      status = sennit_all_reduce_start(call->in.data(), call->out.data(), count, SENNIT_INT32,
                                       SENNIT_SUM, comm, &call->work);
      break;
    case 1:
      call->expected = i + 2;
      status = sennit_broadcast_start(call->in.data(), call->out.data(), count, SENNIT_INT32, 2,
                                      comm, &call->work);
      break;
    default:
      call->expected = (rank + kRanks - 1) % kRanks + i;
      sennit_group_start();
      sennit_send_tagged(call->in.data(), count, SENNIT_INT32, (rank + 1) % kRanks, 7, comm);
      sennit_recv_tagged_start(call->out.data(), count, SENNIT_INT32, (rank + kRanks - 1) % kRanks,
                               7, comm, &call->work);
      status = sennit_group_end();
      break;
  }
  EXPECT_EQ(status, SENNIT_OK) << sennit_last_error();
  return call;
}

void end_call(const Started& call, int i) {
  sennit_status_t status = SENNIT_IN_PROGRESS;
  while (i % 2 == 0 && status == SENNIT_IN_PROGRESS) {
    status = sennit_work_test(call.work);
    std::this_thread::yield();
  }
  if (i % 2 == 1) status = sennit_work_wait(call.work, -1);
  EXPECT_EQ(status, SENNIT_OK) << sennit_last_error();
  EXPECT_EQ(call.out, std::vector<int32_t>(call.out.size(), call.expected)) << "call " << i;
  sennit_work_free(call.work);
}

// As a training framework has it: whoever calls never waits, and a thread of its own ends works.
TEST(Threads, OneStartsWorksAndAnotherEndsThem) {
  Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([](int rank, sennit_comm_t comm) {
    Queue<std::unique_ptr<Started>> started;
    std::thread ends([&] {
      for (int i = 0; i < kCalls; i++) end_call(*started.pop(), i);
    });
    for (int i = 0; i < kCalls; i++) {
      started.push(start_call(comm, rank, i));
      if (i % 7 != 0) continue;
      int32_t sum = 1;  // blocking, and on the short way where nothing else is under way
      EXPECT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
      EXPECT_EQ(sum, kRanks);
    }
    ends.join();
  });
}

TEST(Threads, ExchangeMessagesAtOnceByTheirTags) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([](int rank, sennit_comm_t comm) {
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 4; tag++)
      threads.emplace_back([=] {
        for (int i = 0; i < 200; i++) {
          int32_t number = tag * 1000 + i;
          if (rank == 0) {
            ASSERT_EQ(sennit_send_tagged(&number, 1, SENNIT_INT32, 1, tag, comm), SENNIT_OK);
            number = -1;
          }
          int32_t got = -1;
          ASSERT_EQ(sennit_recv_tagged(&got, 1, SENNIT_INT32, 1 - rank, tag, comm, nullptr),
                    SENNIT_OK);
          ASSERT_EQ(got, tag * 1000 + i);
          if (rank == 1) {
            ASSERT_EQ(sennit_send_tagged(&got, 1, SENNIT_INT32, 0, tag, comm), SENNIT_OK);
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

// Of one rank, so that no order has to be kept: threads that make the same call want the same
// execution, and one that differs wants its place.
TEST(Threads, MakeTheSameSmallCallAtOnce) {
  Ranks ranks(1);
  ASSERT_TRUE(ranks.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; i++) {
        const size_t count = 1 + static_cast<size_t>(i % (t + 2));
        const std::vector<int32_t> in(count, t * 10'000 + i);
        std::vector<int32_t> out(count, -1);
        ASSERT_EQ(sennit_all_reduce(in.data(), out.data(), count, SENNIT_INT32, SENNIT_SUM,
                                    ranks.comm(0)),
                  SENNIT_OK);
        ASSERT_EQ(out, in);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, AreTheTwoEndsOfAMessageToOneself) {
  Ranks ranks(1);
  ASSERT_TRUE(ranks.ok());
  for (int32_t i = 0; i < 200; i++) {
    int32_t got = -1;
    sennit_work_t receive = nullptr;
    ASSERT_EQ(sennit_recv_start(&got, 1, SENNIT_INT32, 0, ranks.comm(0), &receive), SENNIT_OK);
    std::thread sends(
        [&] { EXPECT_EQ(sennit_send(&i, 1, SENNIT_INT32, 0, ranks.comm(0)), SENNIT_OK); });
    EXPECT_EQ(sennit_work_wait(receive, 60'000), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(got, i);
    sends.join();
    sennit_work_free(receive);
  }
}

}  // namespace
