// plane.cpp: see control/rank/plane.hpp.
#include "control/rank/plane.hpp"

#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace sennit::control {

Plane::Plane(Self& self, Network& network, Door& door, Callers& callers)
    : self_(self),
      network_(network),
      census_(self),
      tree_(self, census_, network, *this),
      announcements_(self.rank),
      links_(self, census_, tree_, announcements_, callers),
      failures_(self, census_, network, tree_, links_, callers, *this),
      departure_(self, census_, network, door, tree_, failures_),
      bootstrap_(self, census_, network, door, tree_, departure_, callers),
      collectives_(self, tree_, callers),
      calls_(self, census_, tree_, announcements_) {}

void Plane::suspect_broken(int rank, const std::string& what) { suspect(rank, kBroken, what); }

void Plane::abort(uint32_t comm, const std::string& why) {
  calls_.fail(comm, {SENNIT_ABORTED,
                     fmt::format("communicator {} was aborted by {}{}{}", comm,
                                 census_.describe(self_.rank), why.empty() ? "" : ": ", why)});
}

// ---- time ----

void Plane::tick() {
  if (self_.starting()) bootstrap_.tick();
  if (self_.phase != Phase::closing) {
    collectives_.tick();
    tree_.tick();
    failures_.tick();
    calls_.tick();
  }
  departure_.tick();
}

void Plane::excuse(int64_t gap_ms) {
  failures_.excuse(gap_ms);
  tree_.excuse(gap_ms);
  calls_.excuse(gap_ms);
  departure_.excuse(gap_ms);
}

// ---- links ----

// The secret is proved in both directions: say what this connection is for.
void Plane::opened(Link& link) {
  if (link.role == Role::enlisting) return bootstrap_.root_opened(link);
  if (link.role == Role::parent) return tree_.parent_opened(link);
  if (link.role == Role::probing) return failures_.probe_opened(link);
}

void Plane::dropped(const Link& link) {
  tree_.forget(link);
  bootstrap_.forget(link);
}

void Plane::ended(const Ending& ending) {
  // Whoever has proved itself and is set up otherwise can never come: all are told now, not when
  // time is up.
  if (ending.role == Role::stranger && ending.end == End::disagrees && self_.starting())
    return bootstrap_.lost(ending);
  if (self_.phase == Phase::closing || ending.role == Role::stranger ||
      ending.role == Role::visitor)
    return;
  if (self_.starting()) return bootstrap_.lost(ending);
  if (ending.role == Role::probing)
    return failures_.probe_ended(ending.rank, ending.end, ending.reason);
  // Frames may be lost, and what is done to this connection will be done to the next: the job ends,
  // and says why.
  if (ending.end == End::forged) suspect(ending.rank, kBroken, ending.reason);
  if (ending.role == Role::parent)
    return tree_.parent_lost(ending.rank, ending.joined, ending.end, ending.reason);
  if (ending.role == Role::child && !ending.said_goodbye)
    suspect(ending.rank, ending.end == End::unreachable ? kSilent : kClosed, ending.reason);
}

// ---- frames ----

template <typename T, typename Handle>
Plane::Taken Plane::take(const Message& message, Handle handle) {
  Result<T> value = decode<T>(message.payload, self_.size);
  if (!value) return Taken::malformed;
  if constexpr (std::is_void_v<std::invoke_result_t<Handle, T>>) {
    handle(std::move(*value));
    return Taken::yes;
  } else {
    return handle(std::move(*value)) ? Taken::yes : Taken::malformed;
  }
}

void Plane::arrived(Link& link, const Message& message) {
  if (link.role == Role::stranger) return first_frame(link, message);
  if (self_.phase == Phase::closing) return;
  const uint64_t id = link.id;
  const Taken taken = frame_of(link, message);
  const Link* const still = network_.find(id);
  if (!still || taken == Taken::yes) return;
  network_.lost(id, End::garbage,
                fmt::format("{} sent {} '{}'", census_.describe(still->rank),
                            taken == Taken::malformed ? "a malformed" : "an unexpected",
                            name(message.frame)));
}

// What a connection is for. Who says that it is somebody else than it has proved to be is turned
// away.
void Plane::first_frame(Link& link, const Message& message) {
  Taken taken = Taken::unexpected;
  if (message.frame == Frame::enlist && self_.rank == 0)
    taken = take<Enlist>(message, [&](const Enlist& enlist) {
      if (enlist.rank != link.rank) return false;
      bootstrap_.on_enlist(link, enlist);
      return true;
    });
  if (message.frame == Frame::attach)
    taken = take<Attach>(message, [&](const Attach& attach) {
      if (attach.rank != link.rank) return false;
      if (bootstrap_.failed())
        bootstrap_.tell_failure(link);
      else
        tree_.on_attach(link, attach);
      return true;
    });
  if (message.frame == Frame::probe)
    taken = take<Probe>(message, [&](const Probe& probe) { return on_probe(link, probe); });
  if (taken == Taken::yes) return;
  network_.lost(link.id, End::garbage,
                taken == Taken::malformed
                    ? fmt::format("a malformed '{}'", name(message.frame))
                    : fmt::format("it opened with '{}'", name(message.frame)));
}

// False: it is not asked of this rank, or not by the one that it says.
bool Plane::on_probe(Link& link, const Probe& probe) {
  if (probe.asker != link.rank || probe.asked != self_.rank) return false;
  // A coordinator that was stopped, and has been replaced, learns it this way.
  network_.send(link, census_.dead.count(probe.asker) ? failures_.decision_frame()
                                                      : encode(ProbeAnswer{self_.rank}));
  dismiss(network_, link, self_.now_ms, 2 * kProbeMs);
  return true;
}

