// sennit_mem_register: memory of the user's own that peers read in place. Real processes over
// shared memory: every collective from registered memory at odd addresses, contents before and
// after, and what is refused.
#include <alloca.h>
#include <dirent.h>
#include <sys/mman.h>

#include <chrono>
#include <fstream>
#include <numeric>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "sennit/sennit.h"
#include "sennit/sennit.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;
using sennit_test::Processes;
using sennit_test::Ranks;

namespace {

constexpr size_t kPage = 4096;

std::byte* pages(size_t bytes, int access = PROT_READ | PROT_WRITE,
                 int flags = MAP_PRIVATE | MAP_ANONYMOUS) {
  void* memory = mmap(nullptr, bytes, access, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// How many bytes of [memory, memory + bytes) lie in pages that other processes can map.
size_t shared_bytes(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
  std::ifstream maps("/proc/self/maps");
  size_t shared = 0;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0, to = 0;
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) != 3 || access[3] != 's')
      continue;
    from = std::max(from, begin);
    to = std::min(to, end);
    if (from < to) shared += to - from;
  }
  return shared;
}

std::string statistics(sennit_comm_t comm) {
  return comm->communicator->context().engine().statistics();
}

// ---- one rank: what is registered, and what is refused ----

class OneRank : public testing::Test {
 protected:
  Ranks job_{1};
  sennit_comm_t comm_ = job_.comm(0);
};

