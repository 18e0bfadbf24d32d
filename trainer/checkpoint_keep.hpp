// checkpoint_keep.hpp: the folder that a run's checkpoints lie in: which stay, and how they come and go so
// that a kill at any moment leaves only whole ones under their names.
#pragma once

#include <cstdint>
#include <string>

#include "status.hpp"

namespace sennit::trainer {

// Renames `hidden` to `final`; one that is there already is exchanged for it, then removed.
Status put_in_place(const std::string& hidden, const std::string& final);

// Removes what is neither among the last `keep_last` (0: all stay), nor the one with the lowest held-out loss
// (where keep_best), nor the one of `step`, which was just saved. Whether that is the best.
bool keep_chosen(const std::string& folder, int64_t step, int keep_last, bool keep_best);

// Removes hidden folders of saves that never came to an end, but for those of this attempt.
void remove_leftovers(const std::string& folder, const std::string& attempt);

}  // namespace sennit::trainer
