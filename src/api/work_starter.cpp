// work_starter.cpp: see api/work_starter.hpp.
#include "api/work_starter.hpp"

#include <utility>

#include <fmt/core.h>

namespace sennit {

void WorkStarter::start(Work& work, bool nonblocking) {
  if (work.is_captured()) {
    if (const Status joined = capture(work); !joined.ok()) state_.fail_and_tell(joined);
    return;
  }
  if (work.call_.collective == Collective::send_recv) state_.calls().goes_on();
  if (work.ready_.execution)
    start_execution(work, nonblocking);
  else
    start_self_message(work);
}

void WorkStarter::start_execution(Work& work, bool nonblocking) {
  const Call& call = work.call_;
  if (call.collective == Collective::send_recv) {
    if (const Status joined = join_place(work); !joined.ok()) state_.fail_and_tell(joined);
    const int peer =
        call.root == SENNIT_ANY_SOURCE ? Mailbox::kAnySource : state_.world_rank(call.root);
    const auto tag = static_cast<uint32_t>(call.tag);
    if (call.receiving)
      engine_.start_receive(*work.ready_.execution, mailbox_, peer, tag, nonblocking);
    else
      engine_.start_send(*work.ready_.execution, mailbox_, peer, tag, nonblocking);
  } else {
    const uint32_t seq = number_call(work);
    if (const Status joined = join_place(work); !joined.ok()) state_.fail_and_tell(joined);
    if (work.ready_.execution->on_device())
      state_.calls().in_stream(seq, work.ready_.execution->armed_flag());
    engine_.start(*work.ready_.execution, seq, nonblocking);
  }
  // The communicator may have failed between the check and the start: then nobody cancels what was
  // just posted.
  if (const Status failed = state_.status(); !failed.ok())
    engine_.fail_communicator(state_.id(), failed);
}

// ---- by which plan ----

uint32_t WorkStarter::number_call(Work& work) {
  const CallLog::Begun begun = state_.calls().begins(work.ready_.execution->shared_prepared());
  if (!begun.undecided) return begun.seq;
  if (auto anew = planned_anew(begun.seq, *work.ready_.execution, work.target_)) {
    std::swap(work.ready_.execution, anew);
    preparation_.give_back(std::move(anew));
  }
  return begun.seq;
}

std::unique_ptr<Execution> WorkStarter::planned_anew(uint32_t seq, Execution& made,
                                                     const StreamTarget& target) {
  wait_until_settled(seq);
  if (state_.failed()) return nullptr;  // what is started now is cancelled
  const FabricVersionPointer version = state_.switches().version_for(seq);
  Result<std::unique_ptr<Execution>> anew = preparation_.prepare_under(version, made, target);
  if (!anew) {
    state_.fail_and_tell(anew.status());
    return nullptr;
  }
  const std::unique_ptr<Execution>& other = *anew;
  state_.calls().runs(seq, other ? other->shared_prepared() : made.shared_prepared());
  if (!other) return nullptr;
  other->buffers() = std::move(made.buffers());
  other->timed = false;
  return *std::move(anew);
}

// Who waits long says so, as in a call that makes no progress: the others may never come to it.
void WorkStarter::wait_until_settled(uint32_t seq) {
  constexpr int64_t kSliceNs = 500'000'000;
  const auto settled = [&] { return state_.switches().settled(seq) || state_.failed(); };
  for (int64_t waited_ns = kSliceNs; !engine_.wait(settled, kSliceNs); waited_ns += kSliceNs) {
    CallDescriptor call;
    if (!state_.describe(seq, &call)) continue;
    call.stalled_ms = waited_ns / 1'000'000;
    control_.report_stall(call);
  }
}

// ---- in a stream or in a graph ----

Status WorkStarter::join_place(Work& work) {
  if (!work.place_) return {};
  const std::shared_ptr<StreamPlace> place = std::exchange(work.place_, nullptr);
  const Call& call = work.call_;
  const bool names_peer =
      call.collective == Collective::send_recv && call.root != SENNIT_ANY_SOURCE;
  SENNIT_RETURN_IF_ERROR(
      work.ready_.execution->join(place, names_peer ? state_.world_rank(call.root) : -1));
  work.stream_calls_->add_bytes(*place, work.ready_.execution->work_bytes());
  return {};
}

Status WorkStarter::capture(Work& work) {
  const Call& call = work.call_;
  Execution* execution = work.ready_.execution.get();
  work.graph_place_ = std::exchange(work.place_, nullptr);
  if (call.collective == Collective::send_recv) {
    const int peer = state_.world_rank(call.root);
    const auto tag = static_cast<uint32_t>(call.tag);
    uint32_t number = 0;
    {
      const MutexLock lock(engine_.mutex());
      if (call.receiving && mailbox_.waits_for(tag))
        return {
            SENNIT_UNSUPPORTED,
            fmt::format("a receive of tag {} is to be part of a graph while an earlier one from "
                        "any rank waits: nobody knows which messages that one will take",
                        tag)};
      number =
          call.receiving ? mailbox_.number_receive(peer, tag) : mailbox_.number_send(peer, tag);
    }
    SENNIT_RETURN_IF_ERROR(execution->capture_message(work.graph_place_, number, peer, tag));
  } else {
    const uint32_t number = number_call(work);
    execution = work.ready_.execution.get();
    SENNIT_RETURN_IF_ERROR(execution->capture(work.graph_place_, number));
  }
  work.stream_calls_->add_bytes(*work.graph_place_, execution->work_bytes());
  return {};
}

void WorkStarter::leave_graph(Work& work) {
  engine_.drop(*work.ready_.execution);
  {
    const MutexLock lock(engine_.mutex());
    work.ready_.execution->leave_graph();
  }
  preparation_.give_back(std::move(work.ready_.execution));
}

// ---- messages to oneself ----

// Halves that differ fail the communicator, as they do between two ranks.
void WorkStarter::start_self_message(Work& work) {
  const std::shared_ptr<StreamPlace> place = std::exchange(work.place_, nullptr);
  work.self_matched_ = std::make_shared<SelfMessages::Meeting>(work.is_handled());
  const StreamTarget& target = work.target_;
  const Status met = self_messages_.start(
      work.call_, work.self_matched_, state_.id(), state_.world_rank(state_.rank()),
      [&](void* to, const void* from, size_t bytes, auto copied) {
        SENNIT_RETURN_IF_ERROR(target.accelerator->copy(target.stream, to, from, bytes));
        if (copied) tell_when_over(*place, std::move(copied));
        return Status();
      });
  if (!met.ok()) state_.fail_and_tell(met);
  if (work.self_matched_->met) engine_.wake_waiters();  // for the other half
}

// What was put into the stream is over when that comes to the place, which is enqueued behind it.
void WorkStarter::tell_when_over(StreamPlace& place, std::function<void()> over) {
  const MutexLock lock(engine_.mutex());
  place.when_reached(
      [&engine = engine_, id = state_.id(), over = std::move(over)](const Status& reached) {
        engine.assert_locked();
        if (reached.ok()) return over();
        engine.failed_here(id, reached);
      });
}

Status WorkStarter::end_self_message(const Work& work) {
  const SelfMessages::Meeting& meeting = *work.self_matched_;
  const Status withdrawn = self_messages_.withdraw(work.call_, work.self_matched_);
  const auto is_over = [&] { return meeting.copied || state_.failed(); };
  if (withdrawn.ok()) engine_.wait(is_over, -1);
  if (meeting.copied) return {};
  return state_.failed() ? state_.status() : withdrawn;
}

}  // namespace sennit
