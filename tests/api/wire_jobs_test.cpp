// Whole jobs with somebody on the path of all their connections, tcp and control alike: one attack
// each, at a random place of a random connection. Sealed, a job either ends in an error or refuses
// what was forged and goes on, and no wrong element is ever handed over with OK. Plain, a flipped
// bit is a wrong sum: what SECURITY.md says of it is true.
//
// connect() of this program goes through a proxy. Ranks are threads. ATTACKS=1000 makes so many
// jobs.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "transports/tcp/seal.hpp"

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

enum class Attack : int { none, flip, repeat, swap, leave_out, cut, leave_out_end };
const char* const kNames[] = {"none",      "flip", "repeat",           "swap",
                              "leave out", "cut",  "leave out the end"};
constexpr auto kEndMs = 300ms;  // what comes within this time is left out as well

// Where, and what.
struct Plan {
  Attack attack = Attack::none;
  size_t connection = 0;  // in the order in which they are made
  bool up = true;         // from the one who connected
  size_t offset = 0;      // of bytes in that direction
  unsigned bit = 0;
};

class Proxy {
 public:
  explicit Proxy(const Plan& plan) : plan_(plan) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_ = loopback(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t length = sizeof address_;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &length);
    current_ = this;
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    current_ = nullptr;
    over_ = true;
    thread_.join();
    for (Relay& relay : relays_)
      for (const int fd : relay.fd)
        if (fd >= 0) close(fd);
    close(listener_);
  }
  bool done() const { return done_; }
  // Nothing came after what was left out: whoever received has seen a connection that ends early.
  bool left_out_the_end() const {
    return plan_.attack == Attack::leave_out && done_ && after_ == 0;
  }
  // The attack was on the last that was sent, which is a goodbye, and ranks that leave look no
  // further: it is as if the connection had been cut there. So is a frame that is cut short, and
  // whose rest the receiver awaits until the connection ends.
  bool at_the_end() const {
    return done_ && (after_ == 0 || (plan_.attack == Attack::leave_out && after_ < left_out_));
  }
  size_t passed(size_t from_connection) {
    const std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (size_t i = from_connection; i < relays_.size(); i++)
      sum += relays_[i].passed[0] + relays_[i].passed[1];
    return sum;
  }
  Clock::duration patience() const { return plan_.attack == Attack::none ? 0s : 2s; }

  // In place of connect(): to the proxy, which remembers by the local port where the way goes on.
  static int divert(int fd, const sockaddr_in& to) {
    Proxy* const proxy = current_;
    if (!proxy) return direct(fd, to);
    sockaddr_in own = loopback(0);
    socklen_t length = sizeof own;
    if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) < 0) return direct(fd, to);
    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length);
    {
      const std::lock_guard lock(proxy->mutex_);
      proxy->ways_[own.sin_port] = to;
    }
    return direct(fd, proxy->address_);
  }

 private:
  struct Relay {
    int fd[2] = {-1, -1};  // of the one who connected, of the other
    size_t passed[2] = {0, 0};
    bool ended[2] = {false, false};
    bool swallows[2] = {false, false};
    std::vector<std::byte> held;  // for a swap
  };

  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static int direct(int fd, const sockaddr_in& to) {
    return static_cast<int>(syscall(SYS_connect, fd, &to, sizeof to));
  }

  void run() {
    while (!over_) {
      std::vector<pollfd> waits{{listener_, POLLIN, 0}};
      for (const Relay& relay : relays_)
        for (int side = 0; side < 2; side++)
          waits.push_back({relay.ended[side] ? -1 : relay.fd[side], POLLIN, 0});
      poll(waits.data(), waits.size(), 5);
      for (size_t i = 1; i < waits.size(); i++)
        if (waits[i].revents) relay((i - 1) / 2, static_cast<int>((i - 1) % 2));
      if (waits[0].revents) accept_one();
    }
  }
  void accept_one() {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    Relay relay;
    relay.fd[0] = accept4(listener_, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC);
    if (relay.fd[0] < 0) return;
    relay.fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to;
    {
      const std::lock_guard lock(mutex_);
      to = ways_[from.sin_port];
    }
    if (direct(relay.fd[1], to) < 0) {
      for (const int fd : relay.fd) close(fd);
      return;
    }
    const std::lock_guard lock(mutex_);
    relays_.push_back(relay);
  }
  void relay(size_t index, int side) {
    Relay& relay = relays_[index];
    std::vector<std::byte> bytes(65536);
    const ssize_t got = recv(relay.fd[side], bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      relay.ended[side] = true;
      shutdown(relay.fd[1 - side], SHUT_WR);
      return;
    }
    bytes.resize(static_cast<size_t>(got));
    const bool attacked = index == plan_.connection && side == (plan_.up ? 0 : 1);
    if (attacked && done_) after_ += bytes.size();
    if (!relay.held.empty()) {
      bytes.insert(bytes.end(), relay.held.begin(), relay.held.end());
      relay.held.clear();
      done_ = true;
    }
    const size_t first = relay.passed[side];
    {
      const std::lock_guard lock(mutex_);
      relay.passed[side] += bytes.size();
    }
    if (relay.swallows[side] && Clock::now() - attacked_ < kEndMs) return;
    if (!tried_ && plan_.attack != Attack::none && attacked && plan_.offset < relay.passed[side]) {
      tried_ = true;
      change(relay, side, bytes, plan_.offset - std::min(plan_.offset, first));
    }
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent =
          send(relay.fd[1 - side], bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<size_t>(sent);
    }
  }
  void change(Relay& relay, int side, std::vector<std::byte>& bytes, size_t at) {
    done_ = plan_.attack != Attack::swap;
    switch (plan_.attack) {
      case Attack::flip:
        bytes[at] ^= static_cast<std::byte>(1u << plan_.bit);
        break;
      case Attack::repeat:
        bytes.insert(bytes.end(), bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end());
        break;
      case Attack::swap:  // what comes next goes first
        relay.held = bytes;
        bytes.clear();
        break;
      case Attack::leave_out_end:
        relay.swallows[side] = true;
        attacked_ = Clock::now();
        bytes.resize(at);
        break;
      case Attack::leave_out:
        left_out_ = bytes.size() - at;
        bytes.resize(at);
        break;
      default:
        bytes.resize(at);
        relay.ended[0] = relay.ended[1] = true;
        for (const int fd : relay.fd) shutdown(fd, SHUT_RDWR);
        (void)side;
    }
  }

  static std::atomic<Proxy*> current_;
  const Plan plan_;
  int listener_ = -1;
  sockaddr_in address_{};
  std::mutex mutex_;
  std::map<uint16_t, sockaddr_in> ways_;  // by the port of the one who connected
  std::vector<Relay> relays_;
  bool tried_ = false;
  Clock::time_point attacked_{};
  std::atomic<bool> done_{false}, over_{false};
  std::atomic<size_t> left_out_{0}, after_{0};  // bytes: of the attack, and that came after it
  std::thread thread_;
};
std::atomic<Proxy*> Proxy::current_{nullptr};

}  // namespace

