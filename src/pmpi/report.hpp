// report.hpp: how many collectives went through sennit, for `sennit exec -v` to tell.
#pragma once

namespace sennit::pmpi {

// Each counts one and passes the result on.
int by_sennit(int result);
int by_mpi(int result);

// One line on standard error, where SENNIT_EXEC_BINDINGS is set.
void tell_counts();

}  // namespace sennit::pmpi
