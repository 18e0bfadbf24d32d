// large_counts.hpp: whether the MPI of a command has functions with large counts, MPI_Allreduce_c
// and its like, which came with MPI 4.
//
// It has to be known before the command starts: what is preloaded defines a function for every
// program, and one that refers to it weakly, as mpi4py does, takes it for the MPI's.
#pragma once

#include <string>
#include <vector>

namespace sennit {

// What the command tells of them. `why` names an MPI and says whether it has them, or says that the
// command names none; then they are taken for absent.
struct LargeCounts {
  bool there = false;
  std::string why;
};

// By the MPI that programs among the command's words are linked to, or else by the one that is
// installed with a launcher among them. Nothing of either runs.
LargeCounts large_counts_of(const std::vector<std::string>& command);

}  // namespace sennit
