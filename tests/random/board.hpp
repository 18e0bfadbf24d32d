// board.hpp: the memory that a program's processes and the runner share: how far each rank is in
// each event, the jobs' ids, and what went wrong.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "sennit/sennit.h"

namespace random_programs {

inline constexpr int kMostRanks = 16, kMostEvents = 512, kMostJobs = 16, kMostFailures = 8;

// How a program fails.
enum class Wrong { nothing, result, leak, end, report, hang };

struct Board {
  static constexpr int kNotBegun = 0, kUnderWay = 1, kOver = 2;  // kOver + status
  std::atomic<int> state[kMostRanks][kMostEvents];
  struct Id {
    std::atomic<int> known;
    sennit_unique_id_t id;
  } ids[kMostJobs];
  std::atomic<int> failures;
  std::atomic<Wrong> first_kind;
  char failure[kMostFailures][700];

  void clear() {
    for (auto& rank : state)
      for (auto& event : rank) event.store(kNotBegun, std::memory_order_relaxed);
    for (Id& id : ids) id.known = 0;
    failures = 0;
    first_kind = Wrong::nothing;
  }
  // The first kind is the program's.
  void fail(Wrong kind, const std::string& text) {
    Wrong none = Wrong::nothing;
    first_kind.compare_exchange_strong(none, kind);
    const int slot = failures.fetch_add(1);
    if (slot < kMostFailures)
      std::snprintf(failure[slot], sizeof failure[slot], "%s", text.c_str());
  }
};

}  // namespace random_programs
