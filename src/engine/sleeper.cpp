// sleeper.cpp: see engine/sleeper.hpp.
#include "engine/sleeper.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/process/descriptors.hpp"

namespace sennit {
namespace {

// Sleeps end by themselves: after this where every transport has a descriptor, else after a nap
// that grows.
constexpr int64_t kLongestSleepNs = 50'000'000;
constexpr int64_t kNapNs = 20'000;
constexpr uint32_t kNapsPerStep = 4;
constexpr int64_t kLongestNapNs = 1'000'000;

int new_bell() { return off_standard_streams(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

}  // namespace

// Most ranks never need another one, and descriptors may be short later.
Sleeper::Sleeper() {
  if (const int bell = new_bell(); bell >= 0) idle_.push_back(bell);
}

Sleeper::~Sleeper() {
  for (const int bell : idle_) close(bell);
}

// False: there was a wake. `bell` stays -1 where there is no descriptor for one.
bool Sleeper::lie_down(uint64_t wakes, int* bell) {
  const MutexLock lock(mutex_);
  if (wakes_ != wakes) return false;
  if (idle_.empty()) {
    *bell = new_bell();
  } else {
    *bell = idle_.back();
    idle_.pop_back();
  }
  if (*bell >= 0) asleep_.push_back(*bell);
  return true;
}

// `wakes`: as they were when it lay down.
void Sleeper::get_up(int bell, uint64_t wakes) {
  if (bell < 0) return;
  const MutexLock lock(mutex_);
  std::erase(asleep_, bell);
  if (wakes_ != wakes) {
    uint64_t rung;
    [[maybe_unused]] const ssize_t n = read(bell, &rung, sizeof rung);
  }
  idle_.push_back(bell);
}

void Sleeper::sleep(const Routes::Descriptors& found, uint32_t naps, uint64_t wakes,
                    int64_t most_ns) {
  int bell = -1;
  if (!lie_down(wakes, &bell)) return;
  std::array<pollfd, 1 + std::tuple_size_v<decltype(found.fds)>> fds;
  fds[0] = {bell, POLLIN, 0};
  for (size_t i = 0; i < found.count; i++) fds[i + 1] = {found.fds[i], POLLIN, 0};
  const int64_t nap_ns = found.all && bell >= 0
                             ? kLongestSleepNs
                             : std::min<int64_t>(kNapNs * (1 + naps / kNapsPerStep), kLongestNapNs);
  const timespec limit{0, std::min(nap_ns, most_ns)};
  ppoll(fds.data(), found.count + 1, &limit, nullptr);
  get_up(bell, wakes);
}

void Sleeper::wake() {
  const MutexLock lock(mutex_);
  wakes_++;
  const uint64_t once = 1;
  for (const int bell : asleep_) {
    [[maybe_unused]] const ssize_t n = write(bell, &once, sizeof once);
  }
}

}  // namespace sennit
