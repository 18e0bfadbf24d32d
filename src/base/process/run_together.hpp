// run_together.hpp: threads of which all begin or none does, as one alone would wait for others.
#pragma once

#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace sennit {

// Runs f(0) to f(n - 1), each in a thread of its own, and returns when all have ended. f throws
// nothing. Where the system has no thread left, or no memory for one, none is run, and what says so
// is thrown: std::system_error, std::bad_alloc.
template <typename F>
void run_together(size_t n, const F& f) {
  std::vector<std::thread> threads;
  threads.reserve(n);
  std::promise<bool> decision;
  const std::shared_future<bool> begins = decision.get_future();
  const auto end = [&](bool begin) {
    decision.set_value(begin);
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (size_t i = 0; i < n; i++)
      threads.emplace_back([&f, begins, i] {
        if (begins.get()) f(i);
      });
  } catch (...) {
    end(false);
    throw;
  }
  end(true);
}

}  // namespace sennit
