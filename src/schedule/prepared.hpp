// prepared.hpp: a Program made ready to run: dependents instead of dependencies, a list of peers,
// slot readers. Made once per (communicator, request) and cached; immutable and shared by all works
// that run it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/program.hpp"

namespace sennit {

// Chunks of a call in flight: enough to keep every stage of a deep pipeline busy, few enough to
// bound scratch memory.
inline constexpr uint32_t kLanes = 8;

// One rank's program of one request, as the executor takes it.
struct Prepared {
  Request request;
  Plan plan;
  Program program;
  std::string description;  // "broadcast count 1024 float32 root 3", with the user's rank
  // What every message carries: a hash of the request without in_place, and of the plan.
  uint64_t signature = 0;
  uint64_t fabric_version = 0;  // that it was planned by; 0: what ranks agreed on at the start

  std::vector<uint32_t> initial_deps;     // by step: how many steps it waits for
  std::vector<uint32_t> first_dependent;  // by step, CSR into `dependents`; steps + 1 entries
  std::vector<uint32_t> dependents;
  std::vector<uint32_t> ready_at_start;
  std::vector<int32_t> peers;          // distinct peers (positions) of sends
  std::vector<uint32_t> peer_slot;     // by step: index into `peers` (sends)
  std::vector<uint32_t> slot_readers;  // by slot: reduce and send steps that read it
  // by slot: the one receive that fills it, if it may be exposed; else -1
  std::vector<int32_t> slot_filler;
};

// `program` must be the program of this rank for the request.
std::shared_ptr<Prepared> prepare(const Request& request, Plan plan, Program program);

// FNV-1a over everything that must agree between ranks.
uint64_t signature_of(const Request& request, uint64_t plan_hash);

}  // namespace sennit