TEST_F(OneRank, NothingIsHarmlessAndNullIsNot) {
  int x = 0;
  EXPECT_EQ(sennit_mem_register(comm_, nullptr, 0), SENNIT_OK);
  EXPECT_EQ(sennit_mem_deregister(comm_, nullptr), SENNIT_OK);
  EXPECT_EQ(sennit_mem_register(comm_, &x, 0), SENNIT_OK);
  EXPECT_EQ(sennit_mem_deregister(comm_, &x), SENNIT_OK);
  EXPECT_EQ(sennit_mem_register(comm_, nullptr, 10), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(sennit_mem_register(nullptr, &x, 4), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(sennit_mem_deregister(nullptr, &x), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(sennit_mem_register(comm_, &x, SIZE_MAX), SENNIT_INVALID_ARGUMENT);
}

TEST_F(OneRank, CountsTheSameRangeAndRefusesOverlap) {
  std::vector<std::byte> memory(10 * kPage);
  EXPECT_EQ(sennit_mem_deregister(comm_, memory.data()), SENNIT_INVALID_ARGUMENT);
  ASSERT_EQ(sennit_mem_register(comm_, memory.data(), memory.size()), SENNIT_OK);
  ASSERT_EQ(sennit_mem_register(comm_, memory.data(), memory.size()), SENNIT_OK);
  for (const auto& [at, bytes] : std::vector<std::pair<size_t, size_t>>{
           {0, 5}, {1, 5}, {0, memory.size() + 1}, {memory.size() - 1, 1}, {5 * kPage, 0}}) {
    EXPECT_EQ(sennit_mem_register(comm_, memory.data() + at, bytes), SENNIT_INVALID_ARGUMENT) << at;
    EXPECT_NE(std::string(sennit_last_error()).find("overlap"), std::string::npos)
        << sennit_last_error();
  }
  EXPECT_EQ(sennit_mem_deregister(comm_, memory.data() + 1), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(sennit_mem_deregister(comm_, memory.data()), SENNIT_OK);
  EXPECT_EQ(sennit_mem_deregister(comm_, memory.data()), SENNIT_OK);
  EXPECT_EQ(sennit_mem_deregister(comm_, memory.data()), SENNIT_INVALID_ARGUMENT);
  EXPECT_NE(std::string(sennit_last_error()).find("no memory is registered at"), std::string::npos);
}

TEST_F(OneRank, MemoryThatIsNotMappedIsRefused) {
  std::byte* memory = pages(4 * kPage);
  ASSERT_TRUE(memory);
  munmap(memory + 2 * kPage, kPage);
  EXPECT_EQ(sennit_mem_register(comm_, memory, 4 * kPage), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(sennit_mem_register(comm_, memory + 2 * kPage, 1), SENNIT_INVALID_ARGUMENT);
  EXPECT_NE(std::string(sennit_last_error()).find("no memory is mapped"), std::string::npos);
  EXPECT_EQ(sennit_mem_register(comm_, memory, 2 * kPage), SENNIT_OK);
  EXPECT_EQ(sennit_mem_deregister(comm_, memory), SENNIT_OK);
  munmap(memory, 4 * kPage);
}

TEST_F(OneRank, SennitsOwnMemoryIsFine) {
  void* memory = nullptr;
  ASSERT_EQ(sennit_mem_alloc(comm_, 3 * kPage, &memory), SENNIT_OK);
  EXPECT_EQ(sennit_mem_register(comm_, memory, 3 * kPage), SENNIT_OK);
  EXPECT_EQ(sennit_mem_free(comm_, memory), SENNIT_OK);  // forgets the registration
  EXPECT_EQ(sennit_mem_deregister(comm_, memory), SENNIT_INVALID_ARGUMENT);
}

// ---- processes over shared memory ----

const Processes::Environment kShm = {{"SENNIT_TRANSPORTS", "shm"}, {"SENNIT_EAGER_BYTES", "1K"}};

void expect_ok(Processes& ranks) {
  const auto reports = ranks.reports(240s);
  for (size_t r = 0; r < reports.size(); r++)
    EXPECT_EQ(reports[r].value_or("(did not end)"), "ok") << "rank " << r;
}

// Runs f(rank, comm) in a job of n processes.
template <typename F>
void in_job(int n, F&& f) {
  Processes ranks(
      n,
      [&](int rank) -> std::string {
        sennit_comm_t comm = nullptr;
        REQUIRE(sennit_comm_init_env(&comm, nullptr) == SENNIT_OK);
        const std::string told = f(rank, comm);
        if (told != "ok") return told;
        REQUIRE(sennit_comm_finalize(comm) == SENNIT_OK);
        sennit_comm_destroy(comm);
        return told;
      },
      kShm);
  expect_ok(ranks);
}

int value(size_t rank, size_t i) { return static_cast<int>(i * 7 + rank * 1'000'003); }

constexpr size_t kRanks = 4;
int sum(size_t i) {
  int64_t total = 0;
  for (size_t r = 0; r < kRanks; r++) total += value(r, i);
  return static_cast<int>(total);
}

// Blocks of `count` ints, registered from a misaligned start; every collective; checked element by
// element.
std::string all_collectives(int rank, sennit_comm_t comm, size_t count, size_t shift) {
  constexpr size_t n = kRanks;
  const auto me = static_cast<size_t>(rank);
  const size_t all = n * count;
  const size_t bytes = all * sizeof(int);
  std::vector<int> send_memory(all + 64), recv_memory(all + 64, -1);
  int* const send = send_memory.data() + shift;
  int* const recv = recv_memory.data() + 2 * shift + 1;
  for (size_t i = 0; i < all; i++) send[i] = value(me, i);
  const std::vector<int> before = send_memory;
  REQUIRE(sennit_mem_register(comm, send, bytes) == SENNIT_OK);
  REQUIRE(sennit_mem_register(comm, recv, bytes) == SENNIT_OK);
  if (bytes >= 3 * kPage) {
    REQUIRE(shared_bytes(send, bytes) >= bytes - 2 * kPage);
  }
  REQUIRE(send_memory == before);
  const auto is = [&](size_t from, size_t elements, auto&& expected) {
    for (size_t i = 0; i < elements; i++)
      if (recv[from + i] != expected(i)) return false;
    std::fill(recv_memory.begin(), recv_memory.end(), -1);
    return true;
  };
  const auto from = [&](size_t r) { return [r](size_t i) { return value(r, i); }; };

  REQUIRE(sennit_all_reduce(send, recv, all, SENNIT_INT32, SENNIT_SUM, comm) == SENNIT_OK);
  REQUIRE(is(0, all, sum));
  REQUIRE(sennit_reduce_scatter(send, recv, count, SENNIT_INT32, SENNIT_SUM, comm) == SENNIT_OK);
  REQUIRE(is(0, count, [&](size_t i) { return sum(me * count + i); }));
  REQUIRE(sennit_all_gather(send, recv, count, SENNIT_INT32, comm) == SENNIT_OK);
  REQUIRE(is(0, all, [&](size_t i) { return value(i / count, i % count); }));
  REQUIRE(sennit_all_to_all(send, recv, count, SENNIT_INT32, comm) == SENNIT_OK);
  REQUIRE(is(0, all, [&](size_t i) { return value(i / count, me * count + i % count); }));
  for (const int root : {0, 3}) {
    const bool mine = rank == root;
    REQUIRE(sennit_broadcast(send, recv, all, SENNIT_INT32, root, comm) == SENNIT_OK);
    REQUIRE(is(0, all, from(static_cast<size_t>(root))));
    REQUIRE(sennit_reduce(send, recv, all, SENNIT_INT32, SENNIT_SUM, root, comm) == SENNIT_OK);
    REQUIRE(!mine || is(0, all, sum));
    REQUIRE(sennit_gather(send, recv, count, SENNIT_INT32, root, comm) == SENNIT_OK);
    REQUIRE(!mine || is(0, all, [&](size_t i) { return value(i / count, i % count); }));
    REQUIRE(sennit_scatter(send, recv, count, SENNIT_INT32, root, comm) == SENNIT_OK);
    REQUIRE(
        is(0, count, [&](size_t i) { return value(static_cast<size_t>(root), me * count + i); }));
  }
  REQUIRE(sennit_group_start() == SENNIT_OK);
  REQUIRE(sennit_send(send, all, SENNIT_INT32, (rank + 1) % 4, comm) == SENNIT_OK);
  REQUIRE(sennit_recv(recv, all, SENNIT_INT32, (rank + 3) % 4, comm) == SENNIT_OK);
  REQUIRE(sennit_group_end() == SENNIT_OK);
  REQUIRE(is(0, all, from((me + 3) % 4)));
  // in place
  REQUIRE(sennit_all_reduce(send, send, all, SENNIT_INT32, SENNIT_SUM, comm) == SENNIT_OK);
  for (size_t i = 0; i < all; i++) REQUIRE(send[i] == sum(i));
  const std::vector<int> then = send_memory;
  REQUIRE(sennit_mem_deregister(comm, send) == SENNIT_OK);
  REQUIRE(sennit_mem_deregister(comm, recv) == SENNIT_OK);
  REQUIRE(send_memory == then);
  REQUIRE(shared_bytes(send, bytes) == 0);
  REQUIRE(std::equal(before.begin(), before.begin() + static_cast<ptrdiff_t>(shift), then.begin()));
  return "ok";
}

TEST(Registered, WhatIsFreedTwiceOrIsNotSennitsIsRefused) {
  in_job(2, [](int, sennit_comm_t comm) {
    void* memory = nullptr;
    REQUIRE(sennit_mem_alloc(comm, 3 * kPage, &memory) == SENNIT_OK);
    REQUIRE(sennit_mem_free(comm, static_cast<std::byte*>(memory) + kPage) ==
            SENNIT_INVALID_ARGUMENT);
    REQUIRE(sennit_mem_free(comm, memory) == SENNIT_OK);
    REQUIRE(sennit_mem_free(comm, memory) == SENNIT_INVALID_ARGUMENT);
    std::vector<std::byte> own(4 * kPage);
    REQUIRE(sennit_mem_register(comm, own.data(), own.size()) == SENNIT_OK);
    REQUIRE(sennit_mem_free(comm, own.data()) == SENNIT_INVALID_ARGUMENT);
    REQUIRE(sennit_mem_deregister(comm, own.data()) == SENNIT_OK);
    return std::string("ok");
  });
}

TEST(Registered, EveryCollectiveFromAnyAddress) {
  in_job(4, [](int rank, sennit_comm_t comm) -> std::string {
    for (const size_t count : {1, 700, 1024, 5000, 300'000})
      for (const size_t shift : {0, 1, 29}) {
        const std::string told = all_collectives(rank, comm, count, shift);
        if (told != "ok") return fmt::format("count {} shift {}: {}", count, shift, told);
      }
    // Nothing was read through the kernel.
    const std::string counts = statistics(comm);
    REQUIRE(counts.find("read 0 B, streamed 0 B") != std::string::npos &&
            counts.find("exposed 0,") == std::string::npos);
    return "ok";
  });
}

TEST(Registered, MemoryThatCannotBeReplacedIsSaidSoAndWorksAsItIs) {
  in_job(2, [](int, sennit_comm_t comm) -> std::string {
    std::byte* read_only = pages(8 * kPage, PROT_READ);
    std::byte* shared = pages(8 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    for (std::byte* memory : {read_only, shared}) {
      REQUIRE(sennit_mem_register(comm, memory, 8 * kPage) == SENNIT_UNSUPPORTED);
      REQUIRE(std::string(sennit_last_error()).find("it can be used unregistered") !=
              std::string::npos);
      REQUIRE(sennit_mem_deregister(comm, memory) == SENNIT_INVALID_ARGUMENT);
      std::vector<std::byte> out(16 * kPage);
      REQUIRE(sennit_all_gather(memory, out.data(), 8 * kPage, SENNIT_UINT8, comm) == SENNIT_OK);
    }
    void* on_stack = alloca(4 * kPage);  // a sanitizer may keep arrays elsewhere
    REQUIRE(sennit_mem_register(comm, on_stack, 4 * kPage) == SENNIT_UNSUPPORTED);
    void* own = nullptr;
    REQUIRE(sennit_mem_alloc(comm, 8 * kPage, &own) == SENNIT_OK);
    REQUIRE(sennit_mem_register(comm, own, 8 * kPage) == SENNIT_OK);
    REQUIRE(sennit_mem_deregister(comm, own) == SENNIT_OK);
    REQUIRE(sennit_mem_free(comm, own) == SENNIT_OK);
    return "ok";
  });
}

// The address has other memory by then: neither the old bytes are sent, nor is the new memory
// overwritten.
TEST(Registered, MemoryThatWasUnmappedFirst) {
  in_job(2, [](int rank, sennit_comm_t comm) -> std::string {
    constexpr size_t kBytes = 64 * kPage;
    std::byte* memory = pages(kBytes);
    std::memset(memory, 1, kBytes);
    REQUIRE(sennit_mem_register(comm, memory, kBytes) == SENNIT_OK);
    std::vector<std::byte> out(2 * kBytes);
    REQUIRE(sennit_all_gather(memory, out.data(), kBytes, SENNIT_UINT8, comm) == SENNIT_OK);
    munmap(memory, kBytes);
    void* again = mmap(memory, kBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    REQUIRE(again == memory);
    std::memset(memory, 2 + rank, kBytes);
    REQUIRE(sennit_all_gather(memory, out.data(), kBytes, SENNIT_UINT8, comm) == SENNIT_OK);
    for (size_t i = 0; i < 2 * kBytes; i++) REQUIRE(out[i] == std::byte(2 + i / kBytes));
    REQUIRE(sennit_mem_deregister(comm, memory) == SENNIT_OK);
    for (size_t i = 0; i < kBytes; i++) REQUIRE(memory[i] == std::byte(2 + rank));
    REQUIRE(sennit_mem_register(comm, memory, kBytes) == SENNIT_OK);
    munmap(memory, kBytes);
    REQUIRE(sennit_mem_deregister(comm, memory) == SENNIT_OK);  // touches nothing
    return "ok";
  });
}

TEST(Registered, NotTakenAwayWhileItIsSent) {
  in_job(2, [](int rank, sennit_comm_t comm) -> std::string {
    std::vector<int> x(100'000, rank);
    if (rank == 0) {
      REQUIRE(sennit_mem_register(comm, x.data(), x.size() * sizeof(int)) == SENNIT_OK);
      sennit_work_t work = nullptr;
      REQUIRE(sennit_send_start(x.data(), x.size(), SENNIT_INT32, 1, comm, &work) == SENNIT_OK);
      while (sennit_mem_deregister(comm, x.data()) == SENNIT_OK)  // until it has been offered
        REQUIRE(sennit_mem_register(comm, x.data(), x.size() * sizeof(int)) == SENNIT_OK);
      REQUIRE(std::string(sennit_last_error()).find("still being sent") != std::string::npos);
      REQUIRE(sennit_barrier(comm) == SENNIT_OK);
      REQUIRE(sennit_work_wait(work, -1) == SENNIT_OK);
      REQUIRE(sennit_work_free(work) == SENNIT_OK);
      REQUIRE(sennit_mem_deregister(comm, x.data()) == SENNIT_OK);
      return "ok";
    }
    REQUIRE(sennit_barrier(comm) == SENNIT_OK);
    REQUIRE(sennit_recv(x.data(), x.size(), SENNIT_INT32, 0, comm) == SENNIT_OK);
    for (const int value : x) REQUIRE(value == 0);
    return "ok";
  });
}

TEST(Registered, GivenBackWhenTheJobEnds) {
  Processes ranks(
      2,
      [](int rank) -> std::string {
        std::vector<int> x(50'000);
        std::iota(x.begin(), x.end(), rank);
        auto made = sennit::v0::Communicator::from_environment();
        REQUIRE(made);
        std::optional<sennit::v0::Communicator> comm(*std::move(made));
        REQUIRE(!comm->register_memory(x.data(), x.size() * sizeof(int)));
        REQUIRE(shared_bytes(x.data(), x.size() * sizeof(int)) > 0);
        REQUIRE(!comm->all_reduce(x.data(), x.data(), x.size(), sennit::max));
        REQUIRE(!comm->finalize());
        comm.reset();
        REQUIRE(shared_bytes(x.data(), x.size() * sizeof(int)) == 0);
        for (size_t i = 0; i < x.size(); i++) REQUIRE(x[i] == static_cast<int>(i) + 1);
        x.resize(200'000);  // the allocator may move it
        return "ok";
      },
      kShm);
  expect_ok(ranks);
}

std::vector<std::string> names_in_shm() {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  while (const dirent* entry = folder ? readdir(folder) : nullptr)
    names.emplace_back(entry->d_name);
  if (folder) closedir(folder);
  return names;
}

TEST(Registered, AKilledRankLeavesNothingBehind) {
  std::vector<pid_t> pids;
  {
    Processes ranks(
        4,
        [](int rank) -> std::string {
          sennit_comm_t comm = nullptr;
          REQUIRE(sennit_comm_init_env(&comm, nullptr) == SENNIT_OK);
          std::vector<float> x(500'000, 1.0f);
          REQUIRE(sennit_mem_register(comm, x.data(), x.size() * sizeof(float)) == SENNIT_OK);
          for (int i = 0;; i++) {
            if (rank == 2 && i == 20) kill(getpid(), SIGKILL);
            if (sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_MAX, comm) !=
                SENNIT_OK)
              break;
          }
          const std::string text = sennit_last_error();
          REQUIRE(sennit_mem_deregister(comm, x.data()) == SENNIT_OK);  // also after a failure
          for (const float value : x) REQUIRE(value == 1.0f);
          sennit_comm_destroy(comm);
          return text;
        },
        kShm);
    for (int r = 0; r < 4; r++) pids.push_back(ranks.pid(r));
    const auto reports = ranks.reports(240s);
    for (const size_t r : {0, 1, 3})
      EXPECT_NE(reports[r].value_or("(hangs)").find("rank 2"), std::string::npos)
          << reports[r].value_or("(hangs)");
  }
  for (const std::string& name : names_in_shm())
    for (const pid_t pid : pids)
      EXPECT_EQ(name.find(fmt::format("-{}-", pid)), std::string::npos) << "/dev/shm/" << name;
}

}  // namespace
