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

// Requests as they are before a function completes some of them, and so what became of those of
// sennit's that failed. Where nothing of sennit's is out there is nothing to remember.
class Before {
 public:
  Before(const MPI_Request requests[], int count) : now_(requests) {
    if ((any_begun() || any_failed()) && count > 0) before_.assign(requests, requests + count);
  }
  // MPI completed the one that is number `which`, if any, with this result. Returns that, or its
  // error.
  int told(int result, int which) const {
    const std::optional<Failure> failure = failure_of(which);
    return failure ? tell(*failure, failure->error) : result;
  }
  // MPI completed several with this result, the i-th being which(i): the error of each is in its
  // status, and the first one's communicator is told that there are some. Returns `result`, or
  // that.
  template <typename Which>
  int told(int result, int count, MPI_Status statuses[], Which which) const {
    std::optional<Failure> first;
    for (int i = 0; i < count && any_failed(); i++) {
      std::optional<Failure> failure = failure_of(which(i));
      if (!failure) continue;
      // MPI has written errors only where it found some itself.
      if (!first && result == MPI_SUCCESS && statuses != MPI_STATUSES_IGNORE)
        for (int k = 0; k < count; k++) statuses[k].MPI_ERROR = MPI_SUCCESS;
      if (statuses != MPI_STATUSES_IGNORE) statuses[i].MPI_ERROR = failure->error;
      if (!first) first = std::move(failure);
    }
    return first ? tell(*first, MPI_ERR_IN_STATUS) : result;
  }

 private:
  // Of one that is complete: MPI let go of it.
  std::optional<Failure> failure_of(int which) const {
    const auto at = static_cast<size_t>(which);
    if (!any_failed() || which < 0 || at >= before_.size() || now_[at] == before_[at])
      return std::nullopt;
    return take_failure(before_[at]);
  }
  const MPI_Request* const now_;
  std::vector<MPI_Request> before_;
};

int itself(int i) { return i; }

}  // namespace

extern "C" {

int sennit_pmpi_Wait(MPI_Request* request, MPI_Status* status) {
  if (!any_begun() && !any_failed()) return PMPI_Wait(request, status);
  const Before before(request, 1);
  int flag = 0;
  return before.told(look_until(flag, [&] { return PMPI_Test(request, &flag, status); }), 0);
}

int sennit_pmpi_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const Before before(request, 1);
  poll();
  return before.told(PMPI_Test(request, flag, status), 0);
}

int sennit_pmpi_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (!any_begun() && !any_failed()) return PMPI_Waitall(count, requests, statuses);
  const Before before(requests, count);
  int flag = 0;
  const int result =
      look_until(flag, [&] { return PMPI_Testall(count, requests, &flag, statuses); });
  return before.told(result, count, statuses, itself);
}

int sennit_pmpi_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  const Before before(requests, count);
  poll();
  return before.told(PMPI_Testall(count, requests, flag, statuses), count, statuses, itself);
}

int sennit_pmpi_Waitany(int count, MPI_Request requests[], int* which, MPI_Status* status) {
  if (!any_begun() && !any_failed()) return PMPI_Waitany(count, requests, which, status);
  const Before before(requests, count);
  int flag = 0;
  const int result =
      look_until(flag, [&] { return PMPI_Testany(count, requests, which, &flag, status); });
  return *which == MPI_UNDEFINED ? result : before.told(result, *which);
}

int sennit_pmpi_Testany(int count, MPI_Request requests[], int* which, int* flag,
                        MPI_Status* status) {
  const Before before(requests, count);
  poll();
  const int result = PMPI_Testany(count, requests, which, flag, status);
  return *flag && *which != MPI_UNDEFINED ? before.told(result, *which) : result;
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
  if (*done == MPI_UNDEFINED) return result;
  return before.told(result, *done, statuses, [&](int i) { return which[i]; });
}

int sennit_pmpi_Testsome(int count, MPI_Request requests[], int* done, int which[],
                         MPI_Status statuses[]) {
  const Before before(requests, count);
  poll();
  const int result = PMPI_Testsome(count, requests, done, which, statuses);
  if (*done == MPI_UNDEFINED) return result;
  return before.told(result, *done, statuses, [&](int i) { return which[i]; });
}

// The function that completes the request tells what it failed with.
int sennit_pmpi_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  poll();
  return PMPI_Request_get_status(request, flag, status);
}

}  // extern "C"
