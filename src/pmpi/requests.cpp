// requests.cpp: MPI's functions that wait for requests, some of which may be sennit's.
//
// A request of sennit's is a generalized request of MPI's (MPI_Grequest_start), so MPI's own
// functions answer for it once it is complete. Until then each look at MPI's requests goes with one
// at sennit's, and no function of MPI's sleeps.
#include <mpi.h>

#include <optional>
#include <utility>
#include <vector>

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

// The requests as they are before a function completes some of them, and so what became of those
// that failed. Empty where none of them is sennit's.
class Before {
 public:
  Before(const MPI_Request requests[], int count) {
    if ((any_begun() || any_failed()) && count > 0) requests_.assign(requests, requests + count);
  }
  // The one that is number `which` is complete. Returns its error.
  int told(int which) const {
    const std::optional<Failure> failure = failure_of(which);
    return failure ? tell(*failure, failure->error) : MPI_SUCCESS;
  }
  // Several are complete, the i-th of them being which(i): the error of each is in its status, and
  // the first one's communicator is told that there are some.
  template <typename Which>
  int told(int count, MPI_Status statuses[], Which which) const {
    std::optional<Failure> first;
    std::vector<int> errors;
    for (int i = 0; i < count; i++) {
      std::optional<Failure> failure = failure_of(which(i));
      errors.push_back(failure ? failure->error : MPI_SUCCESS);
      if (failure && !first) first = std::move(failure);
    }
    if (!first) return MPI_SUCCESS;
    if (statuses != MPI_STATUSES_IGNORE)
      for (int i = 0; i < count; i++) statuses[i].MPI_ERROR = errors[static_cast<size_t>(i)];
    return tell(*first, MPI_ERR_IN_STATUS);
  }

 private:
  std::optional<Failure> failure_of(int which) const {
    if (!any_failed() || which < 0 || static_cast<size_t>(which) >= requests_.size())
      return std::nullopt;
    return take_failure(requests_[static_cast<size_t>(which)]);
  }
  std::vector<MPI_Request> requests_;
};

int itself(int i) { return i; }

}  // namespace

extern "C" {

int sennit_pmpi_Wait(MPI_Request* request, MPI_Status* status) {
  if (!any_begun() && !any_failed()) return PMPI_Wait(request, status);
  const Before before(request, 1);
  int flag = 0;
  const int result = look_until(flag, [&] { return PMPI_Test(request, &flag, status); });
  return result != MPI_SUCCESS ? result : before.told(0);
}

int sennit_pmpi_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const Before before(request, 1);
  poll();
  const int result = PMPI_Test(request, flag, status);
  return result != MPI_SUCCESS || !*flag ? result : before.told(0);
}

int sennit_pmpi_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (!any_begun() && !any_failed()) return PMPI_Waitall(count, requests, statuses);
  const Before before(requests, count);
  int flag = 0;
  const int result =
      look_until(flag, [&] { return PMPI_Testall(count, requests, &flag, statuses); });
  return result != MPI_SUCCESS ? result : before.told(count, statuses, itself);
}

int sennit_pmpi_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  const Before before(requests, count);
  poll();
  const int result = PMPI_Testall(count, requests, flag, statuses);
  return result != MPI_SUCCESS || !*flag ? result : before.told(count, statuses, itself);
}

int sennit_pmpi_Waitany(int count, MPI_Request requests[], int* which, MPI_Status* status) {
  if (!any_begun() && !any_failed()) return PMPI_Waitany(count, requests, which, status);
  const Before before(requests, count);
  int flag = 0;
  const int result =
      look_until(flag, [&] { return PMPI_Testany(count, requests, which, &flag, status); });
  return result != MPI_SUCCESS || *which == MPI_UNDEFINED ? result : before.told(*which);
}

int sennit_pmpi_Testany(int count, MPI_Request requests[], int* which, int* flag,
                        MPI_Status* status) {
  const Before before(requests, count);
  poll();
  const int result = PMPI_Testany(count, requests, which, flag, status);
  const bool completed = result == MPI_SUCCESS && *flag && *which != MPI_UNDEFINED;
  return completed ? before.told(*which) : result;
}

int sennit_pmpi_Waitsome(int count, MPI_Request requests[], int* done, int which[],
                         MPI_Status statuses[]) {
  if (!any_begun() && !any_failed()) return PMPI_Waitsome(count, requests, done, which, statuses);
  const Before before(requests, count);
  int flag = 0;
  const int result = look_until(flag, [&] {
    const int looked = PMPI_Testsome(count, requests, done, which, statuses);
    flag = *done != 0;  // MPI_UNDEFINED as well: none of them is active
    return looked;
  });
  if (result != MPI_SUCCESS || *done == MPI_UNDEFINED) return result;
  return before.told(*done, statuses, [&](int i) { return which[i]; });
}

int sennit_pmpi_Testsome(int count, MPI_Request requests[], int* done, int which[],
                         MPI_Status statuses[]) {
  const Before before(requests, count);
  poll();
  const int result = PMPI_Testsome(count, requests, done, which, statuses);
  if (result != MPI_SUCCESS || *done == MPI_UNDEFINED) return result;
  return before.told(*done, statuses, [&](int i) { return which[i]; });
}

// The function that completes the request tells what it failed with.
int sennit_pmpi_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  poll();
  return PMPI_Request_get_status(request, flag, status);
}

}  // extern "C"
