// rendezvous.cpp: the start. Every rank says to rank 0 where it listens ("enlists") and learns
// where its parent is; rank 0's own children keep that connection. When a subtree is attached its
// root tells its parent, and when all is, rank 0 sends the table of addresses down: the start is
// complete.
//
// Rank 0 keeps the clock: when its time is up it tells everybody that came who is missing. Cost:
// two frames and one connection per rank at rank 0, then one frame up and one down each edge of the
// tree.
#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/descriptors.hpp"
#include "base/log.hpp"
#include "control/state.hpp"
#include "topology/source.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kRetryMs = 50, kRetryMaxMs = 500;
constexpr int64_t kEnlistRetryMs = 5;  // at first: rank 0 may be a moment later than the others
constexpr int64_t kForeignMs = 2000;   // a rank 0 with another secret: fail after this long
constexpr int64_t kComplainMs = 2000;  // for rank 0 to hear why this rank cannot come
constexpr int64_t kJoinMs = 20'000;    // for the connection to the parent; then rank 0 hears of it
constexpr const char* kNoSecret =
    "no secret is set, so the job may use the loopback interface only, but {}; set SENNIT_SECRET "
    "(any text, "
    "or "
    "file:PATH) to the same on all ranks, or SENNIT_INSECURE=1 if anybody on this network may join "
    "the job";

}  // namespace

// Runs on the caller's thread: names may take long to resolve, and in a cluster that is just coming
// up rank 0's name may appear only later.
Status ControlPlane::prepare_root() {
  const bool open_to_all = !options_.secret.empty() || options_.insecure;
  if (rank_ == 0 && options_.root_listener_fd >= 0) {
    use_listener(options_.root_listener_fd);
  } else {
    for (;;) {
      Result<std::vector<Address>> found = resolve(options_.root_host, options_.root_port);
      if (found) {
        root_addresses_ = std::move(*found);
        break;
      }
      if (rank_ == 0 && open_to_all) break;  // it listens everywhere anyway
      if (now_ms() + kRetryMaxMs >= start_deadline_ms_ || rank_ == 0)
        return found.status().with_context("the address of rank 0");
      std::this_thread::sleep_for(std::chrono::milliseconds(kRetryMaxMs));
    }
    if (!open_to_all)
      for (const Address& address : root_addresses_)
        if (!address.loopback())
          return {SENNIT_REFUSED,
                  fmt::format(kNoSecret, fmt::format("rank 0 is to listen on {}", address.text()))};
    if (rank_ == 0) {
      Address own = open_to_all ? any_address() : root_addresses_.front();
      if (!options_.interface.empty()) {
        const Result<Address> named = control::interface_address(options_.interface);
        if (!named) return named.status();
        if (!open_to_all && !named->loopback())
          return {SENNIT_REFUSED,
                  fmt::format(kNoSecret, "SENNIT_INTERFACE is " + options_.interface)};
        own = *named;
      }
      own.port = options_.root_port;
      Status error;
      if (!listen(own, &error)) return error;
    }
  }
  return {};
}

// The launcher's port is for starts only. From here on rank 0 listens elsewhere, as every rank
// does, so that the next job of these processes finds the port free while this one lives, and who
// comes early for it waits until its rank 0 listens. The port stays bound, or the kernel might give
// it to any connection that goes out.
bool ControlPlane::free_start_port() {
  if (options_.root_listener_fd >= 0 || listener_ < 0) return true;  // of this job alone
  Address own = local_address(listener_);
  own.port = 0;
  start_port_fd_ = std::exchange(listener_, -1);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, start_port_fd_, nullptr);
  ::shutdown(start_port_fd_, SHUT_RDWR);
  Status error;
  if (listen(own, &error)) return true;
  fail_start(error);
  return false;
}

std::set<int> ControlPlane::static_children() const {
  std::set<int> result;
  const int64_t first = int64_t{rank_} * kFanOut + 1;
  for (int64_t child = first; child < first + kFanOut && child < size_; child++)
    result.insert(static_cast<int>(child));
  return result;
}

