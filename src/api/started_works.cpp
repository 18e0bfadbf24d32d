// started_works.cpp: see api/started_works.hpp.
#include "api/started_works.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sennit {

void StartedWorks::add(Work& work) {
  const MutexLock lock(mutex_);
  work.outstanding_at_ = outstanding_.size();
  outstanding_.push_back(&work);
}

void StartedWorks::remove(Work& work) {
  const MutexLock lock(mutex_);
  outstanding_[work.outstanding_at_] = outstanding_.back();
  outstanding_[work.outstanding_at_]->outstanding_at_ = work.outstanding_at_;
  outstanding_.pop_back();
}

Work* StartedWorks::any() {
  const MutexLock lock(mutex_);
  return outstanding_.empty() ? nullptr : outstanding_.back();
}

void StartedWorks::keep(std::shared_ptr<Work> work) {
  std::vector<std::shared_ptr<Work>> done;
  const auto take_done = [&](std::vector<std::shared_ptr<Work>>& works) {
    const auto first =
        std::partition(works.begin(), works.end(), [](const auto& kept) { return !kept->done(); });
    done.insert(done.end(), std::make_move_iterator(first), std::make_move_iterator(works.end()));
    works.erase(first, works.end());
  };
  const bool captured = work->is_captured();
  {
    const MutexLock lock(mutex_);
    take_done(kept_);
    take_done(captured_);
    (captured ? captured_ : kept_).push_back(std::move(work));
  }
  // It may have failed while the call was not yet among those that are dropped then.
  if (const Status failed = state_.status(); captured && !failed.ok())
    engine_.fail_communicator(state_.id(), failed);
  for (const auto& kept : done) (void)kept->finish();  // a failure is the communicator's
}

void StartedWorks::settle() {
  leave_graphs();
  std::vector<std::shared_ptr<Work>> all;
  {
    const MutexLock lock(mutex_);
    all = std::exchange(kept_, {});
  }
  for (const auto& work : all) {
    work->wait(-1);
    (void)work->finish();
  }
}

void StartedWorks::leave_graphs() {
  std::vector<std::shared_ptr<Work>> captured;
  {
    const MutexLock lock(mutex_);
    captured = std::exchange(captured_, {});
  }
  for (const auto& work : captured) (void)work->finish();
}

}  // namespace sennit
