// eventually.hpp: what comes about in its own time is awaited by the clock, never by a number of
// tries, which a busy machine has used up before anything could come about.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

namespace sennit_test {

// Takes `step` until `holds`; false where it does not within a time that no working program needs.
template <typename Condition, typename Step>
bool eventually(Condition holds, Step step) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    step();
  }
  return true;
}

// The same where there is nothing to do but to look again, every millisecond.
template <typename Condition>
bool eventually(Condition holds) {
  return eventually(holds, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
}

// ---- promises about time, on a machine that may let any process wait ----

// How long something takes. A busy machine only ever makes that longer, so the least of several
// tries is what the program itself needs. It is tried again while that is not under `enough`, but
// no more than five times. `attempt` returns the time, and asserts all else each time.
template <typename Attempt>
std::chrono::milliseconds least_time(std::chrono::milliseconds enough, Attempt attempt) {
  constexpr int kMostTries = 5;
  auto least = std::chrono::milliseconds::max();
  for (int i = 0; i < kMostTries && least >= enough; i++)
    least = std::min(least, std::chrono::duration_cast<std::chrono::milliseconds>(attempt()));
  return least;
}

// What is judged by a time-out, within which all must come but those that it is about: `attempt`
// gets one in milliseconds, longer each time, and returns what was wrong, which is printed at once.
// "": it went well once.
template <typename Attempt>
std::string at_some_timeout(int64_t first_ms, Attempt attempt) {
  constexpr int64_t kLonger = 4, kMostTries = 3;
  std::string wrong;
  for (int64_t tries = 0, ms = first_ms; tries < kMostTries; tries++, ms *= kLonger) {
    if (wrong = attempt(ms); wrong.empty()) break;
    std::printf("with a time-out of %lld ms: %s\n", static_cast<long long>(ms), wrong.c_str());
    std::fflush(stdout);
  }
  return wrong;
}

}  // namespace sennit_test