extern "C" int connect(int fd, const sockaddr* to, socklen_t length) {
  if (to->sa_family != AF_INET) return static_cast<int>(syscall(SYS_connect, fd, to, length));
  sockaddr_in address;
  std::memcpy(&address, to, sizeof address);
  return Proxy::divert(fd, address);
}

namespace {

struct Outcome {
  bool wrong = false;         // elements, with OK
  bool applied = false;       // the attack came to pass
  bool cut = false;           // and was no other than the end of a connection
  bool at_the_end = false;    // of the connection, where it is as good as cut
  std::vector<int> statuses;  // by rank: of the call that failed first
  std::string error, log;
};

constexpr int kRanks = 3;
constexpr size_t kHandshakeBytes = 176;  // in each direction

// Calls until one fails, or for a while after the attack.
void work(int rank, sennit_comm_t comm, const Proxy& proxy, Outcome* outcome, std::mutex* mutex) {
  sennit_status_t status = SENNIT_OK;
  bool wrong = false;
  const auto begin = Clock::now();
  Clock::time_point attacked{};
  for (int call = 0; status == SENNIT_OK && !wrong; call++) {
    const auto now = Clock::now();
    if (attacked == Clock::time_point{} && (proxy.done() || now - begin > proxy.patience()))
      attacked = now;
    const size_t count = call % 4 == 3 ? 60'000 : 40;
    std::vector<int32_t> x(count + 1);
    for (size_t i = 0; i < count; i++) x[i] = static_cast<int32_t>(i) * (rank + 1) + call;
    x[count] = rank == 0 && attacked != Clock::time_point{} && now - attacked > 400ms;
    status = sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_INT32, SENNIT_SUM, comm);
    if (status != SENNIT_OK) break;
    for (size_t i = 0; i < count; i++)
      wrong |= x[i] != static_cast<int32_t>(i) * (kRanks * (kRanks + 1) / 2) + kRanks * call;
    if (x[count] != 0) break;
  }
  const std::lock_guard lock(*mutex);
  outcome->wrong |= wrong;
  outcome->statuses[static_cast<size_t>(rank)] = status;
  if (status != SENNIT_OK) outcome->error = sennit_last_error();
}

