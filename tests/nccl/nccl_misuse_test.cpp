// nccl_misuse_test.cpp: what programs get wrong with NCCL's interface, and what happens to them,
// with ranks as processes: each is an error that names it, or a clean end, and nobody hangs.
// ctest links: nccl_forwarder
// ctest not-sanitized: its ranks fork while threads work, and end while communicators are out
// ctest runs: sennit_nccl
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/nccl_ranks.hpp"
#include "tests/support/process.hpp"
#include "tests/support/test_folder.hpp"

using namespace std::chrono_literals;
using sennit::trainer::TestFolder;
using sennit_test::kNonblocking;
using sennit_test::Process;
using sennit_test::settle;
using sennit_test::text;

namespace {

constexpr auto kLimit = 60s;

// Rank `rank`'s communicator, once all have theirs: a rank that ends sooner would fail the start of
// those that are still in it. The id goes through a file that has its name when it is whole.
ncclComm_t join(const TestFolder& folder, int ranks, int rank, bool blocking = true) {
  const std::string path = folder / "id";
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != ncclSuccess) std::abort();
    std::ofstream(path + ".part", std::ios::binary).write(id.internal, sizeof id.internal);
    std::rename((path + ".part").c_str(), path.c_str());
  }
  while (!std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal))
    std::this_thread::sleep_for(1ms);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = kNonblocking;
  config.blocking = blocking;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  if (result != ncclSuccess && (blocking || settle(comm) != ncclSuccess)) std::abort();
  std::ofstream(folder / ("joined" + std::to_string(rank))) << "yes";
  for (int r = 0; r < ranks; r++)
    while (!std::ifstream(folder / ("joined" + std::to_string(r))))
      std::this_thread::sleep_for(1ms);
  return comm;
}

std::string told(const char* what, ncclResult_t result) {
  return std::string(what) + ": " + ncclGetErrorString(result) +
         (result == ncclSuccess || result == ncclInProgress ? "" : ": " + text()) + "\n";
}

ncclResult_t sum(ncclComm_t comm, size_t count = 1) {
  static std::vector<int> x(1 << 20, 1);
  return ncclAllReduce(x.data(), x.data(), count, ncclInt32, ncclSum, comm, nullptr);
}

// Ranks as processes; what each says.
std::vector<std::string> run(int ranks,
                             const std::function<void(int, const Process::Voice&)>& body) {
  std::vector<Process> processes;
  for (int r = 0; r < ranks; r++)
    processes.emplace_back([&, r](const Process::Voice& voice) { body(r, voice); });
  std::vector<std::string> said;
  for (Process& process : processes) said.push_back(process.outcome(kLimit));
  return said;
}

bool has(const std::string& said, const char* what) { return said.find(what) != said.npos; }

TEST(NcclMisuse, CallsAfterAnAbort) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank);
    if (rank == 1) {
      voice.say(told("sum", sum(comm)));
      voice.say(told("destroy", ncclCommDestroy(comm)));
      return;
    }
    voice.say(told("abort", ncclCommAbort(comm)));
    voice.say(told("sum", sum(comm)));
    voice.say(told("destroy", ncclCommDestroy(comm)));
    int size = 0;
    voice.say(told("count", ncclCommCount(comm, &size)));
  });
  const char* const kGone = ": invalid argument: the communicator was destroyed or aborted before";
  EXPECT_TRUE(has(said[0], "abort: no error\n")) << said[0];
  for (const char* call : {"sum", "destroy", "count"})
    EXPECT_TRUE(has(said[0], (std::string(call) + kGone).c_str())) << said[0];
  EXPECT_TRUE(has(said[1], "sum: remote process exited or there was a network error: ")) << said[1];
  EXPECT_TRUE(has(said[1], "destroy: no error")) << said[1];
}

// The program ends by itself, and whoever waits for it is told who is gone.
TEST(NcclMisuse, AGroupThatIsNeverClosed) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank);
    if (rank == 0) {
      ncclGroupStart();
      voice.say(told("sum", sum(comm)));
      std::exit(0);
    }
    voice.say(told("sum", sum(comm)));
    std::exit(0);
  });
  EXPECT_EQ(said[0], "sum: no error\n");
  EXPECT_TRUE(has(said[1], "sum: remote process exited")) << said[1];
  EXPECT_TRUE(has(said[1], "rank 0")) << said[1];
}

TEST(NcclMisuse, AnExitWithWorkOut) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank, rank == 1);
    if (rank == 0) {
      int x = 0;  // which nobody sends
      voice.say(told("receive", ncclRecv(&x, 1, ncclInt32, 1, comm, nullptr)));
      voice.say(told("sum", sum(comm)));
      std::exit(0);
    }
    voice.say(told("sum", sum(comm)));
    std::exit(0);
  });
  EXPECT_EQ(said[0], "receive: NCCL operation in progress\nsum: NCCL operation in progress\n");
  EXPECT_TRUE(has(said[1], "sum: remote process exited")) << said[1];
}

