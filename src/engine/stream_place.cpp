// stream_place.cpp: see engine/stream_place.hpp.
#include "engine/stream_place.hpp"

#include "engine/execution.hpp"

namespace sennit {

uint32_t StreamPlace::join(Execution& execution) {
  executions_.push_back(&execution);
  working_++;
  return static_cast<uint32_t>(executions_.size() - 1);
}

bool StreamPlace::poll() {
  if (left()) return false;
  bool moved = false;
  if (!reached_) {
    if (!worker_->reached()) return false;
    reached_ = true;
    moved = true;
  }
  for (size_t i = 0; i < executions_.size(); i++)
    if (executions_[i] && executions_[i]->armed()) {
      executions_[i]->arrive();
      moved = true;
    }
  done_.clear();
  worker_->poll(&done_);
  // What is told may end an execution, and it submits more.
  const std::vector<uint64_t> done = std::exchange(done_, {});
  for (const uint64_t token : done)
    if (Execution* const execution = executions_[token >> 32])
      execution->local_done(static_cast<uint32_t>(token));
  return moved || !done.empty();
}

void StreamPlace::leave(uint32_t number) {
  if (!executions_[number]) return;
  executions_[number] = nullptr;
  working_--;
  if (left()) worker_->leave();
}

void StreamPlace::fail(const Status& why) {
  const std::vector<Execution*> all = executions_;
  for (Execution* const execution : all)
    if (execution) execution->fail_here(why);
}

bool StreamPlace::end_if_lost() {
  const Status lost = worker_->lost();
  if (lost.ok()) return false;
  const std::vector<Execution*> all = executions_;
  for (Execution* const execution : all)
    if (execution) execution->device_lost(lost);
  return true;
}

}  // namespace sennit
