// census.cpp: see control/tree/census.hpp.
#include "control/tree/census.hpp"

#include <fmt/core.h>

namespace sennit::control {

int Census::lowest_alive() const {
  int rank = 0;
  while (rank != self_.rank && gone(rank)) rank++;
  return rank;
}

std::string Census::describe(int rank) const {
  const auto index = static_cast<size_t>(rank);
  if (index >= members.size() || members[index].pid == 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, pid {})", rank, members[index].host, members[index].pid);
}

}  // namespace sennit::control