Outcome run_job(const Plan& plan) {
  Outcome outcome;
  outcome.statuses.assign(kRanks, SENNIT_OK);
  std::mutex mutex;
  testing::internal::CaptureStderr();
  {
    Proxy proxy(plan);
    sennit_unique_id_t id;
    EXPECT_EQ(sennit_get_unique_id(&id), SENNIT_OK);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; rank++)
      ranks.emplace_back([&, rank] {
        sennit_comm_t comm = nullptr;
        const sennit_status_t status = sennit_comm_init_rank(&comm, kRanks, &id, rank, nullptr);
        if (status == SENNIT_OK) {
          work(rank, comm, proxy, &outcome, &mutex);
          sennit_comm_destroy(comm);
          return;
        }
        const std::lock_guard lock(mutex);
        outcome.statuses[static_cast<size_t>(rank)] = status;
        outcome.error = sennit_last_error();
      });
    for (std::thread& rank : ranks) rank.join();
    outcome.applied = proxy.done();
    outcome.cut = plan.attack == Attack::cut || proxy.left_out_the_end();
    outcome.at_the_end = proxy.at_the_end();
  }
  outcome.log = testing::internal::GetCapturedStderr();
  return outcome;
}

class WireJobs : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SENNIT_TRANSPORTS", "tcp", 1);
    setenv("SENNIT_INTERFACE", "127.0.0.1", 1);
    setenv("SENNIT_HEARTBEAT_TIMEOUT", "2000", 1);
    setenv("SENNIT_ARRIVAL_TIMEOUT", "5000", 1);
    setenv("SENNIT_STALL", "100", 1);
  }
  void TearDown() override { unsetenv("SENNIT_WIRE"); }
};

TEST_F(WireJobs, WithNobodyOnThePathAllIsWell) {
  for (const char* const name : {"SENNIT_HEARTBEAT_TIMEOUT", "SENNIT_ARRIVAL_TIMEOUT"})
    unsetenv(name);  // a busy machine may keep any of them waiting
  for (const char* wire : {"plain", "sealed"}) {
    setenv("SENNIT_WIRE", wire, 1);
    const Outcome outcome = run_job({});
    EXPECT_EQ(outcome.statuses, std::vector<int>(kRanks, SENNIT_OK))
        << wire << ": " << outcome.error;
    EXPECT_FALSE(outcome.wrong);
  }
}

TEST_F(WireJobs, PlainAFlippedBitIsAWrongSum) {
  setenv("SENNIT_WIRE", "plain", 1);
  // The third connection is the first that carries data; 200 kB into it are elements, not a header.
  bool wrong = false;
  for (size_t offset = 200'000; offset < 200'050 && !wrong; offset += 10)
    wrong = run_job({Attack::flip, 2, true, offset, 3}).wrong;
  EXPECT_TRUE(wrong);
}

// Two ranks; `body` gets the rank and its communicator. The first connection is the control
// plane's.
void run_pair(const std::function<void(int, sennit_comm_t)>& body) {
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; rank++)
    ranks.emplace_back([&, rank] {
      sennit_comm_t comm = nullptr;
      ASSERT_EQ(sennit_comm_init_rank(&comm, 2, &id, rank, nullptr), SENNIT_OK)
          << sennit_last_error();
      body(rank, comm);
      sennit_comm_destroy(comm);
    });
  for (std::thread& rank : ranks) rank.join();
}

