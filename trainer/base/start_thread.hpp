// start_thread.hpp: threads that the system may have none left for, as in a container with few.
//
// std::thread throws then. Past other threads that run already, or out of one, that would end the
// process without a word.
#pragma once

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/status.hpp"

namespace sennit::trainer {

// Error: there is none left for `work`.
template <typename F>
Result<std::thread> start_thread(const char* work, F f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::exception& error) {
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("the system has no thread left for {} ({}): raise the limit of "
                              "threads (ulimit -u, pids.max)",
                              work, error.what()));
  }
}

// f(1) to f(threads - 1), each in a thread of its own, which the caller joins: work that he does as
// f(0) himself, and that fewer do as well. Where there are fewer, that is said.
template <typename F>
std::vector<std::thread> start_helpers(const char* work, int threads, const F& f) {
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<size_t>(threads));
  for (int thread = 1; thread < threads; thread++) {
    Result<std::thread> helper = start_thread(work, [f, thread] { f(thread); });
    if (!helper) {
      log(LogLevel::warn, "{}; {} of {} do it", helper.status().text(), thread, threads);
      break;
    }
    helpers.push_back(*std::move(helper));
  }
  return helpers;
}

}  // namespace sennit::trainer