void ControlPlane::begin_start() {
  now_ms_ = now_ms();
  if (rank_ != 0) return;
  if (job_ == 0) randombytes_buf(&job_, sizeof job_);
  members_.resize(static_cast<size_t>(size_));
  members_[0] = {local_address_of_root(), pid_, this_host()};
  arrived_.insert(0);
  phase_ = Phase::joining;
  check_joined();
}

void ControlPlane::tick_start(int64_t now) {
  if (rank_ == 0) {
    if (now >= start_deadline_ms_) return fail_start(missing_status());
    return due(start_deadline_ms_);
  }
  if (complaining_since_ms_ != 0) {
    if (now - complaining_since_ms_ >= kComplainMs) return fail_start(complaint_);
    due(complaining_since_ms_ + kComplainMs);
  }
  // Rank 0 says who is missing; this rank's own clock is for when rank 0 cannot be reached, or has
  // gone.
  if (phase_ == Phase::enlisting && !root_seen_ && now >= start_deadline_ms_)
    return fail_start(
        {SENNIT_TIMED_OUT,
         fmt::format(
             "cannot reach rank 0 at {}:{} within {} ms ({}): is it running there, is the "
             "address right on all ranks, is RANK different on every rank, does a firewall let the "
             "port through?",
             options_.root_host, options_.root_port, options_.arrival_timeout_ms,
             last_trouble_.empty() ? "no answer" : last_trouble_)});
  if (root_seen_ && now >= start_deadline_ms_)
    return fail_start(
        {SENNIT_TIMED_OUT,
         fmt::format("rank 0 at {}:{} does not answer any more{}", options_.root_host,
                     options_.root_port, last_trouble_.empty() ? "" : " (" + last_trouble_ + ")")});
  due(start_deadline_ms_);
  if (phase_ == Phase::enlisting) enlist_with_root(now);
  if (phase_ == Phase::joining && joining_since_ms_ != 0 && !find(parent_)) {
    if (now - joining_since_ms_ >= kJoinMs) return complain_of_parent(last_trouble_);
    if (now >= retry_ms_) join_parent();
    due(retry_ms_);
  }
}

void ControlPlane::enlist_with_root(int64_t now) {
  for (const auto& [id, connection] : connections_)
    if (connection->role == Role::enlisting) return;
  if (now < retry_ms_) return due(retry_ms_);
  for (size_t skipped = 0;
       root_found_ && skipped < root_addresses_.size() && root_silent_.count(root_at());)
    root_attempt_++, skipped++;
  const Address& address = root_addresses_[root_at()];
  root_tried_ms_ = now;
  root_attempt_++;
  const int64_t step = kEnlistRetryMs
                       << std::min<size_t>((root_attempt_ - 1) / root_addresses_.size(), 7);
  retry_ms_ = now + std::min(step, kRetryMaxMs);
  int error = 0;
  if (Connection* connection = connect(address, Role::enlisting, 0, &error)) {
    connection->deadline_ms = now + kConnectMs;
    connection->handshake_time_ms = kStrangerMs;
    if (spare_fd_ < 0 && complaint_.ok())
      complain(
          {SENNIT_OUT_OF_RESOURCES,
           fmt::format("no file descriptors left to take part in the job; {}", kDescriptorRemedy)});
  } else if (error == EMFILE || error == ENFILE) {
    return fail_start(
        {SENNIT_OUT_OF_RESOURCES,
         fmt::format("cannot connect to rank 0: no file descriptors left; {}", kDescriptorRemedy)});
  } else {
    last_trouble_ = std::strerror(error);
  }
  due(retry_ms_);
}

// What this rank sends to others will go where this connection went, so all ranks have to take the
// same of rank 0's addresses: the first that works. Rank 0 may have begun to listen between two
// tries, so once it is there what was tried in vain is tried once more, except where nobody
// answered at all.
bool ControlPlane::try_addresses_again(uint64_t id, Connection& connection) {
  if (std::exchange(root_found_, true)) return false;
  const auto at = static_cast<size_t>(
      std::find(root_addresses_.begin(), root_addresses_.end(), connection.other) -
      root_addresses_.begin());
  const auto silent = std::distance(root_silent_.begin(), root_silent_.lower_bound(at));
  if (static_cast<size_t>(silent) == at) return false;
  send(connection, Writer(Frame::probe).rank(rank_).rank(0).finish());  // says that all is well
  drop(id);
  root_attempt_ = 0;
  retry_ms_ = now_ms_;
  due(retry_ms_);
  return true;
}

