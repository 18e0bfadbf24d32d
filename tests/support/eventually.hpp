// eventually.hpp: what comes about in its own time is awaited by the clock, never by a number of
// tries, which a busy machine has used up before anything could come about.
#pragma once

#include <chrono>
#include <thread>

namespace sennit_test {

// Takes `step` until `holds`; false where it does not within a time that no working program needs.
template <typename Condition, typename Step>
bool eventually(Condition holds, Step step) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
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

}  // namespace sennit_test
