// work.cpp: see api/work.hpp.
#include "api/work.hpp"

#include <fmt/core.h>

#include "api/communicator.hpp"

namespace sennit {

Work::Work(std::shared_ptr<Communicator> communicator, const Call& call, const StreamTarget& target,
           Preparation::Ready ready)
    : communicator_(std::move(communicator)),
      call_(call),
      target_(target),
      ready_(std::move(ready)),
      source_(call.root) {}

Work::~Work() {
  if (!started_ && ready_.execution)
    communicator_->preparation_.give_back(std::move(ready_.execution));
  if (!started_ || finished_) return;
  if (!is_captured()) wait(-1);
  (void)finish();
}

const Context& Work::context() const { return communicator_->context(); }

uint64_t Work::predicted_ns() const {
  if (!ready_.execution) return 0;
  const Prepared& prepared = ready_.execution->prepared();
  if (call_.collective != Collective::send_recv) return prepared.plan.predicted_ns;
  Request request = prepared.request;  // of a message only its plan is made, as it is needed
  if (request.root == SENNIT_ANY_SOURCE)
    request.root = (communicator_->position() + 1) % communicator_->size();
  const Result<Plan> plan = communicator_->plan_by_model(
      request, call_.on_device ? Planning::Memory::device : Planning::Memory::host);
  return plan ? plan->predicted_ns : 0;
}

void Work::start(bool nonblocking) {
  started_ = true;
  if (ready_.sample >= 0) started_ns_ = now_ns();
  communicator_->start(*this, nonblocking);
}

Status Work::take_place(StreamCalls& calls) {
  Context& context = communicator_->context();
  Result<std::shared_ptr<StreamPlace>> place =
      calls.place(context.engine(), {context.control().job(), context.rank()}, target_);
  if (!place) return place.status();
  stream_calls_ = &calls;
  place_ = *std::move(place);
  return {};
}

void Work::give_up(const Status& why) {
  if (ready_.execution) communicator_->preparation_.give_back(std::move(ready_.execution));
  place_.reset();
  started_ = finished_ = true;
  result_ = why;
}

bool Work::done() const {
  if (is_captured()) return graph_place_ && graph_place_->worker().over();
  if (ready_.execution) return ready_.execution->done();
  return finished_ || self_matched_->copied || communicator_->state_.failed();
}

bool Work::lacks_other_half() const {
  return started_ && !ready_.execution && !finished_ && !self_matched_->met &&
         !communicator_->state_.failed();
}

bool Work::wait(int64_t timeout_ns) {
  if (finished_ || done()) return true;
  // Half of a message to oneself that was not met: finish() withdraws it.
  if (lacks_other_half() && timeout_ns < 0) return true;
  Engine& engine = communicator_->context().engine();
  const auto is_done = [this] { return done(); };
  if (!ready_.execution) return engine.wait(is_done, timeout_ns);
  if (timeout_ns < 0) ready_.execution->awaited = true;
  ready_.execution->waiters++;
  const bool in_time = engine.wait(is_done, timeout_ns);
  ready_.execution->waiters--;
  return in_time;
}

bool Work::test() {
  if (finished_ || done()) return true;
  communicator_->context().engine().progress();
  return done();
}

void Work::expire(int64_t waited_ms) {
  if (finished_ || done()) return;
  Context& context = communicator_->context();
  if (ready_.execution) return context.expire(*ready_.execution, waited_ms);
  communicator_->state_.fail_and_tell(
      {SENNIT_TIMED_OUT,
       fmt::format(
           "rank {} has waited {} ms in a message to itself, tag {}, on communicator {}: no "
           "matching call has completed it",
           context.rank(), waited_ms, call_.tag, communicator_->id())});
}

Status Work::finish() {
  if (finished_) return result_;
  const int peer = ready_.execution ? ready_.execution->peer() : -1;
  result_ = communicator_->end(*this);
  finished_ = true;
  if (call_.root == SENNIT_ANY_SOURCE && result_.ok())
    source_ = communicator_->state_.rank_of(peer);
  return result_;
}

}  // namespace sennit