void ControlPlane::send_enlist(Connection& connection) {
  root_seen_ = true;
  refused_since_ms_ = 0;
  // From now on rank 0's clock counts, which may have started later than ours.
  start_deadline_ms_ = std::max(start_deadline_ms_, now_ms_ + options_.arrival_timeout_ms + 2000);
  Address own = local_address(connection.fd());
  if (listener_ < 0 && complaint_.ok()) {
    const bool open_to_all = !options_.secret.empty() || options_.insecure;
    Address address = open_to_all ? any_address() : own;
    if (!options_.interface.empty()) {
      const Result<Address> named = control::interface_address(options_.interface);
      if (!named) return fail_start(named.status());
      address = own = *named;
    }
    address.port = 0;
    Status error;
    if (!listen(address, &error)) complain(error);
  } else if (listener_ >= 0) {
    if (const Address bound = local_address(listener_); !bound.wildcard()) own = bound;
  }
  own.port = listener_port_;
  Writer frame(Frame::enlist);
  frame.rank(rank_).rank(size_).u64(options_.job).address(own).u32(static_cast<uint32_t>(pid_));
  frame.text(this_host()).u8(!complaint_.ok());
  if (!complaint_.ok()) frame.status(complaint_);
  send(connection, frame.finish());
}

void ControlPlane::on_parent(uint64_t id, Connection& connection, Reader& in) {
  job_ = in.u64();
  const int parent = in.rank();
  parent_address_ = in.address();
  if (!in.ok()) return;
  if (parent != static_parent(rank_)) return in.fail();
  phase_ = Phase::joining;
  joining_since_ms_ = now_ms_;
  if (parent == 0) {
    connection.role = Role::parent;
    connection.joined = true;
    parent_ = id;
    return check_joined();
  }
  drop(id);
  join_parent();
}

void ControlPlane::join_parent() {
  retry_ms_ = now_ms_ + kRetryMs;
  int error = 0;
  Connection* connection = connect(parent_address_, Role::parent, static_parent(rank_), &error);
  if (!connection || spare_fd_ < 0) {
    if (connection) drop(connection->id);
    if (connection || error == EMFILE || error == ENFILE)
      return complain({SENNIT_OUT_OF_RESOURCES,
                       fmt::format("no file descriptors left to connect to rank {}; {}",
                                   static_parent(rank_), kDescriptorRemedy)});
    last_trouble_ = std::strerror(error);
    return;
  }
  connection->deadline_ms = now_ms_ + kConnectMs;
  connection->handshake_time_ms = kStrangerMs;
  parent_ = connection->id;
}

// A child has attached (or this rank has found its parent): is the subtree complete?
void ControlPlane::check_joined() {
  if (phase_ != Phase::joining) return;
  for (const int child : static_children()) {
    const auto id = children_.find(child);
    const Connection* connection = id == children_.end() ? nullptr : find(id->second);
    if (!connection || !connection->joined) return;
  }
  if (rank_ == 0) return make_table();
  if (!send_up(Writer(Frame::joined).finish())) return;
  phase_ = Phase::waiting;
}

void ControlPlane::on_table(Reader& in, const Message& message) {
  job_ = in.u64();
  if (in.left() < static_cast<size_t>(size_) * 26) return in.fail();
  members_.resize(static_cast<size_t>(size_));
  std::string host;
  for (Member& member : members_) {
    member.address = in.address();
    member.pid = static_cast<int>(in.u32());
    if (std::string text = in.text(); !text.empty()) host = std::move(text);
    member.host = host;
  }
  if (!in.ok() || in.left() != 0) return in.fail();
  flood_down(forward(message));
  start_done();
}

void ControlPlane::start_done() {
  own_address_ = members_[static_cast<size_t>(rank_)].address.host();
  phase_ = Phase::running;
  const std::lock_guard lock(mutex_);
  started_ = Status{};
  changed_.notify_all();
}

