// sleeper.cpp: see engine/sleeper.hpp.
#include "engine/sleeper.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace sennit {
namespace {

// Sleeps end by themselves: after this where every transport has a descriptor, else after a nap
// that grows.
constexpr int64_t kLongestSleepNs = 50'000'000;
constexpr int64_t kNapNs = 20'000;
constexpr uint32_t kNapsPerStep = 4;
constexpr int64_t kLongestNapNs = 1'000'000;

}  // namespace

Sleeper::Sleeper() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)) {}

Sleeper::~Sleeper() {
  if (fd_ >= 0) close(fd_);
}

void Sleeper::sleep(const Routes::Descriptors& found, uint32_t naps) const {
  std::array<pollfd, 1 + std::tuple_size_v<decltype(found.fds)>> fds;
  fds[0] = {fd_, POLLIN, 0};
  for (size_t i = 0; i < found.count; i++) fds[i + 1] = {found.fds[i], POLLIN, 0};
  const int64_t nap_ns = found.all
                             ? kLongestSleepNs
                             : std::min<int64_t>(kNapNs * (1 + naps / kNapsPerStep), kLongestNapNs);
  const timespec limit{0, nap_ns};
  if (ppoll(fds.data(), found.count + 1, &limit, nullptr) > 0 && (fds[0].revents & POLLIN)) {
    uint64_t value;
    [[maybe_unused]] const ssize_t n = read(fd_, &value, sizeof value);
  }
}

void Sleeper::wake(uint64_t sleepers) const {
  [[maybe_unused]] const ssize_t n = write(fd_, &sleepers, sizeof sleepers);
}

}  // namespace sennit
