// communication.cpp: see communication.hpp: starting, waiting, and the accounting of both.
#include "communication.hpp"

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
  if (status_.ok()) status_ = status;
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

Transfer Communicator::begin(Started started, uint64_t bytes) {
  if (!started) {
    traffic_->fail(started.status());
    return {};
  }
  traffic_->started(*started, bytes);
  Transfer transfer(*std::move(started), traffic_);
  if (!traffic_->overlap()) transfer.wait();
  return transfer;
}

Transfer Communicator::all_reduce(void* data, size_t count, Element element, Reduction reduction) {
  if (size_ == 1 || traffic_->silent()) return {};
  return begin(start_all_reduce(data, count, element, reduction), count * bytes_of(element));
}

Transfer Communicator::reduce_scatter(const void* send, void* receive, size_t count, Element element) {
  if (traffic_->silent()) return {};
  return begin(start_reduce_scatter(send, receive, count, element),
               count * bytes_of(element) * static_cast<size_t>(size_));
}

Transfer Communicator::all_gather(const void* send, void* receive, size_t count, Element element) {
  if (traffic_->silent()) return {};
  return begin(start_all_gather(send, receive, count, element),
               count * bytes_of(element) * static_cast<size_t>(size_));
}

Transfer Communicator::broadcast(void* data, size_t bytes, int root) {
  if (size_ == 1 || traffic_->silent()) return {};
  return begin(start_broadcast(data, bytes, root), bytes);
}

// Sends and receives always overlap: two ranks that each wait for their own send would wait for ever.
Transfer Communicator::send(const void* data, size_t count, Element element, int peer) {
  if (traffic_->silent()) return {};
  Started started = start_send(data, count, element, peer);
  if (!started) return begin(std::move(started), 0);
  traffic_->started(*started, count * bytes_of(element));
  return {*std::move(started), traffic_};
}

Transfer Communicator::receive(void* data, size_t count, Element element, int peer) {
  if (traffic_->silent()) return {};
  Started started = start_receive(data, count, element, peer);
  if (!started) return begin(std::move(started), 0);
  traffic_->started(*started, 0);
  return {*std::move(started), traffic_};
}

}  // namespace sennit::trainer
