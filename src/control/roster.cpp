// roster.cpp: the start at rank 0: takes down who has come, tells everybody its parent as soon as
// that has come, makes the table of addresses, and knows who is missing when the time is up.
//
// Strangers have been kept out by the handshake; here ranks are turned away that hold the secret
// and still do not belong: another size, another job, a rank that came twice. Cost: O(1) per rank;
// a waiting rank holds one connection.
#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {

Address ControlPlane::local_address_of_root() const {
  Address own = listener_ >= 0 ? local_address(listener_) : *parse_address("127.0.0.1", 0);
  if (own.wildcard()) own.ip = root_public_ ? root_public_->ip : parse_address("127.0.0.1", 0)->ip;
  return own;
}

void ControlPlane::on_enlist(uint64_t id, Connection& connection, Reader& in) {
  const int peer = in.rank(), size = in.rank();
  const uint64_t job = in.u64();
  Member member{in.address(), static_cast<int>(in.u32()), in.text()};
  const Status complaint = in.u8() != 0 ? in.status() : Status{};
  if (!in.ok() || in.left() != 0 || peer != connection.rank || member.host.size() > 255)
    return lost(id, End::garbage, "a malformed 'enlist'");
  const std::string who = fmt::format("rank {} (host {}, pid {})", peer, member.host, member.pid);
  const auto turn_away = [&](const std::string& text) {
    log(LogLevel::warn, "refused {}: {}", who, text);
    refuse(connection, SENNIT_INVALID_ARGUMENT, text);
  };
  if (size != size_ || peer < 0 || peer >= size_)
    return turn_away(
        fmt::format("{} thinks the job has {} ranks, but rank 0 says {}", who, size, size_));
  if (job != 0 && job != job_)
    return turn_away(fmt::format("{} belongs to another job with the same secret", who));
  if (phase_ == Phase::closing) {
    connection.role = Role::visitor;
    send(connection, Writer(Frame::start_failed).status(decision_).finish());
    arrived_.insert(peer);
    if (arrived_.size() == static_cast<size_t>(size_)) closing_ms_ = kClosingMs;
    return connection.shut();
  }
  if (!complaint.ok()) {
    settle(connection, Role::enlisted, peer);
    enlisted_[peer] = id;
    arrived_.insert(peer);
    return fail_start(complaint.with_context(who));
  }
  if (phase_ >= Phase::running)
    return turn_away(
        fmt::format("the job is complete already, its rank {} is {}", peer, describe_rank(peer)));
  Member& known = members_[static_cast<size_t>(peer)];
  if (arrived_.count(peer) && (known.pid != member.pid || known.host != member.host))
    return turn_away(fmt::format("{} has come twice, first as {}: is RANK different on every rank?",
                                 who, describe_rank(peer)));
  if (const auto before = enlisted_.find(peer); before != enlisted_.end()) drop(before->second);
  known = std::move(member);
  if (!root_public_ && !remote_address(connection.fd()).loopback())
    root_public_ = local_address(connection.fd());
  settle(connection, Role::enlisted, peer);
  const bool first_time = arrived_.insert(peer).second;
  if (peer == 0 || arrived_.count(static_parent(peer)))
    tell_parent(peer, connection);
  else
    enlisted_[peer] = id;
  if (!first_time) return;
  for (int64_t child = int64_t{peer} * kFanOut + 1; child <= int64_t{peer} * kFanOut + kFanOut;
       child++)
    if (const auto waiting = enlisted_.find(static_cast<int>(child)); waiting != enlisted_.end()) {
      if (Connection* other = find(waiting->second)) tell_parent(waiting->first, *other);
      enlisted_.erase(waiting);
    }
}

void ControlPlane::tell_parent(int child, Connection& connection) {
  const int parent = static_parent(child);
  Address address = members_[static_cast<size_t>(parent)].address;
  // A parent on rank 0's own host may know only the loopback address; others reach it where they
  // reach rank 0.
  if (address.loopback() && !remote_address(connection.fd()).loopback())
    address.ip = local_address(connection.fd()).ip;
  send(connection, Writer(Frame::parent).u64(job_).rank(parent).address(address).finish());
  if (parent == 0) {
    connection.role = Role::child;
    children_[child] = connection.id;
  } else {
    connection.role = Role::visitor;  // it closes, having learnt what it came for
    connection.deadline_ms = now_ms_ + kStrangerMs;
  }
}

void ControlPlane::make_table() {
  if (!free_start_port()) return;
  members_[0].address = local_address_of_root();
  if (root_public_)
    for (Member& member : members_)
      if (member.address.loopback()) member.address.ip = root_public_->ip;
  Writer table(Frame::table);
  table.u64(job_);
  std::string host;  // sent where it differs from the rank's before
  for (const Member& member : members_) {
    table.address(member.address)
        .u32(static_cast<uint32_t>(member.pid))
        .text(member.host == host ? "" : member.host);
    host = member.host;
  }
  flood_down(table.finish());
  start_done();
}

Status ControlPlane::missing_status() const {
  std::set<int> missing, unattached;
  for (int r = 0; r < size_; r++)
    if (!arrived_.count(r)) missing.insert(r);
  if (!missing.empty())
    return {SENNIT_TIMED_OUT,
            fmt::format("{} did not come within {} ms ({} of {} ranks are here); look at why they "
                        "did not start, or raise SENNIT_ARRIVAL_TIMEOUT",
                        name_ranks(missing), options_.arrival_timeout_ms, arrived_.size(), size_)};
  for (const int child : static_children()) {
    const auto id = children_.find(child);
    const auto connection =
        id == children_.end() ? connections_.end() : connections_.find(id->second);
    if (connection == connections_.end() || !connection->second->joined) unattached.insert(child);
  }
  return {SENNIT_TIMED_OUT,
          fmt::format("all {} ranks have come, but within {} ms some below {} could not connect to "
                      "their parent in the tree: does a firewall block ports between hosts?",
                      size_, options_.arrival_timeout_ms, name_ranks(unattached))};
}

}  // namespace sennit::control
