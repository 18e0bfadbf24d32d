// bootstrap.cpp: see control/rank/bootstrap.hpp.
#include "control/rank/bootstrap.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <sodium.h>

#include "base/log.hpp"
#include "base/process/descriptors.hpp"
#include "control/tree/shape.hpp"
#include "topology/source.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kRetryMs = 50;
constexpr int64_t kResolveRetryMs = 500;
constexpr int64_t kConnectMs = 3000;    // per address and attempt
constexpr int64_t kForeignMs = 2000;    // a rank 0 with another secret: fail after this long
constexpr int64_t kNobodyMs = 2000;     // nobody at a unique id's addresses: likewise
constexpr int64_t kComplainMs = 2000;   // for rank 0 to hear why this rank cannot come
constexpr int64_t kAbortMs = 1000;      // the same where somebody waits for this rank's end
constexpr int64_t kJoinMs = 20'000;     // for the connection to the parent; then rank 0 hears of it
constexpr int64_t kRootLaterMs = 2000;  // rank 0's clock may have started later than ours
constexpr int64_t kStartFailedMs = 1000;  // rank 0 stays this long to tell those that still come
// So long is a rank whose start rank 0's end has cut short there to say so: of those that had
// completed theirs, one asks soon, and after a second (kProbeMs) again.
constexpr int64_t kCutShortMs = 1500;
constexpr const char* kNoSecret =
    "no secret is set, so the job may use the loopback interface only, but {}; set SENNIT_SECRET "
    "(any text, or file:PATH) to the same on all ranks, or SENNIT_INSECURE=1 if anybody on this "
    "network may join the job";

Status no_descriptors(const std::string& what) {
  return {SENNIT_OUT_OF_RESOURCES, fmt::format("{}; {}", what, kDescriptorRemedy)};
}