// The parent's work goes on, and the child has nothing of it.
TEST(NcclMisuse, AForkWithWorkOut) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank, rank == 1);
    if (rank == 1) {
      while (!std::ifstream(folder / "forked")) std::this_thread::sleep_for(1ms);
      voice.say(told("sum", sum(comm)));
      ncclCommDestroy(comm);
      return;
    }
    sum(comm);
    ncclGroupStart();
    sum(comm);
    Process child([&](const Process::Voice& of_child) {
      of_child.say(told("sum", sum(comm)));
      ncclResult_t error = ncclSuccess;
      of_child.say(told("status", ncclCommGetAsyncError(comm, &error)));
      of_child.say(told("group", ncclGroupEnd()));
      of_child.say(told("destroy", ncclCommDestroy(comm)));
      ncclComm_t own = nullptr;
      of_child.say(told("own", ncclCommInitAll(&own, 1, nullptr)));
      of_child.say(told("own sum", sum(own)));
      std::exit(0);
    });
    voice.say(child.outcome(kLimit / 2));
    std::ofstream(folder / "forked") << "yes";
    ncclGroupSimulateEnd(nullptr);  // which ends the group and makes none of its calls
    voice.say(told("parent", settle(comm)));
    ncclCommDestroy(comm);
  });
  for (const char* line :
       {"sum: invalid argument: the communicator was made before fork(), in the parent",
        "status: invalid argument: the communicator was made before fork()",
        "group: invalid usage: ncclGroupEnd without ncclGroupStart", "destroy: no error",
        "own: no error", "own sum: no error", "parent: no error"})
    EXPECT_TRUE(has(said[0], line)) << line << " in:\n" << said[0];
  EXPECT_EQ(said[1], "sum: no error\n");
}

TEST(NcclMisuse, ARankThatIsKilled) {
  const TestFolder folder;
  std::vector<Process> processes;
  for (int r = 0; r < 3; r++)
    processes.emplace_back([&, r](const Process::Voice& voice) {
      const ncclComm_t comm = join(folder, 3, r);
      sum(comm);
      voice.say("ready\n");
      if (r == 2) std::this_thread::sleep_for(kLimit);
      voice.say(told("sum", sum(comm, 1 << 20)));
      ncclResult_t error = ncclSuccess;
      ncclCommGetAsyncError(comm, &error);
      voice.say(told("status", error));
      voice.say(told("destroy", ncclCommDestroy(comm)));
    });
  EXPECT_EQ(processes[2].read_some(), "ready\n");
  processes[2].signal(SIGKILL);
  for (size_t r = 0; r < 2; r++) {
    const std::string said = processes[r].outcome(kLimit);
    EXPECT_TRUE(has(said, "sum: remote process exited")) << said;
    EXPECT_TRUE(has(said, "rank 2")) << said;
    EXPECT_TRUE(has(said, "status: remote process exited")) << said;
    EXPECT_TRUE(has(said, "destroy: no error")) << said;
  }
}

TEST(NcclMisuse, CallsThatDiffer) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank);
    voice.say(told("sum", sum(comm, rank == 0 ? 10 : 11)));
    voice.say(told("destroy", ncclCommDestroy(comm)));
  });
  for (const std::string& of_rank : said) {
    EXPECT_TRUE(has(of_rank, "sum: invalid usage: ")) << of_rank;
    EXPECT_TRUE(has(of_rank, "10") && has(of_rank, "11")) << of_rank;
    EXPECT_TRUE(has(of_rank, "destroy: no error")) << of_rank;
  }
}

// The rank that was refused lives on, and does nothing else there.
TEST(NcclMisuse, ASplitAndAShrinkThatOneRankIsRefused) {
  for (const bool shrinks : {false, true}) {
    const TestFolder folder;
    const auto said = run(3, [&](int rank, const Process::Voice& voice) {
      const ncclComm_t comm = join(folder, 3, rank);
      ncclComm_t made = nullptr;
      int excluded = rank == 0 ? 7 : 2;
      if (!shrinks || rank != 2)
        voice.say(told("make", shrinks
                                   ? ncclCommShrink(comm, &excluded, 1, &made, nullptr, 0)
                                   : ncclCommSplit(comm, rank == 0 ? -7 : 0, 0, &made, nullptr)));
      if (rank == 1) std::ofstream(folder / "told") << "yes";
      while (!std::ifstream(folder / "told")) std::this_thread::sleep_for(1ms);
      voice.say(told("destroy", ncclCommDestroy(comm)));
    });
    EXPECT_TRUE(has(said[0], "make: invalid argument: ")) << said[0];
    for (size_t rank = 1; rank < (shrinks ? 2 : 3); rank++) {
      EXPECT_TRUE(has(said[rank], "make: invalid usage: ")) << said[rank];
      EXPECT_TRUE(has(said[rank], "rank 0 was refused it")) << said[rank];
      EXPECT_TRUE(has(said[rank], shrinks ? "rank 7 is no rank" : "color -7")) << said[rank];
      EXPECT_TRUE(has(said[rank], "destroy: no error")) << said[rank];
    }
  }
}

// Nothing waits for the other rank at the end, so what was sent must come although the sender is
// gone.
TEST(NcclMisuse, NothingIsLostWhenTheSenderEndsFirst) {
  const TestFolder folder;
  const auto said = run(2, [&](int rank, const Process::Voice& voice) {
    const ncclComm_t comm = join(folder, 2, rank);
    int x[4] = {1, 2, 3, 4};
    if (rank == 0) {
      voice.say(told("send", ncclSend(x, 4, ncclInt32, 1, comm, nullptr)));
      ncclCommFinalize(comm);
      ncclCommDestroy(comm);
      std::ofstream(folder / "gone") << "yes";
      std::exit(0);
    }
    while (!std::ifstream(folder / "gone")) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);  // more of the sender's end
    int y[4] = {};
    voice.say(told("receive", ncclRecv(y, 4, ncclInt32, 0, comm, nullptr)));
    voice.say(y[3] == 4 ? "whole\n" : "lost\n");
    ncclCommDestroy(comm);
  });
  EXPECT_EQ(said[0], "send: no error\n");
  EXPECT_EQ(said[1], "receive: no error\nwhole\n");
}

}  // namespace
