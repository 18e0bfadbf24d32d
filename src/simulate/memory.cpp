// memory.cpp: what the simulation of so many ranks would take, before they are made: the program of
// every rank that does something of its own is kept, and an all-to-all's grows with the ranks.
#include <algorithm>
#include <unordered_set>

#include <fmt/core.h>

#include "base/process/memory_left.hpp"
#include "schedule/prepared.hpp"
#include "simulate/symmetry.hpp"

namespace sennit::simulation {
namespace {

constexpr uint64_t kFewRanks = 1024;  // need some hundred MB at most
constexpr size_t kLookedAt = 16;      // programs
constexpr uint64_t kSlack = 256 << 20;

// Of a rank that is simulated, roughly: its program, what is derived of it, and the state of its
// run.
uint64_t bytes_of(const GroupCall& call, const Program& program, size_t peers) {
  constexpr uint64_t kStep = 64, kLaneStep = 8, kPeer = 400;
  const uint64_t lanes = std::clamp<uint64_t>(call.chunks, 1, kLanes);
  return program.memory_bytes() + program.steps.size() * (kStep + lanes * kLaneStep) +
         peers * kPeer;
}

}  // namespace

Status check_memory(std::span<const GroupCall> calls, bool symmetry) {
  uint64_t members = 0;
  for (const GroupCall& call : calls) members += call.positions.size();
  if (members <= kFewRanks) return {};
  std::unordered_set<uint64_t> different;
  uint64_t bytes = 0, next = 0;
  for (size_t i = 0; i < kLookedAt; i++) {
    // anywhere in its call, the same every time
    next = next * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t member = members * i / kLookedAt + (next >> 33) % (members / kLookedAt);
    const GroupCall* call = calls.data();
    while (member >= call->positions.size()) member -= (call++)->positions.size();
    const Program program = call->blueprint->program(static_cast<int>(member));
    const Look look = look_at(*call, program);
    bytes += bytes_of(*call, program, look.peers.size());
    different.insert(look.hash);
  }
  // Where all that were looked at differ, so may all: ranks that do the same are few programs, and
  // many.
  const uint64_t alone = symmetry && different.size() < kLookedAt ? different.size() : members;
  const double needed = static_cast<double>(bytes) / kLookedAt * static_cast<double>(alone);
  const MemoryLeft there = memory_left_to_process();
  if (needed + kSlack <= static_cast<double>(there.bytes)) return {};
  return {
      SENNIT_OUT_OF_RESOURCES,
      fmt::format("simulating {} ranks, nearly each with a program of its own, needs about {:.1f} "
                  "GB of memory, and {} leaves {:.1f} GB: use --ranks, or another --algorithm",
                  members, needed * 1e-9, there.limit, static_cast<double>(there.bytes) * 1e-9)};
}

}  // namespace sennit::simulation
