// arena_test.cpp: memory that peers can read in place: what is allocated is whole pages that nobody
// else has, comes back, and is seen by a peer through a mapping of its own.
// ctest not-under-tsan: it has one thread
#include "transports/shm/arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/seed.hpp"
#include "transports/shm/registered.hpp"

namespace {
bool g_signals_come = false;
}  // namespace

// In place of the system's: where the test says so, that of a kernel that breaks off at a signal.
extern "C" __attribute__((visibility("default"))) int posix_fallocate(int fd, off_t first,
                                                                      off_t bytes) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (g_signals_come && sigismember(&blocked, SIGALRM) == 0) return EINTR;
  return fallocate(fd, 0, first, bytes) == 0 ? 0 : errno;
}

namespace sennit::shm {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

TEST(Arena, GivesEachPageOnceAndTakesItBack) {
  const std::unique_ptr<Arena> arena = Arena::create(8 * kPage);
  ASSERT_NE(arena, nullptr);
  std::mt19937_64 random(sennit_test::seed());
  std::map<std::byte*, std::pair<size_t, int>> given;  // bytes, and what they were filled with
  for (int i = 0; i < 2000; i++) {
    if (random() % 2 == 0) {
      const size_t bytes = (1 + random() % 3) * kPage;
      auto* const memory = static_cast<std::byte*>(arena->allocate(bytes));
      if (!memory) continue;
      ASSERT_TRUE(arena->contains(memory));
      ASSERT_TRUE(arena->contains(memory + bytes - 1));
      std::memset(memory, i % 256, bytes);
      ASSERT_TRUE(given.emplace(memory, std::pair(bytes, i % 256)).second);
    } else if (!given.empty()) {
      const auto one = std::next(given.begin(), static_cast<ptrdiff_t>(random() % given.size()));
      for (size_t b = 0; b < one->second.first; b += 512)
        ASSERT_EQ(static_cast<int>(one->first[b]), one->second.second)
            << "somebody else wrote there";
      ASSERT_TRUE(arena->free(one->first));
      EXPECT_FALSE(arena->free(one->first)) << "freed twice";
      given.erase(one);
    }
  }
  for (const auto& [memory, what] : given) EXPECT_TRUE(arena->free(memory));
  void* const all = arena->allocate(8 * kPage);
  EXPECT_NE(all, nullptr) << "free neighbours have become one";
  EXPECT_EQ(arena->allocate(kPage), nullptr) << "it is full";
}

// A profiler's timer, say.
TEST(Arena, IsGivenMemoryWhileSignalsCome) {
  const std::unique_ptr<Arena> arena = Arena::create(kPage);
  ASSERT_NE(arena, nullptr);
  g_signals_come = true;
  EXPECT_NE(arena->allocate(kPage), nullptr);
  g_signals_come = false;
}

// Where the kernel would end the process with SIGXFSZ.
TEST(Arena, ThereIsNoneBeyondTheLimitOfAFile) {
  sennit_test::Process process([] {
    const rlimit one_page{kPage, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &one_page);
    testing::internal::CaptureStderr();
    const bool none = Arena::create(2 * kPage) == nullptr;
    return (none ? "none: " : "there: ") + testing::internal::GetCapturedStderr();
  });
  const std::string said = process.outcome();
  EXPECT_EQ(said.find("none: "), 0u) << said;
  EXPECT_NE(said.find("File too large: raise the limit of a file's size (ulimit -f)"),
            std::string::npos)
      << said;
}

TEST(Arena, MapsItsPagesElsewhereAsWell) {
  const std::unique_ptr<Arena> arena = Arena::create(2 * kPage);
  auto* const inside = static_cast<std::byte*>(arena->allocate(kPage));
  auto* const place = static_cast<std::byte*>(std::aligned_alloc(kPage, kPage));
  ASSERT_TRUE(arena->map_at(place, inside, kPage));
  inside[5] = std::byte{77};
  EXPECT_EQ(place[5], std::byte{77});
  place[6] = std::byte{78};
  EXPECT_EQ(inside[6], std::byte{78});
  std::free(place);
}

TEST(Arenas, KnowWhichOneHasIt) {
  Arenas arenas;
  EXPECT_EQ(arenas.holding(&arenas), nullptr);
  EXPECT_FALSE(arenas.free(&arenas));
  void* const memory = arenas.allocate(1);
  ASSERT_NE(memory, nullptr);
  Arena* const arena = arenas.holding(memory);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(arena, arenas.all().at(0).get());
  EXPECT_TRUE(arenas.free(memory));
  EXPECT_FALSE(arenas.free(memory));
}

// A page of a test's own, filled with `content`.
std::byte* map_page(int content) {
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(page, content, kPage);
  return static_cast<std::byte*>(page);
}

TEST(Registrations, AHoleIsFilledAndNothingElse) {
  const std::vector<std::byte> bytes(kPage, std::byte{7});
  std::byte* const page = map_page(1);
  EXPECT_TRUE(fill_hole(page, bytes.data(), kPage));
  EXPECT_EQ(page[kPage - 1], std::byte{1}) << "it was there";
  munmap(page, kPage);
  EXPECT_TRUE(fill_hole(page, bytes.data(), kPage));
  EXPECT_EQ(std::memcmp(page, bytes.data(), kPage), 0);
  page[0] = std::byte{8};
  munmap(page, kPage);
}

// Many a kernel unmaps what a mapping is to replace before it finds that there will be none.
TEST(Registrations, MemoryThatCannotBeSharedIsAsItWas) {
  Arenas arenas;
  Registrations registered(arenas);
  void* const first = arenas.allocate(kPage);  // makes the arena
  ASSERT_NE(first, nullptr);
  const int fd = arenas.holding(first)->fd();
  // In its place a file of the same size that nobody maps to write to.
  const int kept = dup(fd), sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(sealed, static_cast<off_t>(arenas.holding(first)->bytes())), 0);
  ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  std::byte* const page = map_page(5);
  ASSERT_EQ(dup2(sealed, fd), fd);
  EXPECT_EQ(registered.add(page, kPage).kind(), SENNIT_OUT_OF_RESOURCES);
  ASSERT_EQ(dup2(kept, fd), fd);
  for (size_t i = 0; i < kPage; i++) ASSERT_EQ(page[i], std::byte{5});
  page[0] = std::byte{6};
  EXPECT_TRUE(registered.add(page, kPage).ok()) << "once there is something to map";
  EXPECT_EQ(page[0], std::byte{6});
  EXPECT_TRUE(registered.remove(page).ok());
  munmap(page, kPage);
  close(sealed);
  close(kept);
}

