// sentences.hpp: what is wrong with a job that goes on, in one line for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/links.hpp"
#include "record/notes.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// Of each suspect: "out of rack1".
std::vector<std::string> link_names(const TierTree& tree, const SlowLink& slow);
// All of them in one: "into rack0 or out of rack1", "every rack's link".
std::string suspects_name(const TierTree& tree, const SlowLink& slow);
// "out of rack1: 47% of its capacity since call 12; costs 30% of CALL; confidence 0.91". `since`:
// from which call on, empty where that is not known. `call`: "all_reduce of 4MiB float32 sum".
std::string slow_link_sentence(const TierTree& tree, const SlowLink& slow, const std::string& since,
                               const std::string& call);
// "rank 3 comes late by 1.2 ms a call: ...". Ranks ascending; `cost`: part of the time. `cores`:
// that the process of the latest of them asks for between its calls, where that is known.
std::string late_ranks_sentence(const std::vector<int>& ranks, double late_ns, double cost,
                                int latest, std::optional<double> cores);
// "rank 3 gets no core for 48% of the time: ...". Ranks ascending; `part`: of the time.
std::string starved_ranks_sentence(const std::vector<int>& ranks, double part);
// What to do, or to run. `on_the_way`: a hang's message was lost, and no rank is to blame. `host`,
// `pid`: of the rank to look at, as the reader may type them; empty: not known.
std::string next_step(VerdictAbout about, bool on_the_way, std::string host, std::string pid);

}  // namespace sennit::diagnose
