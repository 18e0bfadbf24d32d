// communication.cpp: see trainer/parallel/communication.hpp: starting, waiting, and the accounting
// of both.
#include "trainer/parallel/communication.hpp"

#include <algorithm>

namespace sennit::trainer {
namespace {

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

void Traffic::started(const std::shared_ptr<Work>& work, uint64_t bytes) {
  if (under_way_.empty()) since_ = Clock::now();
  under_way_.push_back(work);
  times_.bytes += bytes;
}

void Traffic::forget(size_t i) {
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
  if (under_way_.empty()) times_.comm_s += seconds_since(since_);
}

void Traffic::wait(const std::shared_ptr<Work>& work) {
  for (size_t i = 0; i < under_way_.size(); i++) {
    if (under_way_[i] != work) continue;
    const Clock::time_point began = Clock::now();
    const Status status = work->wait();
    times_.exposed_s += seconds_since(began);
    if (!status.ok()) fail(status);
    forget(i);
    return;
  }
}

void Traffic::poll() {
  if (!groups_.empty() && !failed()) fail(groups_.front()->job_status());
  for (size_t i = 0; i < under_way_.size();) {
    const Result<bool> complete = under_way_[i]->test();
    if (!complete) fail(complete.status());
    if (!complete || *complete)
      forget(i);
    else
      i++;
  }
}

void Traffic::finish() {
  while (!under_way_.empty()) wait(std::shared_ptr<Work>(under_way_.front()));
}

bool Traffic::under_way(const std::shared_ptr<Work>& work) const {
  return std::find(under_way_.begin(), under_way_.end(), work) != under_way_.end();
}

void Traffic::fail(const Status& status) {
  if (failed() || status.ok()) return;
  status_ = status;
  for (Communicator* const group : groups_) group->abort();
}

Traffic::Times Traffic::take() {
  Times times = times_;
  times_ = {};
  if (!under_way_.empty()) {  // a transfer that goes on into the next step counts in both
    times.comm_s += seconds_since(since_);
    since_ = Clock::now();
  }
  return times;
}

// Every transfer starts here, after all that the device was asked: that may write what is sent, or
// read the memory that something else is to be received in.
template <typename Start>
Transfer Communicator::begin(uint64_t bytes, Start start) {
  if (traffic_->silent()) return {};
  if (traffic_->device()) traffic_->device()->synchronize();
  Started started = start();
  if (!started) {
    traffic_->fail(started.status());
    return {};
  }
  traffic_->started(*started, bytes);
  return {*std::move(started), traffic_};
}

// What all ranks of a group call is waited for at once where nothing is to overlap. Sends and
// receives always overlap: two ranks that each wait for their own send would wait for ever.
Transfer Communicator::wait_unless_overlap(Transfer transfer) const {
  if (!traffic_->overlap()) transfer.wait();
  return transfer;
}

Transfer Communicator::all_reduce(void* data, size_t count, Element element, Reduction reduction) {
  if (size_ == 1) return {};
  return wait_unless_overlap(begin(count * bytes_of(element), [&] {
    return start_all_reduce(data, count, element, reduction);
  }));
}

Transfer Communicator::reduce_scatter(const void* send, void* receive, size_t count,
                                      Element element) {
  return wait_unless_overlap(begin(count * bytes_of(element) * static_cast<size_t>(size_), [&] {
    return start_reduce_scatter(send, receive, count, element);
  }));
}

Transfer Communicator::all_gather(const void* send, void* receive, size_t count, Element element) {
  return wait_unless_overlap(begin(count * bytes_of(element) * static_cast<size_t>(size_), [&] {
    return start_all_gather(send, receive, count, element);
  }));
}

Transfer Communicator::broadcast(void* data, size_t bytes, int root) {
  if (size_ == 1) return {};
  return wait_unless_overlap(begin(bytes, [&] { return start_broadcast(data, bytes, root); }));
}

Transfer Communicator::send(const void* data, size_t count, Element element, int peer) {
  return begin(count * bytes_of(element), [&] { return start_send(data, count, element, peer); });
}

Transfer Communicator::receive(void* data, size_t count, Element element, int peer) {
  return begin(0, [&] { return start_receive(data, count, element, peer); });
}

}  // namespace sennit::trainer
