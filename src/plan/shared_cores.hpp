// shared_cores.hpp: what many ranks on few cores take beyond the plain pipeline of
// plan/pipeline.hpp.
//
// Hosts that are namespaces or containers of one machine share its cores, and their links are
// shapers with bursts. There a message costs the core that sends it and the core that receives it,
// messages of all ranks add up, and calls in a row wait for one another. The terms are fitted to
// what was measured so (tests/data/choices*.txt). With SharedCores::counted off both functions do
// nothing, and the planner is latency, posting and pipelined tiers. An algorithm helps with
// Algorithm::on_shared_cores, which nobody else asks. Who shares cores is plan/cores.hpp's, what a
// message costs them plan/message_cost.hpp's. Pure, integers only.
#pragma once

#include "cost/cost_model.hpp"
#include "plan/pipeline.hpp"

namespace sennit {

// Adds to what a candidate takes, `estimate` being the algorithm's own of it:
// - posting: what the busiest rank receives, where cores are shared or within a host, and all
//   ranks' messages on the cores that they share;
// - tiers: only what is left behind their bursts waits, ways through different groups are taken at
//   the same time, and a whole message fills its way hop after hop;
// - calls in a row: what passed in a burst must be earned again at the rate.
void share_cores(const Setting& setting, const Algorithm& algorithm, const Parameters& parameters,
                 const Estimate& estimate, Pipeline* pipeline);

// Hosts that are namespaces of one kernel: a message is on its way only as long as cores work on
// it, and sending it is nearly all of that, up to the receiver's socket. Sets latency and posting
// from what a message costs a core.
void within_one_machine(CostModel* cost);

}  // namespace sennit
