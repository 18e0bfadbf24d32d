// requests.cpp: MPI's functions that wait for requests, some of which may be sennit's.
//
// A request of sennit's is a generalized request of MPI's (MPI_Grequest_start), so MPI's own
// functions answer for it once it is complete. Until then each look at MPI's requests goes with one
// at sennit's, and no function of MPI's sleeps.
#include <mpi.h>

#include "pmpi/operation.hpp"

using namespace sennit::pmpi;  // NOLINT: the functions below are the library's

namespace {

// As long as something of sennit's is out: looks, until `test` says that its flag is up. A result
// other than MPI_SUCCESS ends it as well.
template <typename Test>
int look_until(const int& flag, Test test) {
  while (true) {
    poll();
    const int result = test();
    if (result != MPI_SUCCESS || flag) return result;
    rest();
  }
}

}  // namespace

extern "C" {

int sennit_pmpi_Wait(MPI_Request* request, MPI_Status* status) {
  if (!any_begun()) return PMPI_Wait(request, status);
  int flag = 0;
  return look_until(flag, [&] { return PMPI_Test(request, &flag, status); });
}

int sennit_pmpi_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  poll();
  return PMPI_Test(request, flag, status);
}

int sennit_pmpi_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (!any_begun()) return PMPI_Waitall(count, requests, statuses);
  int flag = 0;
  return look_until(flag, [&] { return PMPI_Testall(count, requests, &flag, statuses); });
}

int sennit_pmpi_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  poll();
  return PMPI_Testall(count, requests, flag, statuses);
}

int sennit_pmpi_Waitany(int count, MPI_Request requests[], int* which, MPI_Status* status) {
  if (!any_begun()) return PMPI_Waitany(count, requests, which, status);
  int flag = 0;
  return look_until(flag, [&] { return PMPI_Testany(count, requests, which, &flag, status); });
}

int sennit_pmpi_Testany(int count, MPI_Request requests[], int* which, int* flag,
                        MPI_Status* status) {
  poll();
  return PMPI_Testany(count, requests, which, flag, status);
}

int sennit_pmpi_Waitsome(int count, MPI_Request requests[], int* done, int which[],
                         MPI_Status statuses[]) {
  if (!any_begun()) return PMPI_Waitsome(count, requests, done, which, statuses);
  int flag = 0;
  return look_until(flag, [&] {
    const int result = PMPI_Testsome(count, requests, done, which, statuses);
    flag = *done != 0;  // MPI_UNDEFINED as well: none of them is active
    return result;
  });
}

int sennit_pmpi_Testsome(int count, MPI_Request requests[], int* done, int which[],
                         MPI_Status statuses[]) {
  poll();
  return PMPI_Testsome(count, requests, done, which, statuses);
}

int sennit_pmpi_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  poll();
  return PMPI_Request_get_status(request, flag, status);
}

}  // extern "C"
