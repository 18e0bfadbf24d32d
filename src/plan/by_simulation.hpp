// by_simulation.hpp: what the candidates of a call take where groups are not alike, by the
// simulator.
//
// The closed form adds up what the busiest boundary of each tier takes. Of groups that are not
// alike these boundaries are different groups', which work at the same time, or one group sends all
// that it has before it gets anything. So the candidates are simulated, the best by the form first,
// over what headers leave of the links, with the queues that sockets fill. Of a long call some
// chunks are simulated, and then some more: each further chunk takes as long. Pure, and the same on
// every rank: the simulator's numbers are those of IEEE 754, uncontracted. Cost: up to some 80 ms.
#pragma once

#include <vector>

#include "plan/pipeline.hpp"
#include "schedule/plan.hpp"

namespace sennit {

// Predicted times of those that are not far behind become the simulator's; those for which no
// messages are left are taken to be off as the first. Nothing changes where groups are alike, there
// are many ranks, or the first has too many messages.
void time_by_simulation(const Setting& setting, std::vector<Candidate>* candidates);

}  // namespace sennit
