// memory_left_test.cpp: how much memory there is, by the machine and by cgroups, and that the
// library takes no more: what asks for more is refused, and nobody is killed. Where the kernel lets
// us, in a real cgroup.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/process/memory_left.hpp"
#include "engine/engine.hpp"
#include "sennit/sennit.h"
#include "tests/support/process.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/support/trials.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// ---- what is read ----

class MemoryLeftOf : public testing::Test {
 protected:
  MemoryLeftOf() {
    write("/proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void cgroup2(const std::string& folder, const std::string& limit, uint64_t used,
               uint64_t cache = 0) {
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(used) + "\n");
    write(folder + "/memory.stat",
          fmt::format("anon 7\nfile 9\ninactive_file {}\nactive_file 0\n", cache));
  }
  MemoryLeft left() const { return memory_left(root_.path()); }

  trainer::TestFolder root_;
};

TEST_F(MemoryLeftOf, TheMachineWithoutCgroups) {
  EXPECT_EQ(left().bytes, 2048 * kMiB);
  EXPECT_EQ(left().limit, "this machine");
}

TEST_F(MemoryLeftOf, TheNarrowestOfNestedCgroups) {
  write("/proc/self/cgroup", "0::/jobs/7/rank\n");
  write("/proc/self/mountinfo",
        "24 1 0:22 / /proc rw - proc proc rw\n31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - "
        "cgroup2 "
        "cgroup2 rw\n");
  cgroup2("/sys/fs/cgroup/jobs/7/rank", "max", 300 * kMiB);
  cgroup2("/sys/fs/cgroup/jobs/7", std::to_string(1024 * kMiB), 900 * kMiB, 100 * kMiB);
  cgroup2("/sys/fs/cgroup/jobs", std::to_string(4096 * kMiB), 3000 * kMiB);
  EXPECT_EQ(left().bytes, (1024 - 900 + 100) * kMiB);
  EXPECT_NE(left().limit.find("cgroup /jobs/7 (1 GiB)"), std::string::npos) << left().limit;
  cgroup2("/sys/fs/cgroup/jobs", std::to_string(4096 * kMiB), 4096 * kMiB);
  EXPECT_EQ(left().bytes, 0u);
  EXPECT_NE(left().limit.find("cgroup /jobs ("), std::string::npos) << left().limit;
}

TEST_F(MemoryLeftOf, AContainerThatSeesItsOwnGroupOnly) {
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n");
  cgroup2("/sys/fs/cgroup", std::to_string(100 * kMiB), 60 * kMiB);
  EXPECT_EQ(left().bytes, 40 * kMiB);
}

TEST_F(MemoryLeftOf, TheFirstVersion) {
  write("/proc/self/cgroup", "9:cpu,cpuacct:/\n4:hugetlb,memory:/docker/abc/job\n0::/\n");
  write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,hugetlb,memory\n"
        "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string folder = "/sys/fs/cgroup/memory/job/";
  write(folder + "memory.limit_in_bytes", "9223372036854771712\n");
  write(folder + "memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(left().limit, "this machine");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(512 * kMiB));
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(500 * kMiB));
  write("/sys/fs/cgroup/memory/memory.stat",
        fmt::format("inactive_file 1\ntotal_inactive_file {}\ntotal_active_file {}\n", 8 * kMiB,
                    4 * kMiB));
  EXPECT_EQ(left().bytes, 24 * kMiB);
  EXPECT_NE(left().limit.find("cgroup /docker/abc ("), std::string::npos) << left().limit;
}

