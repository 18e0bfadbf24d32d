// by_simulation.hpp: what the candidates of a small call take where groups are not alike, by the
// simulator.
//
// The closed form adds up what the busiest boundary of each tier takes. Of groups that are not
// alike these boundaries are different groups', which work at the same time, or one group sends all
// that it has before it gets anything. Where chunks hide that the form is nearly right; a call of
// up to some thousand messages is simulated, over what headers leave of the links, with the queues
// that sockets fill. Pure, and the same on every rank: the simulator's numbers are those of IEEE
// 754, uncontracted. Cost: up to some 15 ms.
#pragma once

#include <vector>

#include "plan/pipeline.hpp"
#include "schedule/plan.hpp"

namespace sennit {

// Predicted times of those that are not far behind become the simulator's. Nothing changes where
// groups are alike, there are many ranks, or many messages.
void time_by_simulation(const Setting& setting, std::vector<Candidate>* candidates);

}  // namespace sennit
