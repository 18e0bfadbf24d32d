// watcher.cpp: the threads that look at calls, and that run what follows on them.
#include "core/watcher.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/work.hpp"

namespace sennit_torch {
namespace {

constexpr Milliseconds kShortestNap{1}, kLongestNap{4};
constexpr Milliseconds kHeldUp{10};
constexpr Milliseconds kLooksAtAll{1000};

std::atomic<Watcher*> the_watcher{nullptr};

}  // namespace

// ---- callbacks ----

void Callbacks::add(std::function<void()> callback) {
  const std::scoped_lock lock(mutex_);
  callbacks_.push_back(std::move(callback));
  if (threads_ == 0) {
    threads_++;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_all();
}

bool Callbacks::busy() const {
  return latest_running_ && std::chrono::steady_clock::now() < latest_began_ + kHeldUp;
}

void Callbacks::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (callbacks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (busy()) {
      changed_.wait_until(lock, latest_began_ + kHeldUp);
      continue;
    }
    std::function<void()> callback = std::move(callbacks_.front());
    callbacks_.pop_front();
    const uint64_t mine = ++latest_;
    latest_running_ = true;
    latest_began_ = std::chrono::steady_clock::now();
    if (++running_ == threads_) {  // somebody must be there to see that this one is held up
      threads_++;
      std::thread([this] { run(); }).detach();
    }
    lock.unlock();
    callback();
    callback = nullptr;  // what it holds may need Python's lock to go
    lock.lock();
    running_--;
    if (latest_ == mine) latest_running_ = false;
    changed_.notify_all();
  }
}

void Callbacks::settle(Time until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return running_ == 0 && callbacks_.empty(); });
}

// ---- the watcher ----

// A forked child has none of its parent's threads, so that it begins anew.
Watcher& Watcher::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    the_watcher = new Watcher;
    pthread_atfork(nullptr, nullptr, [] { the_watcher = new Watcher; });
  });
  return *the_watcher;
}

void Watcher::watch(std::shared_ptr<TorchCall> call, Then then) {
  const std::scoped_lock lock(mutex_);
  calls_.emplace_back(std::move(call), std::move(then));
  out_++;
  if (!looking_) std::thread([this] { look(); }).detach();
  looking_ = true;
  changed_.notify_all();
}

void Watcher::look_at_all() {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(looking_at_all_, true)) return;
  std::thread([this] {
    for (;;) {
      std::this_thread::sleep_for(kLooksAtAll);
      const std::scoped_lock looking(look_at_all_mutex_);
      if (settled_) return;
      TorchCall::look_at_all();
    }
  }).detach();
}

void Watcher::settle(Time until) {
  {
    const std::scoped_lock lock(look_at_all_mutex_);
    settled_ = true;
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return out_ == 0; });
  }
  callbacks_.settle(until);
}

void Watcher::look() {
  std::vector<Watched> calls;
  Milliseconds nap = kShortestNap;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      out_ = calls.size() + calls_.size();
      if (out_ == 0) {
        changed_.notify_all();
        changed_.wait(lock, [&] { return !calls_.empty(); });
      }
      if (!calls_.empty()) nap = kShortestNap;
      std::move(calls_.begin(), calls_.end(), std::back_inserter(calls));
      calls_.clear();
    }
    // Mostly they complete in the order in which they were started.
    calls.front().first->wait(nap);
    const auto over = std::stable_partition(
        calls.begin(), calls.end(), [](const Watched& one) { return !one.first->is_over(); });
    nap = over == calls.end() ? std::min(2 * nap, kLongestNap) : kShortestNap;
    for (auto one = over; one != calls.end(); ++one)
      if (one->second) callbacks_.add([call = one->first, then = one->second] { then(*call); });
    calls.erase(over, calls.end());
  }
}

}  // namespace sennit_torch
