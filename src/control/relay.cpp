// relay.cpp: see control/relay.hpp.
#include "control/relay.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/process/signals_blocked.hpp"
#include "control/connection.hpp"
#include "control/messages.hpp"
#include "transports/tcp/auth.hpp"

namespace sennit::control {
namespace {

// For a rank 0 of this process to come first: who is served here has to connect twice.
constexpr int64_t kMomentMs = 50;
constexpr int64_t kSentOnMs = 2000;      // for the last word to be read
constexpr int64_t kCannotAcceptMs = 20;  // for want of descriptors or memory
constexpr size_t kMostStrangers = 256;
constexpr size_t kUsedRemembered = 1024;

constexpr char kMakerAlone[] = "a unique id's maker has to be rank 0: {} to wait for others with";

// Rank 0 as it tells the maker: the handshake knows two different ranks only.
constexpr int kRootTells = INT_MAX - 1;

HandshakeConfig handshake_of(const IdSecrets& id, int self) {
  return {.secret = id.secret,
          .purpose = "control",
          .job = 0,
          .self = self,
          .size = INT_MAX,
          .sealed = id.sealed};
}

// The connections to one port, and what was learnt by them.
class Desk {
 public:
  explicit Desk(IdSecrets id) : id_(std::move(id)) {}

  void take_in(uint64_t number, int fd, Poller& poller);
  void serve(uint64_t number, Poller& poller);
  // The port is another's now. `here`: rank 0's, which those that wait are told.
  void close(bool here);
  // Ends what takes too long; returns when to look again.
  int64_t tick(int64_t now);

  bool has(uint64_t number) const { return connections_.contains(number); }
  bool idle() const { return connections_.empty(); }
  bool closed() const { return closed_; }
  bool all_sent_on() const {
    return root_.ranks > 0 && sent_on_.size() + 1 >= static_cast<size_t>(root_.ranks);
  }

 private:
  void hear(Connection& connection, const ReceivedFrame& message);
  void hear_root(Connection& connection, RootAt message);
  void answer(Connection& connection);
  void last_word(Connection& connection, const EncodedFrame& frame);
  void make_room();

  const IdSecrets id_;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  RootAt root_;
  std::set<int> sent_on_;  // ranks
  bool closed_ = false;
};

void Desk::take_in(uint64_t number, int fd, Poller& poller) {
  make_room();
  auto connection = std::make_unique<Connection>(fd, Handshake::acceptor(handshake_of(id_, 0)),
                                                 Role::stranger, -1, false, now_ms());
  connection->id = number;
  connection->deadline_ms = now_ms() + kStrangerMs;
  connection->epoll_events = EPOLLIN;
  poller.add(fd, number, connection->epoll_events);
  connections_[number] = std::move(connection);
  serve(number, poller);
}

// Of the strangers the oldest goes.
void Desk::make_room() {
  const auto stranger = [](const auto& one) { return one.second->role == Role::stranger; };
  const auto count = std::count_if(connections_.begin(), connections_.end(), stranger);
  if (static_cast<size_t>(count) < kMostStrangers) return;
  connections_.erase(std::find_if(connections_.begin(), connections_.end(), stranger));
}

void Desk::serve(uint64_t number, Poller& poller) {
  Connection& connection = *connections_.at(number);
  std::vector<ReceivedFrame> messages;
  connection.drive(&messages, now_ms());
  for (const ReceivedFrame& message : messages) hear(connection, message);
  if (connection.end() != End::none) {
    if (connection.end() == End::unproven || connection.end() == End::disagrees)
      log(LogLevel::warn, "refused a connection to a unique id's port: {}", connection.reason());
    connections_.erase(number);
    return;
  }
  const uint32_t wanted = EPOLLIN | (connection.wants_write() ? uint32_t{EPOLLOUT} : 0);
  if (wanted != connection.epoll_events) poller.change(connection.fd(), number, wanted);
  connection.epoll_events = wanted;
}

void Desk::hear(Connection& connection, const ReceivedFrame& message) {
  if (connection.role == Role::stranger && message.type == FrameType::enlist) {
    const Result<Enlist> enlist = decode<Enlist>(message.payload, INT_MAX);
    if (enlist && enlist->rank == connection.rank) {
      connection.role = Role::enlisted;
      connection.deadline_ms = 0;  // rank 0 may be long in coming
      return answer(connection);
    }
  }
  if (connection.role == Role::stranger && message.type == FrameType::root_at)
    if (Result<RootAt> root = decode<RootAt>(message.payload, INT_MAX); root)
      return hear_root(connection, *std::move(root));
  connection.shut();  // what else there is has no place here
}

void Desk::hear_root(Connection& connection, RootAt message) {
  if (message.where != RootAt::Where::elsewhere || message.ranks < 1) return connection.shut();
  if (root_.where != RootAt::Where::unknown && root_.addresses != message.addresses)
    return last_word(connection, encode(Refuse{{SENNIT_INVALID_ARGUMENT,
                                                "each id starts one job only, and another rank 0 "
                                                "has come with this one"}}));
  root_ = std::move(message);
  last_word(connection, encode(root_));
  for (const auto& [number, other] : connections_)
    if (other->role == Role::enlisted) answer(*other);
}

void Desk::answer(Connection& connection) {
  if (root_.where == RootAt::Where::unknown) return connection.send(encode(root_), now_ms());
  sent_on_.insert(connection.rank);
  last_word(connection, encode(root_));
}

void Desk::last_word(Connection& connection, const EncodedFrame& frame) {
  connection.role = Role::visitor;
  connection.send(frame, now_ms());
  connection.shut();
  connection.deadline_ms = now_ms() + kSentOnMs;
}

void Desk::close(bool here) {
  if (std::exchange(closed_, true)) return;
  root_ = RootAt{here ? RootAt::Where::here : RootAt::Where::unknown, 0, {}};
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool told = it->second->role == Role::visitor;
    if (here && it->second->role == Role::enlisted) answer(*it->second);
    it = told || it->second->role == Role::visitor ? std::next(it) : connections_.erase(it);
  }
}

int64_t Desk::tick(int64_t now) {
  int64_t next = INT64_MAX;
  for (auto it = connections_.begin(); it != connections_.end();) {
    const int64_t deadline = it->second->deadline_ms;
    if (deadline != 0 && now >= deadline) {
      it = connections_.erase(it);
      continue;
    }
    if (deadline != 0) next = std::min(next, deadline);
    ++it;
  }
  return next;
}

}  // namespace

