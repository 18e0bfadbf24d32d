// fold.hpp: folding: siblings that would read the same are shown once with their number, so 3,072
// hosts fit on a page and what differs stands out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/topo/model/model.hpp"

namespace sennit::topo {

// Equal siblings, or one, or the rest that found no place. Points into the model, which must stay
// in place.
struct Fold {
  const Item* first = nullptr;
  int count = 1;
  std::vector<std::string> names;
  std::vector<Fold> children;  // of the first
  // of all of them; measured: rounded
  uint64_t about_egress_bytes_per_s = 0, about_ingress_bytes_per_s = 0;
  bool rest = false;  // several unlike ones, from least to most
  Capacity least, most;
};
// How much may be shown.
struct FoldOptions {
  int most_classes = 16;  // beneath one item; the rest is one fold
  // siblings stay apart from the top down while there are at most so many leaves
  int unfolded_columns = 0;
  bool insides = true;  // show what is inside of hosts
};
// The whole tree. Two items are equal when their figures, their suspects and their children are;
// names do not matter. Measured figures are never quite equal: those of one tier within 5% count as
// their median. Cost: O(items log items).
Fold fold(const Model& model, const FoldOptions& options);
// "rack[0-3,7]"; what has no number stays as it is.
std::string fold_names(const std::vector<std::string>& names);

}  // namespace sennit::topo
