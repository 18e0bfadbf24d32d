// work.cpp: see api/work.hpp.
#include "api/work.hpp"

#include "api/communicator.hpp"

namespace sennit {

Work::Work(std::shared_ptr<Communicator> communicator, const Call& call)
    : communicator_(std::move(communicator)), call_(call), source_(call.root) {}

Work::~Work() {
  if (!started_ && execution_) communicator_->plans_.give_back(std::move(execution_));
  if (!started_ || finished_) return;
  wait(-1);
  (void)finish();
}

const Context& Work::context() const { return communicator_->context(); }

uint64_t Work::predicted_ns() const {
  if (!execution_) return 0;
  const Prepared& prepared = execution_->prepared();
  if (call_.collective != Collective::send_recv) return prepared.plan.predicted_ns;
  Request request = prepared.request;  // of a message only its plan is made, as it is needed
  if (request.root == SENNIT_ANY_SOURCE)
    request.root = (communicator_->position() + 1) % communicator_->size();
  const Result<Plan> plan = communicator_->plan_by_model(request);
  return plan ? plan->predicted_ns : 0;
}

void Work::start(bool nonblocking) {
  started_ = true;
  if (sample_ >= 0) started_ns_ = now_ns();
  communicator_->start(*this, nonblocking);
}

void Work::give_up(const Status& why) {
  if (execution_) communicator_->plans_.give_back(std::move(execution_));
  started_ = finished_ = true;
  result_ = why;
}

bool Work::done() const {
  if (execution_) return execution_->done();
  return finished_ || *self_matched_ || communicator_->state_.failed();
}

bool Work::wait(int64_t timeout_ns) {
  if (finished_ || done()) return true;
  if (!execution_ && timeout_ns < 0 && !communicator_->state_.failed()) {
    result_ = communicator_->self_messages_.withdraw(call_, self_matched_);
    end();
    return true;
  }
  if (execution_ && timeout_ns < 0) execution_->awaited = true;
  return communicator_->context().engine().wait([this] { return done(); }, timeout_ns);
}

bool Work::test() {
  if (finished_ || done()) return true;
  communicator_->context().engine().progress();
  return done();
}

void Work::end() {
  finished_ = true;
  std::vector<Work*>& all = communicator_->outstanding_;
  all[outstanding_at_] = all.back();
  all[outstanding_at_]->outstanding_at_ = outstanding_at_;
  all.pop_back();
}

Status Work::finish() {
  if (finished_) return result_;
  end();
  if (!execution_) {
    if (!*self_matched_) result_ = communicator_->status();
    return result_;
  }
  result_ = communicator_->result_of(*execution_);
  if (call_.root == SENNIT_ANY_SOURCE && result_.ok())
    source_ = communicator_->state_.rank_of(execution_->peer());
  if (sample_ >= 0 && result_.ok() && !trials_->decided())
    trials_->took(sample_, execution_->finished_ns - started_ns_);
  communicator_->plans_.give_back(std::move(execution_));
  return result_;
}

}  // namespace sennit
