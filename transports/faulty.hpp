// faulty.hpp: a transport that wraps another and misbehaves as told, for tests of failure handling.
//
// SENNIT_FAULTS, e.g. "rank=3,kill=50" or "transport=tcp,delay=2ms,seed=7", wraps every transport
// that is made (registry.cpp). Delaying keeps the contract, so the conformance suite runs over it
// as well. A broken connection is reported once and its requests stay pending until fail_peer() or
// cancel(); with tcp the peer sees it end, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transports/transport.hpp"

namespace sennit {

// What goes wrong, and when; by default nothing does. Messages are counted from 1, as this rank
// sends them, over all peers and communicators.
struct FaultPlan {
  int rank = -1;          // only this rank misbehaves; -1: every rank
  std::string transport;  // only this transport; empty: any
  uint64_t delay_ns = 0;  // before each message, give or take half
  uint64_t drop = 0;      // this message is taken and never sent; 0: none
  // after this many messages the connection to the last one's peer breaks
  uint64_t break_after = 0;
  uint64_t break_after_bytes = 0;
  uint64_t kill = 0;  // at this message the process kills itself (SIGKILL)
  uint64_t seed = 1;  // of the delays
};

// The text of SENNIT_FAULTS; empty: no faults.
Result<FaultPlan> parse_faults(std::string_view text);
// Takes the transport over; `plan.rank` and `plan.transport` are for the caller to see to.
std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan);

}  // namespace sennit
