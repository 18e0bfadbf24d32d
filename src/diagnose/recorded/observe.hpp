// observe.hpp: what the messages of a job's recordings took, by edge, in calls of one plan.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {

// The plan that moved most bytes over edges of kLeastEdgeBytes, with at most the latest
// `most_calls`, in which no other call was under way; nothing where there is none.
std::optional<ObservedPlan> observe_edges(const JobRecording& job, Plans& plans,
                                          const std::vector<Message>& messages, size_t most_calls);

}  // namespace sennit::diagnose