// This rank cannot take part: rank 0 is told, and ends the start for everybody with what it was
// told.
void ControlPlane::complain(const Status& what) {
  if (parent_ != 0) drop(parent_);
  complaint_ = what;
  complaining_since_ms_ = now_ms_;
  phase_ = Phase::enlisting;
  retry_ms_ = 0;
  due(now_ms_);
}

// The same, by the shortest way.
void ControlPlane::cannot_take_part(const Status& why) {
  const Connection* parent = find(parent_);
  if (rank_ == 0 || (parent && parent->joined)) return fail_start(why);
  complain(why);
}

void ControlPlane::complain_of_parent(const std::string& text) {
  complain({SENNIT_LINK_FAILED, fmt::format("cannot reach its parent, rank {}, at {} ({}): has it "
                                            "died, or is a firewall in between?",
                                            static_parent(rank_), parent_address_.text(), text)});
}

void ControlPlane::fail_start(const Status& status) {
  if (phase_ == Phase::closing) return;
  const Buffer frame = Writer(Frame::start_failed).status(status).finish();
  flood_down(frame);
  for (const auto& [rank, id] : enlisted_)
    if (Connection* connection = find(id)) send(*connection, frame);
  if (phase_ == Phase::joining || phase_ == Phase::waiting) {
    if (Connection* parent = find(parent_); parent && parent->joined && rank_ != 0)
      send(*parent, frame);
  }
  decision_ = status;
  start_failed_ = true;
  if (rank_ == 0 && now_ms_ < start_deadline_ms_ && arrived_.size() < static_cast<size_t>(size_))
    closing_ms_ = kStartFailedMs;
  log(LogLevel::error, "{}", status.text());
  close_all(now_ms_);
  const std::lock_guard lock(mutex_);
  started_ = status;
  changed_.notify_all();
}

void ControlPlane::lost_in_start(Role role, int peer, End end, const std::string& reason) {
  last_trouble_ = reason;
  if (end == End::disagrees) return fail_start({SENNIT_INVALID_ARGUMENT, reason});
  if (end == End::forged)
    return fail_start(
        {SENNIT_LINK_FAILED, fmt::format("connection to {}: {}", describe_rank(peer), reason)});
  if (role == Role::child) {
    const Status status{SENNIT_PEER_FAILED,
                        fmt::format("{} died during the start ({})", describe_rank(peer), reason)};
    return fail_start(status);
  }
  if (role == Role::enlisted) {
    arrived_.erase(peer);
    members_[static_cast<size_t>(peer)] = {};
    return;
  }
  if (role == Role::parent) {
    const bool was_attached = phase_ == Phase::waiting || joining_since_ms_ == 0;
    if (static_parent(rank_) == 0)
      return fail_start(
          {SENNIT_PEER_FAILED, fmt::format("rank 0 at {}:{} died during the start ({})",
                                           options_.root_host, options_.root_port, reason)});
    if (was_attached || end == End::refused || end == End::unproven)
      return complain_of_parent(reason);
    retry_ms_ = now_ms_ + kRetryMs;
    return due(retry_ms_);
  }
  if (role != Role::enlisting) return;
  if (!root_found_ && now_ms_ - root_tried_ms_ >= kConnectMs)
    root_silent_.insert((root_attempt_ - 1) % root_addresses_.size());
  if (end == End::unproven) {
    // Another program's port, or another job's rank 0 that is about to end: give it a moment.
    if (refused_since_ms_ == 0) refused_since_ms_ = now_ms_;
    if (now_ms_ - refused_since_ms_ >= std::min(kForeignMs, options_.arrival_timeout_ms))
      return fail_start({SENNIT_REFUSED, fmt::format("rank 0 at {}:{}: {}", options_.root_host,
                                                     options_.root_port, reason)});
  }
  if (root_seen_ && end == End::refused)
    return fail_start({SENNIT_PEER_FAILED, fmt::format("rank 0 at {}:{} died during the start",
                                                       options_.root_host, options_.root_port)});
  due(retry_ms_);
}

}  // namespace sennit::control