// The sender has all its bytes with the kernel, and is not in a call: nothing more comes by itself.
// Returns how long it takes to find that the end of its second message was left out, from `offset`.
std::chrono::milliseconds find_the_end_left_out(size_t bytes, size_t offset) {
  Proxy proxy({Attack::leave_out_end, 1, true, offset, 0});
  std::atomic<bool> received{false};
  std::chrono::milliseconds took{};
  run_pair([&](int rank, sennit_comm_t comm) {
    std::vector<char> x(bytes);
    char first = 0;
    if (rank == 0) {
      EXPECT_EQ(sennit_send(&first, 1, SENNIT_INT8, 1, comm), SENNIT_OK);
      EXPECT_EQ(sennit_send(x.data(), x.size(), SENNIT_INT8, 1, comm), SENNIT_OK);
      received.wait(false);
      return;
    }
    EXPECT_EQ(sennit_recv(&first, 1, SENNIT_INT8, 0, comm), SENNIT_OK);
    const auto begin = Clock::now();
    EXPECT_EQ(sennit_recv(x.data(), x.size(), SENNIT_INT8, 0, comm), SENNIT_LINK_FAILED) << bytes;
    const std::string text = sennit_last_error();
    took = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - begin);
    EXPECT_NE(text.find("what came is not what was sent"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
    received = true;
    received.notify_all();
  });
  EXPECT_TRUE(proxy.done());
  return took;
}

TEST_F(WireJobs, TheEndThatIsLeftOutOfAnIdleSendersStreamIsFoundAtOnce) {
  setenv("SENNIT_WIRE", "sealed", 1);
  setenv("SENNIT_ARRIVAL_TIMEOUT", "30000", 1);
  setenv("SENNIT_STALL", "500", 1);
  // In mid-piece, and all of a small message, behind the header and the element of the first.
  constexpr size_t kFirst = 72 + 1 + 16;
  for (const auto& [bytes, offset] :
       {std::pair<size_t, size_t>{200'000, 150'000}, {4, kHandshakeBytes + kFirst}}) {
    const size_t count = bytes, from = offset;
    EXPECT_LT(sennit_test::least_time(5s, [&] { return find_the_end_left_out(count, from); }), 5s);
  }
}

// Whoever waits for a late rank asks with a header now and then, and asks nobody else.
TEST_F(WireJobs, SealedAStallCostsTensOfBytes) {
  setenv("SENNIT_WIRE", "sealed", 1);
  for (const char* const name : {"SENNIT_HEARTBEAT_TIMEOUT", "SENNIT_ARRIVAL_TIMEOUT"})
    unsetenv(name);
  setenv("SENNIT_STALL", "100", 1);
  Proxy proxy({});
  run_pair([&](int rank, sennit_comm_t comm) {
    std::vector<char> x(100'000);
    const auto exchange = [&] {
      return rank == 0 ? sennit_send(x.data(), x.size(), SENNIT_INT8, 1, comm)
                       : sennit_recv(x.data(), x.size(), SENNIT_INT8, 0, comm);
    };
    ASSERT_EQ(exchange(), SENNIT_OK);
    if (rank == 0) {
      std::this_thread::sleep_for(300ms);
      const auto begin = Clock::now();
      const size_t before = proxy.passed(1);
      std::this_thread::sleep_for(2s);  // twenty stalls of the other
      size_t bytes = 0;
      EXPECT_TRUE(sennit_test::eventually([&] {
        bytes = proxy.passed(1) - before;
        return bytes >= 72;
      }));
      const auto stalls = static_cast<size_t>((Clock::now() - begin) / 100ms);
      EXPECT_LE(bytes, stalls * 2 * 72);
    }
    ASSERT_EQ(exchange(), SENNIT_OK) << sennit_last_error();
  });
}

TEST_F(WireJobs, SealedEveryAttackIsFound) {
  setenv("SENNIT_WIRE", "sealed", 1);
  const char* const wanted = std::getenv("ATTACKS");
  const int jobs = wanted ? std::atoi(wanted) : sennit_test::trials(10);
  std::mt19937_64 random(sennit_test::seed());
  int applied = 0, failed = 0, refused = 0;
  // Some attacks come too late, so a few jobs more where the trials are few.
  for (int job = 0; job < jobs || (applied <= jobs / 2 && job < 4 * jobs + 20); job++) {
    sennit::pretend_usable_ciphers(job % 4 == 3 ? 2 : 0);
    Plan plan;
    plan.attack = static_cast<Attack>(1 + job % 5);
    plan.connection = random() % (kRanks - 1 + kRanks * (kRanks - 1) / 2);
    plan.up = random() % 2;
    plan.offset = plan.connection < kRanks - 1 ? random() % 3000 : random() % 300'000;
    plan.bit = random() % 8;
    const auto begin = Clock::now();
    const Outcome outcome = run_job(plan);
    const auto took = std::chrono::duration<double>(Clock::now() - begin).count();
    const std::string what =
        fmt::format("job {}: {} on connection {} {} at byte {}: {}\n{}", job,
                    kNames[static_cast<int>(plan.attack)], plan.connection, plan.up ? "up" : "down",
                    plan.offset, outcome.error, outcome.log);
    ASSERT_FALSE(outcome.wrong) << what;
    if (took > 4) std::printf("%.1f s: %s\n", took, what.c_str());
    if (!outcome.applied) continue;
    applied++;
    const bool error = outcome.statuses != std::vector<int>(kRanks, SENNIT_OK);
    failed += error;
    refused += !error;
    // Found, not waited for in vain.
    const bool of_data = plan.connection >= kRanks - 1 && plan.offset >= kHandshakeBytes;
    EXPECT_TRUE(!of_data || outcome.cut ||
                outcome.statuses == std::vector<int>(kRanks, SENNIT_LINK_FAILED))
        << what;
    // A connection that was cut may be made again by the control plane, which is then no worse off.
    EXPECT_TRUE(outcome.cut || (outcome.at_the_end && !of_data) || error || !outcome.log.empty())
        << what;
  }
  sennit::pretend_usable_ciphers(0);
  std::printf(
      "%d jobs or a few more, %d attacked: %d ended in an error, %d went on without what was "
      "forged; nothing "
      "wrong\n",
      jobs, applied, failed, refused);
  EXPECT_GT(applied, jobs / 2);
}

}  // namespace
