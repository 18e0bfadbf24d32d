// report.cpp: see pmpi/report.hpp.
#include "pmpi/report.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace sennit::pmpi {
namespace {

std::atomic<long> sennits{0}, mpis{0};

}  // namespace

int by_sennit(int result) {
  sennits.fetch_add(1, std::memory_order_relaxed);
  return result;
}
int by_mpi(int result) {
  mpis.fetch_add(1, std::memory_order_relaxed);
  return result;
}

void tell_counts() {
  const char* const asked = std::getenv("SENNIT_EXEC_BINDINGS");
  if (!asked || !*asked) return;
  std::fprintf(stderr, "sennit exec: %s[%d]: collectives by sennit: %ld, by MPI itself: %ld\n",
               program_invocation_short_name, static_cast<int>(getpid()), sennits.load(),
               mpis.load());
}

}  // namespace sennit::pmpi
