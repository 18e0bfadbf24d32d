// all_ranks.hpp: one answer where each rank has its own: what one rank cannot do is said once, by
// rank 0, with the number and host of the rank that failed, and no rank goes on without the others.
#pragma once

#include <string>

#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {

// Collective. Ok where all ranks' `own` is. Else all get the kind of the first rank that failed,
// and rank 0 its text, with "rank 3 (HOST): " before it where it is another; the others' text is
// empty, for rank 0 speaks.
Status one_answer(const Status& own, Communicator& group);

// Collective. Rank `root`'s text, of any length.
Status tell_all(std::string* text, int root, Communicator& group);

}  // namespace sennit::trainer