// ---- the thread ----

// Its desks are its own; the ports are shared with those that keep and take them.
class Relay::Thread {
 public:
  Thread(Relay& relay, std::shared_ptr<Poller> poller)
      : relay_(relay), poller_(std::move(poller)) {}
  void run();

 private:
  static constexpr int64_t kMostWaitMs = 60'000;
  static constexpr uint64_t kFirstConnection = uint64_t{1} << 32;  // smaller numbers: ports

  void serve(uint64_t number);
  void accept_at(uint64_t number);
  // Whose port has this number; null: nobody's any more.
  Port* port_of(uint64_t number) SENNIT_REQUIRES(relay_.mutex_);
  int64_t look_at_ports(int64_t now) SENNIT_EXCLUDES(relay_.mutex_);
  int64_t look_at(Port& port, int64_t now) SENNIT_REQUIRES(relay_.mutex_);
  void close_desks() SENNIT_EXCLUDES(relay_.mutex_);
  bool over() SENNIT_EXCLUDES(relay_.mutex_);

  Relay& relay_;
  const std::shared_ptr<Poller> poller_;
  std::map<uint64_t, Desk> desks_;  // by job
  uint64_t next_connection_ = kFirstConnection;
};

void Relay::Thread::run() {
  do {
    const int64_t now = now_ms();
    int64_t next = std::min(now + kMostWaitMs, look_at_ports(now));
    close_desks();
    for (auto& [job, desk] : desks_) next = std::min(next, desk.tick(now));
    std::erase_if(desks_, [](const auto& one) { return one.second.closed() && one.second.idle(); });
    if (desks_.empty()) continue;
    for (const uint64_t number : poller_->wait(std::max<int64_t>(next - now, 0))) serve(number);
  } while (!over());
}

// Who makes an id from now on starts another thread.
bool Relay::Thread::over() {
  if (!desks_.empty()) return false;
  const MutexLock lock(relay_.mutex_);
  for (const auto& [job, port] : relay_.ports_)
    if (!port.origin.forked()) return false;
  relay_.poller_ = nullptr;  // not its end, since this has it, too
  return true;
}

Relay::Port* Relay::Thread::port_of(uint64_t number) {
  for (auto& [job, port] : relay_.ports_)
    if (port.number == number && !port.origin.forked()) return &port;
  return nullptr;
}

// Returns when to look again.
int64_t Relay::Thread::look_at_ports(int64_t now) {
  int64_t next = INT64_MAX;
  std::vector<int> closing;
  {
    const MutexLock lock(relay_.mutex_);
    for (auto it = relay_.ports_.begin(); it != relay_.ports_.end();) {
      Port& port = it->second;
      ++it;
      if (port.origin.forked()) continue;
      const int64_t due = look_at(port, now);
      if (due > now)
        next = std::min(next, due);
      else
        closing.push_back(relay_.remove(port.id.job));
    }
  }
  for (const int listener : closing) close_socket(listener);
  return next;
}