// This process takes the part of the peer.
class RemoteArenasTest : public testing::Test {
 protected:
  ArenaBody announced() const {
    return {reinterpret_cast<uint64_t>(arena_->data()), arena_->bytes(), arena_->fd(), 0};
  }
  uint64_t address(size_t offset) const {
    return reinterpret_cast<uint64_t>(arena_->data()) + offset;
  }

  const std::unique_ptr<Arena> arena_ = Arena::create(4 * kPage);
  const ProcessId self_ = this_process();
  RemoteArenas remote_;
};

TEST_F(RemoteArenasTest, AreReadThroughAMappingOfTheirOwn) {
  EXPECT_EQ(remote_.find(self_, address(0), 1), nullptr) << "nothing was announced";
  remote_.add(announced(), arena_->inode());
  auto* const memory = static_cast<std::byte*>(arena_->allocate(kPage));
  memory[10] = std::byte{42};
  const std::byte* const seen = remote_.find(self_, reinterpret_cast<uint64_t>(memory) + 10, 1);
  ASSERT_NE(seen, nullptr);
  EXPECT_NE(seen, memory + 10);
  EXPECT_EQ(*seen, std::byte{42});
  memory[10] = std::byte{43};
  EXPECT_EQ(*seen, std::byte{43});
}

TEST_F(RemoteArenasTest, EndWhereTheArenaEnds) {
  remote_.add(announced(), arena_->inode());
  EXPECT_NE(remote_.find(self_, address(0), 4 * kPage), nullptr);
  EXPECT_EQ(remote_.find(self_, address(0), 4 * kPage + 1), nullptr);
  EXPECT_EQ(remote_.find(self_, address(4 * kPage), 1), nullptr);
  EXPECT_EQ(remote_.find(self_, address(0) - 1, 1), nullptr);
  EXPECT_EQ(remote_.find(self_, address(1), UINT64_MAX), nullptr) << "a length that wraps";
}

// The descriptor's number may have become another file's meanwhile.
TEST_F(RemoteArenasTest, AnotherFileIsNotMapped) {
  remote_.add(announced(), arena_->inode() + 1);
  EXPECT_EQ(remote_.find(self_, address(0), 1), nullptr);
}

}  // namespace
}  // namespace sennit::shm
