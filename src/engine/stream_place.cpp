// stream_place.cpp: see engine/stream_place.hpp.
#include "engine/stream_place.hpp"

#include <utility>

#include "engine/execution.hpp"

namespace sennit {

uint32_t StreamPlace::join(Execution& execution) {
  executions_.push_back({&execution, !in_graph_});
  joined_++;
  if (!in_graph_) working_++;
  return static_cast<uint32_t>(executions_.size() - 1);
}

// Where nobody works the stream need not wait for anyone: it only has to be seen here.
bool StreamPlace::close() {
  closed_ = true;
  if (working_ == 0 && !in_graph_) worker_->leave();
  return !left();
}

void StreamPlace::tell_waiting(const Status& reached) {
  for (const WhenReached& told : std::exchange(waiting_, {})) told(reached);
}

bool StreamPlace::poll() {
  if (left()) return false;
  bool moved = false;
  if (!reached_) {
    if (in_graph_ && worker_->over()) {
      drop_those([](const Execution&) { return true; });
      return true;
    }
    if (!worker_->reached()) return false;
    if (in_graph_) replay();
    reached_ = true;
    moved = true;
    tell_waiting({});
  }
  for (size_t i = 0; i < executions_.size(); i++)
    if (executions_[i].works && executions_[i].execution->armed()) {
      executions_[i].execution->arrive();
      moved = true;
    }
  done_.clear();
  worker_->poll(&done_);
  // What is told may end an execution, and it submits more.
  const std::vector<uint64_t> done = std::exchange(done_, {});
  for (const uint64_t token : done)
    if (const Joined& joined = executions_[token >> 32]; joined.works)
      joined.execution->local_done(static_cast<uint32_t>(token));
  return moved || !done.empty();
}

// The graph has come here: all are made again, and then told so as those of a stream are.
void StreamPlace::replay() {
  for (size_t i = 0; i < executions_.size(); i++) {
    if (!executions_[i].execution) continue;
    executions_[i].works = true;
    working_++;
    executions_[i].execution->replay();
  }
}

void StreamPlace::leave(uint32_t number) {
  Joined& joined = executions_[number];
  if (!std::exchange(joined.works, false)) return;
  working_--;
  if (!in_graph_ || joined.last) {
    joined.execution = nullptr;
    joined_--;
  }
  if (working_ > 0 || !closed_) return;
  worker_->leave();
  if (!in_graph_) return;
  reached_ = false;
  if (joined_ == 0) worker_->retire();
}

void StreamPlace::fail(const Status& why) {
  tell_waiting(why);
  for (size_t i = 0; i < executions_.size(); i++)
    if (executions_[i].execution) executions_[i].execution->fail_here(why);
}

bool StreamPlace::end_if_lost() {
  const Status lost = worker_->lost();
  if (lost.ok()) return false;
  tell_waiting(lost);
  for (size_t i = 0; i < executions_.size(); i++)
    if (executions_[i].execution) executions_[i].execution->device_lost(lost);
  return true;
}

template <typename Which>
void StreamPlace::drop_those(Which&& which) {
  for (Joined& joined : executions_) {
    if (!joined.execution || !which(*joined.execution)) continue;
    joined.last = true;
    if (joined.works) continue;
    joined.execution = nullptr;
    joined_--;
  }
  if (left()) worker_->retire();
}

void StreamPlace::drop(uint32_t comm) {
  if (in_graph_) drop_those([&](const Execution& other) { return other.comm() == comm; });
}

void StreamPlace::drop(const Execution& execution) {
  if (in_graph_) drop_those([&](const Execution& other) { return &other == &execution; });
}

}  // namespace sennit
