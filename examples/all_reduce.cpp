// all_reduce.cpp: every rank gives a vector, every rank gets the sum. In C++, where errors are
// values.
#include <cstdio>
#include <sennit/sennit.hpp>
#include <vector>

static sennit::Error run() {
  auto comm = sennit::Communicator::from_environment();
  if (!comm) return comm.error();
  const int rank = comm->rank();
  const int size = comm->size();

  // The element type follows from the pointers, the operation is a sum unless told otherwise.
  std::vector<double> x(1 << 20, rank + 1.0);
  if (auto error = comm->all_reduce(x.data(), x.data(), x.size())) return error;
  std::vector<int> largest(1, rank);
  if (auto error = comm->all_reduce(largest.data(), largest.data(), 1, sennit::max)) return error;

  const double expected = size * (size + 1) / 2.0;
  for (double value : x)
    if (value != expected) return {SENNIT_INTERNAL, "a sum is wrong"};
  if (rank == 0) std::printf("%d ranks: every element is %g\n", largest[0] + 1, expected);
  return comm->finalize();
}

int main() {
  const sennit::Error error = run();
  if (error) std::fprintf(stderr, "%s\n", error.text.c_str());
  return error ? 1 : 0;
}
