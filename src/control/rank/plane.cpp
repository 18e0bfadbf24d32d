// plane.cpp: see control/rank/plane.hpp.
#include "control/rank/plane.hpp"

#include <type_traits>
#include <utility>

#include <fmt/core.h>

namespace sennit::control {

Plane::Plane(Self& self, Channels& channels, Door& door, Callers& callers)
    : self_(self),
      channels_(channels),
      census_(self),
      tree_(self, census_, channels, *this),
      announcements_(self.rank),
      links_(self, census_, tree_, announcements_, callers),
      failures_(self, census_, channels, tree_, links_, callers, *this),
      departure_(self, census_, channels, door, tree_, failures_),
      bootstrap_(self, census_, channels, door, tree_, departure_, callers),
      collectives_(self, census_, tree_, callers),
      calls_(self, census_, tree_, announcements_),
      news_(self, census_, tree_),
      clock_(self, census_, tree_, channels) {}

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
    clock_.tick();
    news_.tick();
  }
  departure_.tick();
}

void Plane::excuse(int64_t gap_ms) {
  failures_.excuse(gap_ms);
  tree_.excuse(gap_ms);
  calls_.excuse(gap_ms);
  departure_.excuse(gap_ms);
}

// ---- channels ----

// The secret is proved in both directions: say what this connection is for.
void Plane::opened(Channel& channel) {
  if (channel.role == Role::enlisting) return bootstrap_.root_opened(channel);
  if (channel.role == Role::parent) return tree_.parent_opened(channel);
  if (channel.role == Role::probing) return failures_.probe_opened(channel);
}