// When to look at it again; not after `now`: it is done with.
int64_t Relay::Thread::look_at(Port& port, int64_t now) {
  const Desk& desk = desks_.try_emplace(port.id.job, port.id).first->second;
  if (!port.polled) {
    if (now < port.since_ms + kMomentMs) return port.since_ms + kMomentMs;
    poller_->add(port.listener, port.number, EPOLLIN);
    port.polled = true;
  }
  if (!desk.idle()) port.news_ms = now;
  if (!desk.all_sent_on()) return port.news_ms + port.patience_ms;
  relay_.remember(port.id.job);
  return now;
}

// Those whose ports are gone.
void Relay::Thread::close_desks() {
  std::vector<std::pair<Desk*, bool>> closing;
  {
    const MutexLock lock(relay_.mutex_);
    for (auto& [job, desk] : desks_)
      if (!relay_.ports_.contains(job))
        closing.emplace_back(&desk, std::ranges::find(relay_.used_, job) != relay_.used_.end());
  }
  for (const auto& [desk, taken] : closing) desk->close(taken);
}

void Relay::Thread::serve(uint64_t number) {
  if (number < kFirstConnection) return accept_at(number);
  for (auto& [job, desk] : desks_)
    if (desk.has(number)) return desk.serve(number, *poller_);
}

void Relay::Thread::accept_at(uint64_t number) {
  for (;;) {
    int listener = -1;
    {
      const MutexLock lock(relay_.mutex_);
      const Port* const port = port_of(number);
      if (!port) return;
      listener = port->listener;
    }
    Address from;
    const int fd = accept_from(listener, &from);
    if (fd < 0 && accept_fails_again(errno))
      std::this_thread::sleep_for(std::chrono::milliseconds(kCannotAcceptMs));
    if (fd < 0) return;
    Desk* desk = nullptr;
    {
      const MutexLock lock(relay_.mutex_);
      if (const Port* const port = port_of(number)) desk = &desks_.at(port->id.job);
    }
    // The port may have been taken in between; who came tries again then, and finds rank 0.
    if (!desk) return close_socket(fd);
    desk->take_in(next_connection_++, fd, *poller_);
  }
}

// ---- the ports ----

Relay& Relay::of_process() {
  static auto* const relay = new Relay;  // its thread may outlive all else
  return *relay;
}

namespace {

// Made before there are threads: a child that is forked while one of them makes it would wait for
// that for ever.
[[maybe_unused]] const Relay& kMadeEarly = Relay::of_process();

}  // namespace

void Relay::keep(IdSecrets id, int listener, int64_t patience_ms) {
  const int64_t now = now_ms();
  {
    const MutexLock lock(mutex_);
    std::erase_if(ports_, [](const auto& one) { return one.second.origin.forked(); });
    const uint64_t job = id.job;
    ports_[job] = {std::move(id), listener, next_number_++, false, now, now, patience_ms, {}};
  }
  wake();
}

// Has the thread look at the ports, and starts it where there is none. Where that cannot be, they
// are left to a rank 0 of this process.
void Relay::wake() {
  auto poller = std::make_shared<Poller>();
  {
    const MutexLock lock(mutex_);
    if (has_thread()) return poller_->ring();
  }
  if (!poller->open()) return log(LogLevel::warn, kMakerAlone, "no file descriptors left");
  const MutexLock lock(mutex_);
  if (has_thread()) return poller_->ring();
  bool begun = true;
  try {
    const SignalsBlocked blocked;
    std::thread([this, poller] { Thread(*this, poller).run(); }).detach();
  } catch (const std::system_error&) {
    begun = false;
  }
  if (!begun) return log(LogLevel::warn, kMakerAlone, "no thread left");
  poller_.swap(poller);  // a parent's ends with this function, without the lock
  origin_ = {};
}

// The port's listener.
int Relay::remove(uint64_t job) {
  const auto found = ports_.find(job);
  if (found == ports_.end() || found->second.origin.forked()) return -1;
  const int listener = found->second.listener;
  if (found->second.polled) poller_->remove(listener);
  ports_.erase(found);
  return listener;
}

int Relay::take(uint64_t job) {
  const MutexLock lock(mutex_);
  const int listener = remove(job);
  if (listener < 0) return -1;
  remember(job);
  if (has_thread()) poller_->ring();
  return listener;
}

void Relay::remember(uint64_t job) {
  if (used_.size() < kUsedRemembered)
    used_.push_back(job);
  else
    used_[next_used_++ % kUsedRemembered] = job;
}