Plane::Taken Plane::frame_of(Link& link, const Message& message) {
  if (message.frame == Frame::refuse)
    return take<Refuse>(message, [&](const Refuse& m) { on_refusal(link, m.status); });
  if (message.frame == Frame::start_failed)
    return take<StartFailed>(message, [&](const StartFailed& m) { on_refusal(link, m.status); });
  const bool neighbour = link.role == Role::child || link.role == Role::parent;
  if (message.frame == Frame::decision && (neighbour || link.role == Role::probing))
    return take<Decision>(message,
                          [&](const Decision& m) { failures_.adopt(m.dead, m.status, link.id); });
  if (message.frame == Frame::heartbeat && neighbour)
    return take<Heartbeat>(message, [](const Heartbeat&) {});
  if (link.role == Role::child) return from_below(link, message);
  if (link.role == Role::parent) return from_above(link, message);
  return from_elsewhere(link, message);
}

Plane::Taken Plane::from_below(Link& link, const Message& message) {
  switch (message.frame) {
    case Frame::joined:
      return take<Joined>(message, [&](const Joined&) {
        link.joined = true;
        bootstrap_.check_joined();
      });
    case Frame::gather:
      return take<Gather>(message, [&](Gather m) { collectives_.on_gather(std::move(m)); });
    case Frame::suspect:
      return take<Suspect>(message, [&](const Suspect& m) { failures_.on_suspect(m); });
    case Frame::stall:
      return take<Report>(message, [&](const Report& m) { calls_.on_report(m); });
    case Frame::answer:
      return take<Answer>(message, [&](Answer m) { calls_.on_answer(std::move(m)); });
    case Frame::abort_request:
      return take<AbortRequest>(message,
                                [&](const AbortRequest& m) { calls_.on_abort_request(m); });
    case Frame::goodbye:
      return take<Goodbye>(message, [&](const Goodbye& m) { departure_.on_goodbye(link, m); });
    default:
      return Taken::unexpected;
  }
}

Plane::Taken Plane::from_above(Link& link, const Message& message) {
  switch (message.frame) {
    case Frame::table:
      if (!self_.starting()) return Taken::unexpected;
      return take<Table>(message, [&](const Table& m) { bootstrap_.on_table(m); });
    case Frame::welcome:
      return take<Welcome>(message, [&](const Welcome& m) { tree_.on_welcome(link, m); });
    case Frame::gathered:
      return take<Gathered>(message, [&](Gathered m) { collectives_.on_gathered(std::move(m)); });
    case Frame::broadcast:
      return take<Broadcast>(message,
                             [&](Broadcast m) { collectives_.on_broadcast(std::move(m)); });
    case Frame::collective_off:
      return take<CollectiveOff>(message, [&](const CollectiveOff& m) { collectives_.on_off(m); });
    case Frame::link_down:
      return take<LinkDown>(message, [&](const LinkDown& m) { links_.on_link_down(m); });
    case Frame::inquire:
      return take<Inquiry>(message, [&](const Inquiry& m) { calls_.on_inquiry(m); });
    case Frame::comm_failed:
      return take<CommFailed>(message, [&](const CommFailed& m) { calls_.on_comm_failed(m); });
    case Frame::goodbye_ack:
      return take<GoodbyeAck>(message, [&](const GoodbyeAck& m) { departure_.on_goodbye_ack(m); });
    case Frame::leaving:
      return take<Leaving>(message, [&](const Leaving& m) { departure_.on_leaving(link, m); });
    default:
      return Taken::unexpected;
  }
}

Plane::Taken Plane::from_elsewhere(Link& link, const Message& message) {
  if (message.frame == Frame::parent && link.role == Role::enlisting)
    return take<Parent>(message, [&](const Parent& m) { return bootstrap_.on_parent(link, m); });
  if (message.frame == Frame::probe_answer && link.role == Role::probing)
    return take<ProbeAnswer>(message, [&](const ProbeAnswer& m) {
      if (m.rank != link.rank) return false;
      network_.drop(link.id);
      failures_.probe_answered(m.rank);
      return true;
    });
  return Taken::unexpected;
}

void Plane::on_refusal(Link& link, const Status& status) {
  if (self_.starting())
    bootstrap_.fail(status);
  else if (link.role == Role::parent)
    tree_.refused(link.rank, status.text());
  else if (link.role == Role::probing)
    network_.lost(link.id, End::refused, status.text());
}

// ---- what the objects tell each other ----

void Plane::suspect(int rank, uint8_t evidence, const std::string& what) {
  failures_.suspect(rank, evidence, self_.rank, what);
}

void Plane::child_came(Link& link, const Attach& attach) {
  const uint64_t id = link.id;
  failures_.came(attach.rank);
  network_.send(link, encode(Welcome{census_.left, census_.dead, census_.decision}));
  announcements_.tell_again(network_, link);
  departure_.note_left(attach.left);
  failures_.adopt(attach.dead, attach.decision, id);
}

void Plane::parent_came(Link& link, const Welcome& welcome) {
  const uint64_t id = link.id;
  departure_.note_left(welcome.left);
  failures_.adopt(welcome.dead, welcome.decision, id);
  if (!network_.find(id) || self_.phase == Phase::closing) return;
  failures_.tell_again();
  departure_.tell_again();
  calls_.tell_again();
}

void Plane::became_coordinator() {
  failures_.became_coordinator();
  departure_.became_coordinator();
  calls_.became_coordinator();
  self_.due(self_.now_ms);
}

}  // namespace sennit::control
