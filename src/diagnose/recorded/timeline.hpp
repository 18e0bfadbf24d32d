// timeline.hpp: times of calls, one after the other, in one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sennit::diagnose {

// "12.1 12.0 12.2 | 20.4 20.1 ms": medians of about ten stretches of as many calls each, the oldest
// first, with a bar before the one that begins with call `since` of them; 0: no bar.
std::string timeline(const std::vector<double>& times_ns, size_t since);

}  // namespace sennit::diagnose