void Relay::forget(uint64_t job) {
  int listener = -1;
  {
    const MutexLock lock(mutex_);
    listener = remove(job);
    if (has_thread()) poller_->ring();
  }
  close_socket(listener);
}

bool Relay::was_used(uint64_t job) {
  const MutexLock lock(mutex_);
  return std::ranges::find(used_, job) != used_.end();
}

// ---- rank 0, elsewhere ----

namespace {

constexpr int64_t kConnectMs = 3000;
constexpr int64_t kAnswerMs = 10'000;
constexpr int64_t kPauseMs = 100;  // between two rounds of all addresses
constexpr int64_t kAskMs = 50;     // between two looks at whether the caller still wants it

// What came of one attempt.
struct Told {
  bool heard = false;   // the maker has taken it down
  bool nobody = false;  // nobody listens there
  bool no_use = false;  // nor will it be otherwise later
  Status why{};
};

Told judge(const Connection& connection, const std::vector<ReceivedFrame>& messages) {
  for (const ReceivedFrame& message : messages) {
    if (message.type == FrameType::root_at) return {.heard = true};
    if (message.type != FrameType::refuse) continue;
    const Result<Refuse> refusal = decode<Refuse>(message.payload, INT_MAX);
    return {.no_use = true, .why = refusal ? refusal->status : refusal.status()};
  }
  Told told{.why = {SENNIT_LINK_FAILED, connection.reason()}};
  told.nobody = connection.end() == End::refused;
  if (connection.end() == End::disagrees)
    told = {.no_use = true, .why = {SENNIT_INVALID_ARGUMENT, connection.reason()}};
  if (connection.end() == End::closed && connection.proven)
    told = {.no_use = true,
            .why = {SENNIT_INVALID_ARGUMENT,
                    "each id starts one job only, and this one's has begun already"}};
  return told;
}

Told tell_at(const Address& address, const IdSecrets& id, const EncodedFrame& frame,
             int64_t deadline_ms, const Interruption& interruption) {
  int error = 0;
  const Result<int> fd = connect_to(address, &error);
  if (!fd) return {.nobody = error == ECONNREFUSED, .why = fd.status()};
  Connection connection(*fd, Handshake::connector(handshake_of(id, kRootTells), 0), Role::enlisting,
                        0, true, now_ms());
  connection.handshake_time_ms = kAnswerMs;
  connection.deadline_ms = now_ms() + kConnectMs;
  connection.send(frame, now_ms());
  std::vector<ReceivedFrame> messages;
  for (;;) {
    const int64_t left = std::min(connection.deadline_ms, deadline_ms) - now_ms();
    if (left <= 0) return {.why = {SENNIT_TIMED_OUT, "no answer"}};
    pollfd entry{*fd, static_cast<short>(POLLIN | (connection.wants_write() ? POLLOUT : 0)), 0};
    if (interruption.wanted()) return {.no_use = true, .why = Interruption::status()};
    if (::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, kAskMs))) <= 0) continue;
    connection.drive(&messages, now_ms());
    if (!messages.empty() || connection.end() != End::none) return judge(connection, messages);
  }
}

}  // namespace

Status tell_maker(const std::vector<Address>& maker, const IdSecrets& id, int ranks,
                  const std::vector<Address>& own, int64_t limit_ms,
                  const Interruption& interruption) {
  RootAt mine{RootAt::Where::elsewhere, ranks, own};
  if (mine.addresses.size() > kMostRootAddresses) mine.addresses.resize(kMostRootAddresses);
  const EncodedFrame frame = encode(mine);
  const int64_t deadline_ms = now_ms() + limit_ms;
  const std::string where =
      fmt::format("the process that made the unique id, at {}:", maker.front().text());
  for (;;) {
    Status last;
    bool nobody = true;
    for (const Address& address : maker) {
      const Told told = tell_at(address, id, frame, deadline_ms, interruption);
      if (told.heard) return {};
      if (told.no_use) return told.why.with_context(where);
      nobody = nobody && told.nobody;
      last = told.why;
    }
    // It has listened since before there was the id.
    if (nobody)
      return {SENNIT_PEER_FAILED,
              where +
                  " nobody listens there; it has ended, or has closed the port because nobody "
                  "came for too long"};
    if (now_ms() + kPauseMs >= deadline_ms)
      return {SENNIT_TIMED_OUT, fmt::format("{} it cannot be reached within {} ms ({})", where,
                                            limit_ms, last.text())};
    interruption.sleep(std::chrono::milliseconds(kPauseMs));
    if (interruption.wanted()) return Interruption::status().with_context(where);
  }
}

}  // namespace sennit::control