void Plane::dropped(const Channel& channel) {
  tree_.forget(channel);
  bootstrap_.forget(channel);
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
Plane::Taken Plane::take(const ReceivedFrame& message, Handle handle) {
  Result<T> value = decode<T>(message.payload, self_.size);
  if (!value) return Taken::malformed;
  if constexpr (std::is_void_v<std::invoke_result_t<Handle, T>>) {
    handle(std::move(*value));
    return Taken::yes;
  } else {
    return handle(std::move(*value)) ? Taken::yes : Taken::malformed;
  }
}

void Plane::arrived(Channel& channel, const ReceivedFrame& message) {
  if (channel.role == Role::stranger) return first_frame(channel, message);
  if (self_.phase == Phase::closing) return;
  const uint64_t id = channel.id;
  const Taken taken = frame_of(channel, message);
  const Channel* const still = channels_.find(id);
  if (!still || taken == Taken::yes) return;
  channels_.lost(
      id, End::garbage,
      fmt::format("{} sent {} '{}'", census_.describe(still->rank),
                  taken == Taken::malformed ? "a malformed" : "an unexpected", name(message.type)));
}

// What a connection is for. Who says that it is somebody else than it has proved to be is turned
// away.
void Plane::first_frame(Channel& channel, const ReceivedFrame& message) {
  Taken taken = Taken::unexpected;
  if (message.type == FrameType::enlist && self_.rank == 0)
    taken = take<Enlist>(message, [&](const Enlist& enlist) {
      if (enlist.rank != channel.rank) return false;
      bootstrap_.on_enlist(channel, enlist);
      return true;
    });
  if (message.type == FrameType::attach)
    taken = take<Attach>(message, [&](const Attach& attach) {
      if (attach.rank != channel.rank) return false;
      if (bootstrap_.failed())
        bootstrap_.tell_failure(channel);
      else
        tree_.on_attach(channel, attach);
      return true;
    });
  if (message.type == FrameType::probe)
    taken = take<Probe>(message, [&](const Probe& probe) { return on_probe(channel, probe); });
  if (taken == Taken::yes) return;
  channels_.lost(channel.id, End::garbage,
                 taken == Taken::malformed
                     ? fmt::format("a malformed '{}'", name(message.type))
                     : fmt::format("it opened with '{}'", name(message.type)));
}

// False: it is not asked of this rank, or not by the one that it says.
bool Plane::on_probe(Channel& channel, const Probe& probe) {
  if (probe.asker != channel.rank || probe.asked != self_.rank) return false;
  if (bootstrap_.failed()) {
    bootstrap_.tell_failure(channel);
    return true;
  }
  // A coordinator that was stopped, and has been replaced, learns it this way.
  channels_.send(channel, census_.dead.count(probe.asker) ? failures_.decision_frame()
                                                          : encode(ProbeAnswer{self_.rank}));
  dismiss(channels_, channel, self_.now_ms, 2 * kProbeMs);
  return true;
}

Plane::Taken Plane::frame_of(Channel& channel, const ReceivedFrame& message) {
  if (message.type == FrameType::refuse)
    return take<Refuse>(message, [&](const Refuse& m) { on_refusal(channel, m.status); });
  if (message.type == FrameType::start_failed)
    return take<StartFailed>(message,
                             [&](const StartFailed& m) { on_start_failed(channel, m.status); });
  const bool neighbour = channel.role == Role::child || channel.role == Role::parent;
  if (message.type == FrameType::decision && (neighbour || channel.role == Role::probing))
    return take<Decision>(
        message, [&](const Decision& m) { failures_.adopt(m.dead, m.status, channel.id); });
  if (message.type == FrameType::heartbeat && neighbour)
    return take<Heartbeat>(message, [](const Heartbeat&) {});
  if (channel.role == Role::child) return from_below(channel, message);
  if (channel.role == Role::parent) return from_above(channel, message);
  return from_elsewhere(channel, message);
}

Plane::Taken Plane::from_below(Channel& channel, const ReceivedFrame& message) {
  switch (message.type) {
    case FrameType::joined:
      return take<Joined>(message, [&](const Joined&) {
        channel.joined = true;
        bootstrap_.check_joined();
      });
    case FrameType::gather:
      return take<Gather>(message, [&](Gather m) { collectives_.on_gather(std::move(m)); });
    case FrameType::suspect:
      return take<Suspicion>(message, [&](const Suspicion& m) { failures_.on_suspect(m); });
    case FrameType::stall:
      return take<StallReport>(message, [&](const StallReport& m) { calls_.on_report(m); });
    case FrameType::answers:
      return take<InquiryAnswers>(message,
                                  [&](InquiryAnswers m) { calls_.on_answers(std::move(m)); });
    case FrameType::abort_request:
      return take<AbortRequest>(message,
                                [&](const AbortRequest& m) { calls_.on_abort_request(m); });
    case FrameType::tell:
      return take<Tell>(message, [&](Tell m) { news_.on_tell(std::move(m)); });
    case FrameType::clock_ask:
      return take<ClockAsk>(message, [&](const ClockAsk& m) { clock_.on_ask(channel, m); });
    case FrameType::goodbye:
      return take<Goodbye>(message, [&](const Goodbye& m) {
        news_.pass_on();  // what it has said is there before it is known to have left
        departure_.on_goodbye(channel, m);
      });
    default:
      return Taken::unexpected;
  }
}

Plane::Taken Plane::from_above(Channel& channel, const ReceivedFrame& message) {
  switch (message.type) {
    case FrameType::table:
      if (!self_.starting()) return Taken::unexpected;
      return take<Table>(message, [&](const Table& m) { bootstrap_.on_table(m); });
    case FrameType::welcome:
      return take<Welcome>(message, [&](const Welcome& m) { tree_.on_welcome(channel, m); });
    case FrameType::gathered:
      return take<Gathered>(message, [&](Gathered m) { collectives_.on_gathered(std::move(m)); });
    case FrameType::broadcast:
      return take<Broadcast>(message,
                             [&](Broadcast m) { collectives_.on_broadcast(std::move(m)); });
    case FrameType::collective_off:
      return take<CollectiveOff>(message, [&](const CollectiveOff& m) { collectives_.on_off(m); });
    case FrameType::link_down:
      return take<LinkDown>(message, [&](const LinkDown& m) { links_.on_link_down(m); });
    case FrameType::inquire:
      return take<Inquiry>(message, [&](const Inquiry& m) { calls_.on_inquiry(m); });
    case FrameType::comm_failed:
      return take<CommFailed>(message, [&](const CommFailed& m) { calls_.on_comm_failed(m); });
    case FrameType::announce:
      return take<Announce>(message, [&](const Announce& m) { news_.on_announce(m); });
    case FrameType::clock_answer:
      return take<ClockAnswer>(message,
                               [&](const ClockAnswer& m) { clock_.on_answer(channel, m); });
    case FrameType::goodbye_ack:
      return take<GoodbyeAck>(message, [&](const GoodbyeAck& m) { departure_.on_goodbye_ack(m); });
    case FrameType::leaving:
      return take<Leaving>(message, [&](const Leaving& m) { departure_.on_leaving(channel, m); });
    default:
      return Taken::unexpected;
  }
}

Plane::Taken Plane::from_elsewhere(Channel& channel, const ReceivedFrame& message) {
  if (message.type == FrameType::parent && channel.role == Role::enlisting)
    return take<Parent>(message, [&](const Parent& m) { return bootstrap_.on_parent(channel, m); });
  if (message.type == FrameType::root_at && channel.role == Role::enlisting)
    return take<RootAt>(message, [&](const RootAt& m) { bootstrap_.on_root_at(channel, m); });
  if (message.type == FrameType::shared && channel.role == Role::enlisting)
    return take<Shared>(message, [&](const Shared& m) { return bootstrap_.on_shared(channel, m); });
  if (message.type == FrameType::probe_answer && channel.role == Role::probing)
    return take<ProbeAnswer>(message, [&](const ProbeAnswer& m) {
      if (m.rank != channel.rank) return false;
      channels_.drop(channel.id);
      failures_.probe_answered(m.rank);
      return true;
    });
  return Taken::unexpected;
}

void Plane::on_refusal(Channel& channel, const Status& status) {
  if (self_.starting())
    bootstrap_.fail(status);
  else if (channel.role == Role::parent)
    tree_.refused(channel.rank, status.text());
  else if (channel.role == Role::probing)
    channels_.lost(channel.id, End::refused, status.text());
}

// Where this rank's own start is complete, whoever could not complete its own has left the job, and
// is not dead. Those below it have given up with it, and can be asked for a moment only.
void Plane::on_start_failed(Channel& channel, const Status& status) {
  if (self_.starting()) return bootstrap_.fail(status);
  const uint64_t id = channel.id;
  const int rank = channel.rank;
  const Role role = channel.role;
  if (census_.coordinator()) failures_.expect_orphans(rank, self_.now_ms);
  if (role == Role::child)
    departure_.on_goodbye(channel, Goodbye{rank});
  else
    departure_.note_left({rank});
  if (role == Role::parent) tree_.refused(rank, status.text());
  if (role == Role::probing) channels_.drop(id);
}

// ---- what the objects tell each other ----

void Plane::suspect(int rank, uint8_t evidence, const std::string& what) {
  failures_.suspect(rank, evidence, self_.rank, what);
}

void Plane::child_came(Channel& channel, const Attach& attach) {
  const uint64_t id = channel.id;
  failures_.came(attach.rank);
  channels_.send(channel, encode(Welcome{census_.left, census_.dead, census_.decision}));
  announcements_.tell_again(channels_, channel);
  news_.tell_child(channels_, channel);
  departure_.note_left(attach.left);
  failures_.adopt(attach.dead, attach.decision, id);
}

void Plane::parent_came(Channel& channel, const Welcome& welcome) {
  const uint64_t id = channel.id;
  departure_.note_left(welcome.left);
  failures_.adopt(welcome.dead, welcome.decision, id);
  if (!channels_.find(id) || self_.phase == Phase::closing) return;
  failures_.tell_again();
  departure_.tell_again();
  calls_.tell_again();
  news_.tell_again();
}

void Plane::became_coordinator() {
  failures_.became_coordinator();
  departure_.became_coordinator();
  calls_.became_coordinator();
  news_.tell_again();
  self_.due(self_.now_ms);
}

}  // namespace sennit::control
