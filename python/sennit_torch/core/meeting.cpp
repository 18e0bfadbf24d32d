// meeting.cpp: see python/sennit_torch/core/meeting.hpp.
#include "core/meeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <pybind11/pybind11.h>

#include "core/work.hpp"

namespace sennit_torch {
namespace {

// A look costs the store's time, and a signal waits for its handler as long as a nap is.
constexpr std::chrono::microseconds kShortestNap{100}, kLongestNap{250'000};

}  // namespace

void check_signals() {
  if (gettid() != getpid() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// Asked again and again, with naps that grow with the time: a wait of the store's own ends for no
// signal, and one that is cut short PyTorch writes about to the log.
bool comes(c10d::Store& store, const std::string& key, Time deadline) {
  const Time began = std::chrono::steady_clock::now();
  for (;;) {
    check_signals();
    if (store.check({key})) return true;
    const Time now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    const auto nap = std::clamp<Time::duration>((now - began) / 8, kShortestNap, kLongestNap);
    std::this_thread::sleep_for(std::min(nap, deadline - now));
  }
}

void forget(c10d::Store& store, const std::string& key) {
  try {
    store.deleteKey(key);
  } catch (const std::exception&) {
  }
}

namespace {

Word word_of_rank_0(c10d::Store& store, const std::string& prefix, int rank, int size,
                    Milliseconds timeout) {
  const std::string own = prefix + std::to_string(rank), given = prefix + "word";
  store.set(own, Word{1});
  try {
    if (!comes(store, given, std::chrono::steady_clock::now() + timeout))
      throw_error("start", "of " + std::to_string(size) + " ranks, rank 0 did not say within " +
                               std::to_string(timeout.count()) + " ms that all have come");
  } catch (const std::exception&) {
    forget(store, own);
    throw;
  }
  return store.get(given);
}

}  // namespace

Word meet(c10d::Store& store, const std::string& prefix, int rank, int size, Milliseconds timeout,
          const std::function<Word()>& word) {
  if (rank != 0) return word_of_rank_0(store, prefix, rank, size, timeout);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string missing;
  for (int other = 1; other < size; other++) {
    const std::string key = prefix + std::to_string(other);
    if (!comes(store, key, deadline))
      missing += (missing.empty() ? "" : ", ") + std::to_string(other);
    forget(store, key);
  }
  if (!missing.empty())
    throw_error("start", "of " + std::to_string(size) + " ranks, did not come within " +
                             std::to_string(timeout.count()) + " ms: " + missing);
  const Word own = word();
  store.set(prefix + "word", own);
  return own;
}

}  // namespace sennit_torch
