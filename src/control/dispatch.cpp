// dispatch.cpp: which frame goes where. A frame that does not fit the connection's role, or whose
// payload does not parse to its very end, ends the connection.
#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {

// The secret is proved in both directions: say what this connection is for.
void ControlPlane::opened(uint64_t id, Connection& connection) {
  switch (connection.role) {
    case Role::enlisting:
      if (try_addresses_again(id, connection)) break;
      connection.deadline_ms = 0;  // rank 0 may wait long for our parent
      send_enlist(connection);
      break;
    case Role::parent:
      connection.deadline_ms = 0;
      send_attach(connection);
      break;
    case Role::probing:
      send(connection, Writer(Frame::probe).rank(rank_).rank(connection.rank).finish());
      break;
    default:
      break;
  }
  (void)id;
}

void ControlPlane::settle(Connection& connection, Role role, int peer) {
  strangers_.erase(connection.id);
  connection.role = role;
  connection.rank = peer;
  connection.deadline_ms = 0;
}

void ControlPlane::refuse(Connection& connection, ErrorKind kind, const std::string& text) {
  connection.role = Role::visitor;
  connection.deadline_ms = now_ms_ + kClosingMs;
  send(connection, Writer(Frame::refuse).status({kind, text}).finish());
  connection.shut();
}

void ControlPlane::dispatch(uint64_t id, Connection& connection, const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    counters_.frames_in++;
  }
  if (phase_ == Phase::closing && connection.role != Role::stranger) return;
  if (connection.role == Role::stranger) return first_frame(id, connection, message);
  Reader in(message.payload);
  const bool expected = tree_frame(id, connection, message.frame, in, message);
  Connection* still = find(id);
  if (!still) return;
  if (!expected || !in.ok())
    lost(id, End::garbage,
         fmt::format("{} sent {} '{}'", describe_rank(still->rank),
                     expected ? "a malformed" : "an unexpected", name(message.frame)));
}

void ControlPlane::first_frame(uint64_t id, Connection& connection, const Message& message) {
  Reader in(message.payload);
  switch (message.frame) {
    case Frame::enlist:
      if (rank_ == 0) return on_enlist(id, connection, in);
      break;
    case Frame::attach:
      return on_attach(id, connection, in);
    case Frame::probe: {
      const int asker = in.rank(), wanted = in.rank();
      if (!in.ok() || asker != connection.rank || wanted != rank_) break;
      connection.role = Role::visitor;
      connection.deadline_ms = now_ms_ + 2 * kProbeMs;
      // A coordinator that was stopped, and has been replaced, learns it this way.
      send(connection, dead_.count(asker) ? decision_frame()
                                          : Writer(Frame::probe_answer).rank(rank_).finish());
      return connection.shut();
    }
    default:
      break;
  }
  lost(id, End::garbage, fmt::format("it opened with '{}'", name(message.frame)));
}

bool ControlPlane::tree_frame(uint64_t id, Connection& connection, Frame frame, Reader& in,
                              const Message& message) {
  const Role role = connection.role;
  const bool up = role == Role::child;     // it comes from below
  const bool down = role == Role::parent;  // it comes from above
  switch (frame) {
    case Frame::heartbeat:
      return up || down;
    case Frame::parent:
      if (role != Role::enlisting) return false;
      on_parent(id, connection, in);
      return true;
    case Frame::refuse:
    case Frame::start_failed: {
      const Status status = in.status();
      if (!in.ok()) return true;
      const std::string& text = status.text();
      if (phase_ < Phase::running) {
        fail_start(status);
      } else if (down) {
        refused_by_parent(connection.rank, text);
      } else if (role == Role::probing) {
        lost(id, End::refused, text);
      }
      return true;
    }
    case Frame::probe_answer: {
      if (role != Role::probing) return false;
      const int answering = in.rank();
      if (!in.ok() || answering != connection.rank) return false;
      drop(id);
      probe_answered(answering);
      return true;
    }
    case Frame::joined:
      if (!up) return false;
      connection.joined = true;
      check_joined();
      return true;
    case Frame::table:
      if (!down || phase_ >= Phase::running) return false;
      on_table(in, message);
      return true;
    case Frame::welcome:
      if (!down) return false;
      on_welcome(connection, in);
      return true;
    case Frame::gather:
      if (!up) return false;
      on_gather(in);
      return true;
    case Frame::gathered:
    case Frame::broadcast:
    case Frame::collective_off:
      if (!down) return false;
      on_collective(frame, in, message);
      return true;
    case Frame::suspect:
      if (!up) return false;
      on_suspect(in);
      return true;
    case Frame::decision:
      if (!up && !down && role != Role::probing) return false;
      on_decision(id, in);
      return true;
    case Frame::link_down:
      if (!down) return false;
      on_link_down(in, message);
      return true;
    case Frame::stall:
      if (!up) return false;
      on_stall(in, message);
      return true;
    case Frame::inquire:
      if (!down) return false;
      on_inquire(in, message);
      return true;
    case Frame::answer:
      if (!up) return false;
      on_answer(in, message);
      return true;
    case Frame::comm_failed:
      if (!down) return false;
      on_comm_failed(in, message);
      return true;
    case Frame::abort_request:
      if (!up) return false;
      on_abort_request(in, message);
      return true;
    case Frame::goodbye:
      if (!up) return false;
      on_goodbye(id, connection, in, message);
      return true;
    case Frame::goodbye_ack:
      if (!down) return false;
      on_goodbye_ack(in, message);
      return true;
    case Frame::leaving:
      if (!down) return false;
      on_leaving(id, connection, in);
      return true;
    default:
      return false;
  }
}

}  // namespace sennit::control