bool lacks_descriptors(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace

std::string Bootstrap::root_text() const {
  if (!root_text_.empty()) return root_text_;
  return fmt::format("{}:{}", self_.options.root_host, self_.options.root_port);
}

// ---- where rank 0 is ----

Status Bootstrap::prepare() {
  deadline_ms_ = self_.now_ms + self_.options.arrival_timeout_ms;
  if (self_.size == 1) {  // nobody else comes
    close_socket(self_.options.root_listener_fd);
    return {};
  }
  if (self_.rank != 0) return find_root();
  if (self_.options.root_listener_fd < 0) return listen_as_root();
  door_.take_over(self_.options.root_listener_fd);
  return {};
}

// In a cluster that is just coming up rank 0's name may appear only later.
Status Bootstrap::find_root() {
  for (;;) {
    Result<std::vector<Address>> found = resolve(self_.options.root_host, self_.options.root_port);
    if (found) {
      if (!open_to_all())
        for (const Address& address : *found)
          if (!address.loopback())
            return {SENNIT_REFUSED, fmt::format(kNoSecret, fmt::format("rank 0 is to listen on {}",
                                                                       address.text()))};
      roots_.set(std::move(*found));
      return {};
    }
    if (found.status().kind() == SENNIT_INVALID_ARGUMENT ||
        now_ms() + kResolveRetryMs >= deadline_ms_)
      return found.status().with_context("the address of rank 0");
    self_.options.interruption.sleep(std::chrono::milliseconds(kResolveRetryMs));
    if (self_.options.interruption.wanted()) return Interruption::status();
  }
}

Status Bootstrap::listen_as_root() {
  Address own = any_address();
  const Result<std::vector<Address>> found =
      resolve(self_.options.root_host, self_.options.root_port);
  // A name that is not known yet may be, by the time that others ask.
  if (!found && (!open_to_all() || found.status().kind() == SENNIT_INVALID_ARGUMENT))
    return found.status().with_context("the address of rank 0");
  if (!open_to_all()) {
    for (const Address& address : *found)
      if (!address.loopback())
        return {SENNIT_REFUSED,
                fmt::format(kNoSecret, fmt::format("rank 0 is to listen on {}", address.text()))};
    own = found->front();
  }
  const std::string& interface = self_.options.interface;
  if (!interface.empty()) {
    const Result<Address> named = interface_address(interface);
    if (!named) return named.status();
    if (!open_to_all() && !named->loopback())
      return {SENNIT_REFUSED, fmt::format(kNoSecret, "SENNIT_INTERFACE is " + interface)};
    own = *named;
  }
  own.port = self_.options.root_port;
  return door_.open(own);
}

void Bootstrap::begin() {
  if (self_.rank != 0) return;
  if (self_.job == 0) randombytes_buf(&self_.job, sizeof self_.job);
  roster_.begin();
  self_.phase = Phase::joining;
  check_joined();
}

// ---- time ----

void Bootstrap::tick() {
  const int64_t now = self_.now_ms;
  if (self_.rank == 0) {
    if (now >= deadline_ms_) return fail(roster_.missing());
    return self_.due(deadline_ms_);
  }
  if (complaining_until_ms_ != 0) {
    if (now >= complaining_until_ms_) return fail(complaint_);
    self_.due(complaining_until_ms_);
  }
  // Rank 0 says who is missing; this rank's own clock is for when rank 0 cannot be reached, or has
  // gone.
  if (self_.phase == Phase::enlisting && !root_seen_ && now >= deadline_ms_)
    return fail(
        {SENNIT_TIMED_OUT,
         fmt::format("cannot reach rank 0 at {} within {} ms ({}): is it running there, is the "
                     "address right on all ranks, is RANK different on every rank, does a firewall "
                     "let the port through?",
                     root_text(), self_.options.arrival_timeout_ms,
                     last_trouble_.empty() ? "no answer" : last_trouble_)});
  if (with_maker_ && now >= deadline_ms_)
    return fail({SENNIT_TIMED_OUT,
                 fmt::format("rank 0 has not come within {} ms: the process that made the unique "
                             "id, at {}, waits for it as well",
                             self_.options.arrival_timeout_ms, root_text())});
  if (root_seen_ && now >= deadline_ms_)
    return fail(
        {SENNIT_TIMED_OUT, fmt::format("rank 0 at {} does not answer any more{}", root_text(),
                                       last_trouble_.empty() ? "" : " (" + last_trouble_ + ")")});
  self_.due(deadline_ms_);
  if (self_.phase == Phase::enlisting) find_parent();
  if (self_.phase == Phase::joining && joining_since_ms_ != 0 && !tree_.parent()) {
    if (now - joining_since_ms_ >= kJoinMs) return complain_of_parent(last_trouble_);
    if (now >= retry_ms_) join_parent();
    self_.due(retry_ms_);
  }
}

// ---- from rank 0 to the parent ----

// Asks rank 0 for it.
void Bootstrap::find_parent() {
  bool asking = false;
  channels_.for_each(
      [&](const Channel& channel) { asking = asking || channel.role == Role::enlisting; });
  if (asking) return;
  if (self_.now_ms < retry_ms_) return self_.due(retry_ms_);
  const Address& address = roots_.next();
  root_tried_ms_ = self_.now_ms;
  retry_ms_ = self_.now_ms + roots_.pause_ms();
  int error = 0;
  if (Channel* const channel = channels_.connect(address, Role::enlisting, 0, &error)) {
    channel->deadline_ms = self_.now_ms + kConnectMs;
    channel->handshake_time_ms = kStrangerMs;
    if (!channels_.has_spare_descriptor() && complaint_.ok())
      complain(no_descriptors("no file descriptors left to take part in the job"));
  } else if (lacks_descriptors(error)) {
    return fail(no_descriptors("cannot connect to rank 0: no file descriptors left"));
  } else {
    last_trouble_ = std::strerror(error);
    if (error == ECONNREFUSED) return lost_root(End::refused, last_trouble_);
  }
  self_.due(retry_ms_);
}

void Bootstrap::root_opened(Channel& channel) {
  if (roots_.reached(channel.other)) {
    channels_.send(channel, encode(Probe{self_.rank, 0}));  // says that all is well
    channels_.drop(channel.id);
    retry_ms_ = self_.now_ms;
    return self_.due(retry_ms_);
  }
  channel.deadline_ms = 0;  // rank 0 may wait long for our parent
  send_enlist(channel);
}

// `own`: the address of this rank as it is known so far; becomes that where it listens.
Status Bootstrap::listen_as_rank(Address* own) {
  Address address = open_to_all() ? any_address() : *own;
  if (!self_.options.interface.empty()) {
    const Result<Address> named = interface_address(self_.options.interface);
    if (!named) return named.status();
    address = *own = *named;
  }
  address.port = 0;
  const Status opened = door_.open(address);
  if (!opened.ok()) complain(opened);
  return {};
}

void Bootstrap::send_enlist(Channel& channel) {
  root_seen_ = true;
  with_maker_ = false;
  refused_since_ms_ = nobody_since_ms_ = 0;
  // From now on rank 0's clock counts.
  deadline_ms_ =
      std::max(deadline_ms_, self_.now_ms + self_.options.arrival_timeout_ms + kRootLaterMs);
  Address own = channels_.near_end(channel);
  if (!door_.is_open() && complaint_.ok()) {
    if (const Status listening = listen_as_rank(&own); !listening.ok()) return fail(listening);
  } else if (door_.is_open()) {
    if (const Address bound = door_.address(); !bound.wildcard()) own = bound;
  }
  own.port = door_.port();
  channels_.send(channel, encode(Enlist{self_.rank,
                                        self_.size,
                                        self_.options.job,
                                        {own, self_.pid, this_host()},
                                        complaint_,
                                        claims_of(self_)}));
}

void Bootstrap::on_root_at(Channel& channel, const RootAt& message) {
  with_maker_ = message.where == RootAt::Where::unknown;
  if (with_maker_) return;
  std::vector<Address> found = message.addresses;
  if (message.where == RootAt::Where::here) found = {channel.other};
  root_text_ = found.front().text();
  channels_.drop(channel.id);
  roots_ = {};
  roots_.set(std::move(found));
  root_seen_ = false;
  sent_on_ = true;
  retry_ms_ = 0;
  self_.due(self_.now_ms);
}

void Bootstrap::on_enlist(Channel& channel, const Enlist& enlist) {
  if (!roster_.admits(channel, enlist)) return;
  if (failed_) {
    roster_.note_arrival(enlist.rank);
    if (roster_.all_arrived()) departure_.hurry();
    return tell_failure(channel);
  }
  if (!enlist.complaint.ok() && !self_.starting()) return go_on_without(channel, enlist);
  if (enlist.complaint.ok()) {
    roster_.enlist(channel, enlist);
    if (const std::optional<SharedJob> with = roster_.share()) {
      roster_.tell_waiting(encode(Shared{*with}));
      share(*with);
    }
    return;
  }
  roster_.keep(channel, enlist.rank);
  fail(enlist.complaint.with_context(Roster::describe(enlist)));
}

// It lost its parent just when the start was complete here: no reason to end the job.
void Bootstrap::go_on_without(Channel& channel, const Enlist& enlist) {
  const Member& known = census_.members[static_cast<size_t>(enlist.rank)];
  if (known.pid == enlist.member.pid && known.host == enlist.member.host)
    departure_.note_left({enlist.rank});
  channels_.send(channel,
                 encode(StartFailed{enlist.complaint.with_context(Roster::describe(enlist))}));
  dismiss(channels_, channel, self_.now_ms, kClosingMs);
}

bool Bootstrap::on_parent(Channel& channel, const Parent& message) {
  if (message.rank != static_parent(self_.rank)) return false;
  self_.job = message.job;
  parent_address_ = message.address;
  self_.phase = Phase::joining;
  joining_since_ms_ = self_.now_ms;
  if (message.rank == 0) {
    channel.role = Role::parent;
    channel.joined = true;
    tree_.set_parent(channel);
    check_joined();
    return true;
  }
  channels_.drop(channel.id);
  join_parent();
  return true;
}

void Bootstrap::join_parent() {
  retry_ms_ = self_.now_ms + kRetryMs;
  int error = 0;
  const int parent = static_parent(self_.rank);
  Channel* const channel = channels_.connect(parent_address_, Role::parent, parent, &error);
  if (!channel || !channels_.has_spare_descriptor()) {
    if (channel) channels_.drop(channel->id);
    if (channel || lacks_descriptors(error))
      return complain(
          no_descriptors(fmt::format("no file descriptors left to connect to rank {}", parent)));
    last_trouble_ = std::strerror(error);
    return;
  }
  channel->deadline_ms = self_.now_ms + kConnectMs;
  channel->handshake_time_ms = kStrangerMs;
  tree_.set_parent(*channel);
}

// ---- the end of the start ----

void Bootstrap::check_joined() {
  if (self_.phase != Phase::joining) return;
  bool all = true;
  for_each_static_child(self_.rank, self_.size, [&](int child) {
    const Channel* const channel = tree_.child(child);
    all = all && channel && channel->joined;
  });
  if (!all) return;
  if (self_.rank != 0) {
    if (tree_.send_up(encode(Joined{}))) self_.phase = Phase::waiting;
    return;
  }
  if (!leave_start_port()) return;
  tree_.flood_down(encode(roster_.table()));
  complete();
}

// The launcher's port is for starts only. From here on rank 0 listens elsewhere, as every rank
// does, so that the next job of these processes finds the port free while this one lives, and who
// comes early for it waits until its rank 0 listens.
bool Bootstrap::leave_start_port() {
  if (self_.options.root_listener_fd >= 0 || !door_.is_open()) return true;  // of this job alone
  const Status moved = door_.move();
  if (!moved.ok()) fail(moved);
  return moved.ok();
}

void Bootstrap::on_table(const Table& table) {
  self_.job = table.job;
  census_.members = table.members;
  tree_.flood_down(encode(table));
  complete();
}

void Bootstrap::complete() {
  own_address_ = census_.address_of(self_.rank).host();
  self_.phase = Phase::running;
  callers_.start_over({});
}

bool Bootstrap::on_shared(Channel& channel, const Shared& message) {
  const int own = message.with.members[static_cast<size_t>(self_.rank)];
  const std::vector<Membership>& mine = self_.options.memberships;
  const bool known = std::any_of(mine.begin(), mine.end(), [&](const Membership& one) {
    return one.job == message.with.job && one.rank == own;
  });
  if (!known) return false;
  channels_.drop(channel.id);
  share(message.with);
  return true;
}

// There is nothing to connect, and nothing left to do here but to write what was said.
void Bootstrap::share(const SharedJob& with) {
  shared_ = with;
  departure_.close();
  callers_.start_over({});
}

void Bootstrap::tell_failure(Channel& channel) {
  channels_.send(channel, encode(StartFailed{census_.decision}));
  dismiss(channels_, channel, self_.now_ms, kClosingMs);
}

void Bootstrap::fail(const Status& status) {
  if (self_.phase == Phase::closing) return;
  failed_ = true;
  const bool cut_short = self_.phase == Phase::waiting && !tree_.parent();
  const EncodedFrame frame = encode(StartFailed{status});
  tree_.flood_down(frame);
  roster_.tell_waiting(frame);
  if (self_.rank != 0 && (self_.phase == Phase::joining || self_.phase == Phase::waiting))
    tree_.send_up(frame);
  census_.decision = status;
  log(LogLevel::error, "{}", status.text());
  const bool some_may_come =
      self_.rank == 0 && self_.now_ms < deadline_ms_ && !roster_.all_arrived();
  departure_.close_late(some_may_come ? kStartFailedMs : cut_short ? kCutShortMs : kClosingMs);
  callers_.start_over(census_.decision);
}

// ---- trouble ----

// This rank cannot take part: rank 0 is told, and ends the start for everybody with what it was
// told.
void Bootstrap::complain(const Status& what) {
  tree_.drop_parent();
  complaint_ = what;
  complaining_until_ms_ = self_.now_ms + kComplainMs;
  self_.phase = Phase::enlisting;
  retry_ms_ = 0;
  self_.due(self_.now_ms);
}

void Bootstrap::complain_of_parent(const std::string& text) {
  complain(
      {SENNIT_LINK_FAILED, fmt::format("cannot reach its parent, rank {}, at {} ({}): has it "
                                       "died, or is a firewall in between?",
                                       static_parent(self_.rank), parent_address_.text(), text)});
}

// Nobody else can be taken in: everybody is told by the shortest way.
void Bootstrap::out_of_descriptors() {
  if (!self_.starting() || !complaint_.ok()) return;
  take_no_part(no_descriptors("no file descriptors left to take the connections of other ranks"));
}

void Bootstrap::abort(const Status& why) {
  if (!self_.starting()) return;
  const bool reached = self_.rank == 0 || (root_seen_ && !with_maker_);
  if (!reached) return fail(why);
  // A parent whose start is complete knows then that this rank has not died.
  tree_.send_up(encode(Goodbye{self_.rank}));
  if (complaint_.ok()) take_no_part(why);
  complaining_until_ms_ = std::min(complaining_until_ms_, self_.now_ms + kAbortMs);
  self_.due(self_.now_ms + kAbortMs);
}

void Bootstrap::take_no_part(const Status& why) {
  const Status of_this_rank = why.with_context(
      fmt::format("rank {} (host {}, pid {})", self_.rank, this_host(), self_.pid));
  const Channel* const parent = tree_.parent();
  if (self_.rank == 0 || (parent && parent->joined)) return fail(of_this_rank);
  // A complaint goes by a new connection: rank 0 takes it as the first message of one alone. The
  // old one may be its child's by now, whose end without a word would be a death.
  std::vector<uint64_t> asking;
  channels_.for_each([&](Channel& channel) {
    if (channel.role != Role::enlisting) return;
    if (channel.proven && !with_maker_) channels_.send(channel, encode(StartFailed{of_this_rank}));
    asking.push_back(channel.id);
  });
  for (const uint64_t id : asking) channels_.drop(id);
  complain(why);
}

void Bootstrap::lost(const Ending& ending) {
  const std::string& reason = ending.reason;
  last_trouble_ = reason;
  if (ending.end == End::disagrees) return fail({SENNIT_INVALID_ARGUMENT, reason});
  if (ending.end == End::forged)
    return fail({SENNIT_LINK_FAILED,
                 fmt::format("connection to {}: {}", census_.describe(ending.rank), reason)});
  switch (ending.role) {
    case Role::child:
      return fail({SENNIT_PEER_FAILED, fmt::format("{} died during the start ({})",
                                                   census_.describe(ending.rank), reason)});
    case Role::enlisted:
      return roster_.forget_arrival(ending.rank);
    case Role::parent:
      return lost_parent(ending.end, reason);
    case Role::enlisting:
      return lost_root(ending.end, reason);
    default:
      return;
  }
}

void Bootstrap::lost_parent(End end, const std::string& reason) {
  if (static_parent(self_.rank) == 0)
    return fail({SENNIT_PEER_FAILED,
                 fmt::format("rank 0 at {} died during the start ({})", root_text(), reason)});
  const bool was_attached = self_.phase == Phase::waiting || joining_since_ms_ == 0;
  if (was_attached || end == End::refused || end == End::unproven)
    return complain_of_parent(reason);
  retry_ms_ = self_.now_ms + kRetryMs;
  self_.due(retry_ms_);
}

void Bootstrap::lost_root(End end, const std::string& reason) {
  if (self_.now_ms - root_tried_ms_ >= kConnectMs) roots_.was_silent();
  if (end == End::unproven) {
    // Another program's port, or another job's rank 0 that is about to end: give it a moment.
    if (refused_since_ms_ == 0) refused_since_ms_ = self_.now_ms;
    if (self_.now_ms - refused_since_ms_ >= std::min(kForeignMs, self_.options.arrival_timeout_ms))
      return fail({SENNIT_REFUSED, fmt::format("rank 0 at {}: {}", root_text(), reason)});
  }
  if (root_seen_ && end == End::refused) return fail(nobody_there());
  // The port of a unique id is listened on since before there was the id.
  if (end != End::refused) {
    nobody_since_ms_ = 0;
  } else if (self_.options.job != 0) {
    if (nobody_since_ms_ == 0) nobody_since_ms_ = self_.now_ms;
    if (self_.now_ms - nobody_since_ms_ >= std::min(kNobodyMs, self_.options.arrival_timeout_ms))
      return fail(nobody_there());
  }
  self_.due(retry_ms_);
}

Status Bootstrap::nobody_there() const {
  const bool maker = with_maker_ || (!root_seen_ && !sent_on_);
  return {SENNIT_PEER_FAILED,
          maker
              ? fmt::format("the process that made the unique id, at {}, died before rank 0 came, "
                            "or its job is over",
                            root_text())
              : fmt::format("rank 0 at {} died during the start", root_text())};
}

}  // namespace sennit::control