// On a machine that is nearly full little things go on; what is refused is told what is truly left.
TEST_F(MemoryLeftOf, LittleIsTakenWithoutALook) {
  write("/proc/meminfo", "MemAvailable: 10240 kB\n");
  const auto take = [](size_t, size_t) { return true; };
  EXPECT_TRUE(take_memory(32 << 10, take, root_.path()).ok());
  const Status refused = take_memory(1 * kMiB, take, root_.path());
  EXPECT_EQ(refused.kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_NE(refused.text().find("this machine leaves 10 MiB, and 16 MiB stay free"),
            std::string::npos)
      << refused.text();
}

// What one look allowed is soon another's.
TEST_F(MemoryLeftOf, ALookAges) {
  const auto take = [](size_t, size_t) { return true; };
  ASSERT_TRUE(take_memory(1 * kMiB, take, root_.path()).ok());  // 30 MiB more are allowed
  write("/proc/meminfo", "MemAvailable: 10240 kB\n");
  bool refused = false;
  for (int i = 0; i < 100 && !refused; i++) {
    refused = !take_memory(64 << 10, take, root_.path()).ok();
    usleep(20'000);
  }
  EXPECT_TRUE(refused);
}

// ---- what is taken ----

// A cgroup of `bytes`; empty where none can be made.
class Cgroup {
 public:
  explicit Cgroup(uint64_t bytes) {
    const std::string name = fmt::format("sennit-test-{}", getpid());
    for (const auto& [parent, limit] : {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                        std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      const std::string folder = fmt::format("{}/{}", parent, name);
      if (mkdir(folder.c_str(), 0700) != 0) continue;
      std::ofstream file(folder + "/" + limit);
      if (file << bytes << std::flush) {
        folder_ = folder;
        return;
      }
      rmdir(folder.c_str());
    }
  }
  ~Cgroup() {
    for (int i = 0; i < 1000 && made() && rmdir(folder_.c_str()) != 0; i++) usleep(1000);
  }
  bool made() const { return !folder_.empty(); }
  bool enter() const {
    std::ofstream file(folder_ + "/cgroup.procs");
    return static_cast<bool>(file << getpid() << std::flush);
  }

 private:
  std::string folder_;
};

template <typename F>
std::string in_process(F&& body) {
  return sennit_test::Process(body).outcome();
}

// One rank of a job of `size` threads asks for more than there is, then for little.
std::string too_much_then_little(int size, size_t too_much, const char* limit) {
  std::vector<sennit_comm_t> comms(static_cast<size_t>(size));
  if (sennit_comm_init_local(comms.data(), size, nullptr) != SENNIT_OK) return sennit_last_error();
  void* memory = nullptr;
  if (sennit_mem_alloc(comms[0], too_much, &memory) != SENNIT_OUT_OF_RESOURCES)
    return "it is not refused";
  const std::string told = sennit_last_error();
  if (told.find(limit) == std::string::npos || told.find("no memory for") == std::string::npos)
    return told;
  if (memory) return "the output was set";
  const size_t little = 32 * kMiB;
  if (sennit_mem_alloc(comms[0], little, &memory) != SENNIT_OK) return sennit_last_error();
  std::memset(memory, 1, little);
  if (sennit_mem_free(comms[0], memory) != SENNIT_OK) return sennit_last_error();
  for (const sennit_comm_t comm : comms) sennit_comm_destroy(comm);
  return "";
}

TEST(MemoryTaken, NoMoreThanTheCgroupHas) {
  const Cgroup cgroup(400 * kMiB);
  if (!cgroup.made()) GTEST_SKIP() << "no cgroup can be made here";
  for (const char* transports : {"shm", "tcp"})
    EXPECT_EQ(in_process([&]() -> std::string {
                setenv("SENNIT_TRANSPORTS", transports, 1);
                if (!cgroup.enter()) return "cannot enter the cgroup";
                return too_much_then_little(2, 600 * kMiB, "cgroup");
              }),
              "")
        << transports;
}

// All together would fit into what is left, as each of them sees it.
TEST(MemoryTaken, ByRanksThatAskAtOnce) {
  const Cgroup cgroup(400 * kMiB);
  if (!cgroup.made()) GTEST_SKIP() << "no cgroup can be made here";
  std::vector<sennit_test::Process> ranks;
  for (int r = 0; r < 4; r++)
    ranks.emplace_back([&]() -> std::string {
      if (!cgroup.enter()) return "cannot enter the cgroup";
      sennit_comm_t comm = nullptr;
      if (sennit_comm_init_local(&comm, 1, nullptr) != SENNIT_OK) return sennit_last_error();
      void* memory = nullptr;
      const sennit_status_t status = sennit_mem_alloc(comm, 200 * kMiB, &memory);
      if (status == SENNIT_OK) usleep(200'000);
      return status == SENNIT_OK || status == SENNIT_OUT_OF_RESOURCES ? "" : sennit_last_error();
    });
  for (sennit_test::Process& rank : ranks) EXPECT_EQ(rank.outcome(), "");
}

TEST(MemoryTaken, ScratchIsRefusedAlike) {
  const Cgroup cgroup(400 * kMiB);
  if (!cgroup.made()) GTEST_SKIP() << "no cgroup can be made here";
  EXPECT_EQ(in_process([&]() -> std::string {
              if (!cgroup.enter()) return "cannot enter the cgroup";
              Engine engine(false, 1 << 20, 1'000'000'000, {});
              const MutexLock lock(engine.mutex());
              const Result<MemoryPool::Scratch> much = engine.allocate_scratch(600 * kMiB);
              if (much.ok() || much.status().text().find("cgroup") == std::string::npos)
                return "not refused";
              const Result<MemoryPool::Scratch> little = engine.allocate_scratch(kMiB);
              if (!little) return little.status().text();
              engine.free_scratch(*little);
              return "";
            }),
            "");
}

TEST(MemoryTaken, AddressSpaceIsALimit) {
  if (sennit_test::kSanitized)
    GTEST_SKIP() << "a sanitizer takes more addresses than any limit allows";
  EXPECT_EQ(in_process([&]() -> std::string {
              const rlimit limit{3000 * kMiB, 3000 * kMiB};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
              return too_much_then_little(2, 4000 * kMiB, "RLIMIT_AS");
            }),
            "");
}

}  // namespace
}  // namespace sennit
