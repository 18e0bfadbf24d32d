// Calls on device memory between processes of a host, on the software GPU: once the peers' devices
// have mapped one another's memory, messages are read where they lie, with the bits that the same
// calls on host memory give. What cannot be mapped goes through pinned memory.
//
// ctest links: soft_gpu
// ctest not-under-tsan: its ranks are processes
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "collectives/algorithm.hpp"
#include "sennit/sennit.h"
#include "tests/accelerator/device_calls.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/seed.hpp"

using namespace std::chrono_literals;

using sennit_test::Arrivals;
using sennit_test::CapturedCalls;
using sennit_test::Collective;
using sennit_test::DeviceBuffer;
using sennit_test::difference;
using sennit_test::kCollectives;
using sennit_test::Processes;
using sennit_test::read_in_devices;

namespace {

constexpr int kRanks = 4;

// A rank of a job, which has a device to itself.
struct Rank {
  int number = 0;
  sennit_comm_t comm = nullptr;
  CUstream stream = nullptr;
};

// A stream of the process's device, and the job's communicator on it. "ok", or what is wrong.
std::string start(Rank& rank) {
  CUcontext context = nullptr;
  REQUIRE(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
  REQUIRE(cuCtxSetCurrent(context) == 0 && cuStreamCreate(&rank.stream, 1) == 0);
  REQUIRE(sennit_comm_init_env(&rank.comm, nullptr) == SENNIT_OK);
  REQUIRE(sennit_comm_set_stream(rank.comm, rank.stream) == SENNIT_OK);
  return "ok";
}

// In each of these processes; what one of them says beside "ok" is a failure.
using Body = std::function<std::string(const Rank&)>;
void in_processes(const Body& body, Processes::Environment environment = {},
                  const std::function<bool(int)>& prepare = {}) {
  environment.try_emplace("SENNIT_TRANSPORTS", "shm");
  environment.try_emplace("SOFT_GPU_SEED", std::to_string(sennit_test::seed()));
  Processes processes(
      kRanks,
      [&](int rank) -> std::string {
        if (prepare && !prepare(rank)) return "skip";
        Rank own{rank};
        std::string told = start(own);
        if (told == "ok") told = body(own);
        if (told != "ok") return told;
        REQUIRE(sennit_comm_finalize(own.comm) == SENNIT_OK);
        sennit_comm_destroy(own.comm);
        return told;
      },
      environment);
  bool skipped = false;
  for (const std::optional<std::string>& report : processes.reports(240s)) {
    skipped |= report == "skip";
    if (report != "skip") {
      EXPECT_EQ(report.value_or("hangs or died"), "ok");
    }
  }
  if (skipped) GTEST_SKIP() << "only root can hide a host's shared memory";
}

std::string all_compared(const Rank& rank, std::mt19937_64& random) {
  for (const size_t count : {1, 1000, 70'001, 300'000})
    for (const Collective& collective : kCollectives)
      for (const sennit_type_t type : {SENNIT_INT32, SENNIT_BFLOAT16}) {
        const std::string told =
            difference(collective, count, type, SENNIT_SUM, rank.comm, rank.stream, random);
        if (!told.empty()) return told;
      }
  return "ok";
}

// Calls until all ranks read where the others have it. In the first peers hear of the memory, and
// what they have mapped before the second is known in the third, or later.
std::string map_all(const Rank& rank) {
  const DeviceBuffer from(std::vector<std::byte>(kRanks * 4096)),
      to(std::vector<std::byte>(kRanks * 4096));
  for (int i = 0; i < 50; i++) {
    const uint64_t before = read_in_devices(rank.comm);
    REQUIRE(sennit_all_to_all(from.data(), to.data(), 4096, SENNIT_UINT8, rank.comm) == SENNIT_OK);
    REQUIRE(cuStreamSynchronize(rank.stream) == 0);
    int32_t own = static_cast<int32_t>(read_in_devices(rank.comm) - before), least = 0;
    REQUIRE(sennit_all_reduce(&own, &least, 1, SENNIT_INT32, SENNIT_MIN, rank.comm) == SENNIT_OK);
    if (least == kRanks - 1) return "ok";
  }
  return "some rank does not read where the others have it";
}

// The same of a rank that is started first.
std::string start_mapped(Rank& rank) {
  std::string told = start(rank);
  return told == "ok" ? map_all(rank) : told;
}

TEST(DeviceProcesses, ReadMessagesWhereTheyLie) {
  in_processes([](const Rank& rank) -> std::string {
    std::mt19937_64 random(sennit_test::seed() + static_cast<uint64_t>(rank.number));
    std::string told = all_compared(rank, random);
    if (told != "ok") return told;
    REQUIRE(read_in_devices(rank.comm) > 100);
    const std::vector<std::byte> factor(8, std::byte{0x3f});
    sennit_op_t op;
    REQUIRE(sennit_op_create_premul_sum(&op, factor.data(), SENNIT_FLOAT32, rank.comm) ==
            SENNIT_OK);
    told = difference(kCollectives[0], 70'001, SENNIT_FLOAT32, op, rank.comm, rank.stream, random);
    REQUIRE(sennit_op_destroy(op, rank.comm) == SENNIT_OK);
    return told.empty() ? "ok" : told;
  });
}

// What is passed on lies in slots, in user's memory, and in parts of both.
TEST(DeviceProcesses, DoSoByEveryAlgorithm) {
  for (const sennit::Algorithm* const algorithm : sennit::algorithms())
    in_processes(
        [](const Rank& rank) -> std::string {
          std::mt19937_64 random(sennit_test::seed() + static_cast<uint64_t>(rank.number));
          for (const Collective& collective : kCollectives)
            for (int i = 0; i < 4; i++) {
              std::string told = difference(collective, 50'000, SENNIT_FLOAT32, SENNIT_MAX,
                                            rank.comm, rank.stream, random);
              if (!told.empty()) return told;
            }
          REQUIRE(read_in_devices(rank.comm) > 0);
          return "ok";
        },
        {{"SENNIT_ALGORITHM", std::string(algorithm->name())}, {"SENNIT_CHUNK_BYTES", "16K"}});
}

// Two ranks share /dev/shm and the others have one each, so that some messages of a call go through
// tcp.
TEST(DeviceProcesses, DoSoBesideNetworkMessages) {
  in_processes(
      [](const Rank& rank) -> std::string {
        std::mt19937_64 random(sennit_test::seed() + static_cast<uint64_t>(rank.number));
        const std::string told = all_compared(rank, random);
        if (told != "ok") return told;
        REQUIRE(rank.number < 2 ? read_in_devices(rank.comm) > 20
                                : read_in_devices(rank.comm) == 0);
        return "ok";
      },
      {{"SENNIT_TRANSPORTS", "shm,tcp"}, {"SENNIT_INTERFACE", "127.0.0.1"}},
      [](int rank) {
        return rank < 2 || (unshare(CLONE_NEWNS) == 0 &&
                            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            mount("shm", "/dev/shm", "tmpfs", 0, nullptr) == 0);
      });
}

TEST(DeviceProcesses, SendAndReceive) {
  in_processes([](const Rank& rank) -> std::string {
    const std::string mapped = map_all(rank);
    if (mapped != "ok") return mapped;
    const uint64_t before_all = read_in_devices(rank.comm);
    const int next = (rank.number + 1) % kRanks, before = (rank.number + kRanks - 1) % kRanks;
    for (uint32_t i = 0; i < 12; i++) {
      const size_t bytes = i % 2 ? 100 : 300'000;
      const auto content = [&](int sender) {
        return std::vector<std::byte>(bytes, static_cast<std::byte>(16 * sender + int(i)));
      };
      const DeviceBuffer from(content(rank.number)), to(std::vector<std::byte>{bytes});
      const int source = i % 4 < 2 ? before : SENNIT_ANY_SOURCE;
      sennit_group_start();
      REQUIRE(sennit_send(from.data(), bytes, SENNIT_UINT8, next, rank.comm) == SENNIT_OK);
      REQUIRE(sennit_recv(to.data(), bytes, SENNIT_UINT8, source, rank.comm) == SENNIT_OK);
      REQUIRE(sennit_group_end() == SENNIT_OK);
      REQUIRE(cuStreamSynchronize(rank.stream) == 0);
      REQUIRE(to.read() == content(before));
      REQUIRE(sennit_barrier(rank.comm) == SENNIT_OK);
    }
    REQUIRE(read_in_devices(rank.comm) > before_all);
    return "ok";
  });
}

// As before anything is mapped, and between hosts: a send's stream goes on before its receive is
// posted.
TEST(DeviceProcesses, SmallMessagesLeaveEarly) {
  in_processes([](const Rank& rank) -> std::string {
    const std::string mapped = map_all(rank);
    if (mapped != "ok") return mapped;
    const int peer = rank.number ^ 1;
    const DeviceBuffer from(std::vector<std::byte>(100, std::byte{7})),
        to(std::vector<std::byte>(100));
    REQUIRE(sennit_send(from.data(), 100, SENNIT_UINT8, peer, rank.comm) == SENNIT_OK);
    REQUIRE(sennit_recv(to.data(), 100, SENNIT_UINT8, peer, rank.comm) == SENNIT_OK);
    REQUIRE(cuStreamSynchronize(rank.stream) == 0);
    REQUIRE(to.read() == std::vector<std::byte>(100, std::byte{7}));
    return "ok";
  });
}

TEST(DeviceProcesses, GoThroughTheHostWhereTheyAreToldTo) {
  // On one rank alone as well, which neither exports nor maps.
  for (const bool all : {true, false})
    in_processes(
        [all](const Rank& rank) -> std::string {
          std::mt19937_64 random(sennit_test::seed() + static_cast<uint64_t>(rank.number));
          for (int i = 0; i < 4; i++) {
            const std::string told = difference(kCollectives[0], 100'000, SENNIT_FLOAT32,
                                                SENNIT_SUM, rank.comm, rank.stream, random);
            if (!told.empty()) return told;
          }
          REQUIRE(!(all || rank.number == 0) || read_in_devices(rank.comm) == 0);
          return "ok";
        },
        {},
        [all](int rank) {
          if (all || rank == 0) setenv("SENNIT_DEVICE_IPC", "0", 1);
          return true;
        });
}

// To map memory might wait for a kernel, which waits for others. So it is not done while one is
// out, and no call waits for it.
TEST(DeviceProcesses, MapNothingWhileKernelsAreOut) {
  in_processes([](const Rank& rank) -> std::string {
    constexpr size_t kCount = 100'000;
    std::vector<int32_t> ones(kCount, 1);
    std::vector<std::byte> content(kCount * sizeof(int32_t));
    std::memcpy(content.data(), ones.data(), content.size());
    const DeviceBuffer buffer(content);
    soft_gpu_hold(rank.stream);
    for (int i = 0; i < 8; i++)
      REQUIRE(sennit_all_reduce(buffer.data(), buffer.data(), kCount, SENNIT_INT32, SENNIT_SUM,
                                rank.comm) == SENNIT_OK);
    soft_gpu_release(rank.stream);
    REQUIRE(cuStreamSynchronize(rank.stream) == 0);
    std::memcpy(ones.data(), buffer.read().data(), content.size());
    REQUIRE(ones == std::vector<int32_t>(kCount, 65536));  // 4 to the 8th
    REQUIRE(read_in_devices(rank.comm) == 0);
    // From now on kernels end in between.
    for (int i = 0; i < 4; i++) {
      REQUIRE(sennit_all_reduce(buffer.data(), buffer.data(), kCount, SENNIT_INT32, SENNIT_MAX,
                                rank.comm) == SENNIT_OK);
      REQUIRE(cuStreamSynchronize(rank.stream) == 0);
      REQUIRE(sennit_barrier(rank.comm) == SENNIT_OK);
    }
    REQUIRE(read_in_devices(rank.comm) > 0);
    return "ok";
  });
}

// Calls of two communicators, each in a stream of its own, and copies of the program's behind them.
std::string copy_between_calls(const Rank& rank) {
  constexpr size_t kBytes = 10'000;
  sennit_comm_t other = nullptr;
  CUstream second = nullptr;
  REQUIRE(sennit_comm_dup(rank.comm, &other) == SENNIT_OK);
  REQUIRE(cuStreamCreate(&second, 1) == 0 && sennit_comm_set_stream(other, second) == SENNIT_OK);
  const std::vector<std::byte> ones(kBytes, std::byte{1}), sums(kBytes, std::byte{64});
  const DeviceBuffer from(ones), to(ones), others(ones);
  for (int i = 0; i < 3; i++) {  // 64 is 4 to the 3rd
    REQUIRE(sennit_all_reduce(from.data(), to.data(), kBytes, SENNIT_UINT8, SENNIT_SUM,
                              rank.comm) == SENNIT_OK);
    REQUIRE(cuMemcpyAsync(from.address(), to.address(), kBytes, rank.stream) == 0);
    REQUIRE(sennit_all_reduce(others.data(), others.data(), kBytes, SENNIT_UINT8, SENNIT_SUM,
                              other) == SENNIT_OK);
  }
  REQUIRE(cuStreamSynchronize(rank.stream) == 0 && cuStreamSynchronize(second) == 0);
  REQUIRE(from.read() == sums && others.read() == sums);
  sennit_comm_destroy(other);
  return "ok";
}

TEST(DeviceProcesses, EndWhereAllStreamsShareAQueue) {
  in_processes(copy_between_calls, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}});
}

TEST(DeviceProcesses, EndWhereLaunchesBlock) {
  in_processes(copy_between_calls, {{"CUDA_LAUNCH_BLOCKING", "1"}});
}

TEST(DeviceProcesses, GraphsReadMessagesWhereTheyLie) {
  in_processes([](const Rank& rank) -> std::string {
    const std::string mapped = map_all(rank);
    if (mapped != "ok") return mapped;
    constexpr size_t kCount = 50'000;
    std::vector<int32_t> ones(kCount, 1);
    std::vector<std::byte> content(kCount * sizeof(int32_t));
    std::memcpy(content.data(), ones.data(), content.size());
    const DeviceBuffer buffer(content);
    {
      sennit_status_t called = SENNIT_INTERNAL;
      const CapturedCalls graph(rank.stream, [&] {
        called = sennit_all_reduce(buffer.data(), buffer.data(), kCount, SENNIT_INT32, SENNIT_SUM,
                                   rank.comm);
      });
      REQUIRE(called == SENNIT_OK);
      const uint64_t before = read_in_devices(rank.comm);
      for (int i = 0; i < 6; i++) graph.launch(rank.stream);
      REQUIRE(cuStreamSynchronize(rank.stream) == 0);
      std::memcpy(ones.data(), buffer.read().data(), content.size());
      REQUIRE(ones == std::vector<int32_t>(kCount, 4096));  // 4 to the 6th
      REQUIRE(read_in_devices(rank.comm) > before);
    }
    return "ok";
  });
}

// The peers' kernels read memory whose process is gone, or wait for it: they end, and say so.
TEST(DeviceProcesses, OutliveOneThatIsKilled) {
  constexpr int kVictim = 1;
  Processes processes(kRanks,
                      [&](int number) -> std::string {
                        Rank rank{number};
                        if (std::string told = start_mapped(rank); told != "ok") return told;
                        const DeviceBuffer buffer(std::vector<std::byte>(4 << 20));
                        if (number == kVictim)
                          std::thread([] {
                            std::this_thread::sleep_for(50ms);
                            raise(SIGKILL);
                          }).detach();
                        sennit_status_t status = SENNIT_OK;
                        for (int i = 0; i < 100'000 && status == SENNIT_OK; i++) {
                          status = sennit_all_reduce(buffer.data(), buffer.data(), 1 << 20,
                                                     SENNIT_INT32, SENNIT_SUM, rank.comm);
                          REQUIRE(cuStreamSynchronize(rank.stream) == 0);
                          if (status == SENNIT_OK) status = sennit_comm_get_async_error(rank.comm);
                        }
                        REQUIRE(status == SENNIT_PEER_FAILED || status == SENNIT_LINK_FAILED);
                        return "ok";
                      },
                      {{"SENNIT_TRANSPORTS", "shm"}});
  const std::vector<std::optional<std::string>> reports = processes.reports(240s);
  for (int rank = 0; rank < kRanks; rank++)
    if (rank != kVictim) {
      EXPECT_EQ(reports[static_cast<size_t>(rank)].value_or("hangs or died"), "ok");
    }
}

// A kernel that was given up may still be in a stream that is stuck. Nobody waits for that: to let
// go of what peers' devices export is left for later.
TEST(DeviceProcesses, EndWhileAStreamIsStuck) {
  Arrivals called;
  Processes processes(kRanks,
                      [&](int number) -> std::string {
                        Rank rank{number};
                        if (std::string told = start_mapped(rank); told != "ok") return told;
                        const DeviceBuffer buffer(std::vector<std::byte>(4000));
                        soft_gpu_hold(rank.stream);
                        REQUIRE(sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_INT32,
                                                  SENNIT_SUM, rank.comm) == SENNIT_OK);
                        called.add();
                        REQUIRE(called.await(kRanks, 120s));
                        if (number == 0) sennit_comm_abort(rank.comm);
                        while (sennit_comm_get_async_error(rank.comm) == SENNIT_OK)
                          std::this_thread::sleep_for(1ms);
                        REQUIRE(sennit_comm_destroy(rank.comm) == SENNIT_OK);
                        soft_gpu_release(rank.stream);
                        REQUIRE(cuStreamSynchronize(rank.stream) == 0);
                        return "ok";
                      },
                      {{"SENNIT_TRANSPORTS", "shm"}});
  for (const std::optional<std::string>& report : processes.reports(240s))
    EXPECT_EQ(report.value_or("hangs or died"), "ok");
}

}  // namespace
