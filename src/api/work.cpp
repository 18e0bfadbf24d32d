// work.cpp: see api/work.hpp.
#include "api/work.hpp"

#include "api/communicator.hpp"

namespace sennit {

Work::Work(std::shared_ptr<Communicator> communicator, const Call& call)
    : communicator_(std::move(communicator)), call_(call) {}

Work::~Work() {
  if (!started_ && execution_) communicator_->plans_.give_back(std::move(execution_));
  if (!started_ || finished_) return;
  wait(-1);
  (void)finish();
}

const Context& Work::context() const { return communicator_->context(); }

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
  if (sample_ >= 0 && result_.ok() && !trials_->decided())
    trials_->took(sample_, execution_->finished_ns - started_ns_);
  communicator_->plans_.give_back(std::move(execution_));
  return result_;
}

}  // namespace sennit
