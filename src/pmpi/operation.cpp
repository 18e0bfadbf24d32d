// operation.cpp: see pmpi/operation.hpp.
#include "pmpi/operation.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>

#include "base/mutex.hpp"

extern "C" uintptr_t* sennit_pmpi_within(void);  // process.cpp

namespace sennit::pmpi {
namespace {

constexpr int64_t kSliceMs = 1;  // between two times of looking after MPI's own messages
constexpr std::chrono::microseconds kLooks{20};  // each such time

// A request of MPI's for an operation of sennit's.
struct Begun {
  std::unique_ptr<Operation> operation;
  MPI_Request request = MPI_REQUEST_NULL;
  int result = MPI_SUCCESS;
};

struct AllBegun {
  Mutex mutex;
  std::vector<Begun> operations SENNIT_GUARDED_BY(mutex);
  std::atomic<size_t> count{0};
  static AllBegun& instance() {
    static auto* const all = new AllBegun;
    return *all;
  }
};

struct AllFailed {
  Mutex mutex;
  std::map<MPI_Request, Failure> failures SENNIT_GUARDED_BY(mutex);
  std::atomic<size_t> count{0};
  static AllFailed& instance() {
    static auto* const all = new AllFailed;
    return *all;
  }
};

// What it failed with is no error here: MPI would tell it to the handler of another communicator.
int query(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int let_go(void*) { return MPI_SUCCESS; }
int cancel(void*, int) { return MPI_SUCCESS; }

// What sennit says becomes MPI's error.
int error_of(const Operation& operation, sennit_status_t status) {
  if (status == SENNIT_OK) return MPI_SUCCESS;
  std::fprintf(stderr, "sennit: MPI_%s: %s\n", operation.name, sennit_last_error());
  return MPI_ERR_OTHER;
}

// No lock is held.
int handled(const Operation& operation, int result) {
  if (result == MPI_SUCCESS) return result;
  return tell({operation.mpi, operation.held, result}, result);
}

// The operation has completed; its work is given back.
int end(Operation& operation, sennit_status_t status) SENNIT_REQUIRES(operation.held->mutex) {
  const int result = error_of(operation, status);
  sennit_work_free(std::exchange(operation.work, nullptr));
  return result;
}

// What is left to do then is MPI's. No lock is held: another thread may wait for it within one of
// MPI's functions, which has MPI's own lock.
void unpack(const Operation& operation, int result) {
  if (result == MPI_SUCCESS && operation.after) operation.after();
}

// Then *result is what it ended with.
bool is_over(Operation& operation, int* result) {
  if (!operation.held->mutex.try_lock()) return false;  // another thread is in a call there
  const MutexLock turn(operation.held->mutex, std::adopt_lock);
  const sennit_status_t status = sennit_work_test(operation.work);
  if (status == SENNIT_IN_PROGRESS) return false;
  *result = end(operation, status);
  return true;
}

// Those that are over, which are no longer looked after.
std::vector<Begun> take_over(AllBegun& all) {
  std::vector<Begun> over;
  const MutexLock lock(all.mutex);
  for (size_t i = 0; i < all.operations.size();) {
    Begun& begun = all.operations[i];
    if (!is_over(*begun.operation, &begun.result)) {
      i++;
      continue;
    }
    over.push_back(std::move(begun));
    if (i + 1 < all.operations.size()) begun = std::move(all.operations.back());
    all.operations.pop_back();
  }
  return over;
}

}  // namespace

// By looks at a request that is not complete. MPI_Iprobe moves nothing where it finds a message,
// and in MPICH nothing either on a communicator of one. Several looks, as a message goes in pieces,
// and access to this one's memory in steps, which the other end asks for one after the other.
void let_mpi_progress() {
  MPI_Request request = MPI_REQUEST_NULL;
  int flag = 0;
  PMPI_Grequest_start(query, let_go, cancel, nullptr, &request);
  const auto until = std::chrono::steady_clock::now() + kLooks;
  do {
    PMPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  } while (std::chrono::steady_clock::now() < until);
  PMPI_Grequest_complete(request);
  PMPI_Request_free(&request);
}

bool any_failed() { return AllFailed::instance().count.load() > 0; }

std::optional<Failure> take_failure(MPI_Request request) {
  AllFailed& all = AllFailed::instance();
  const MutexLock lock(all.mutex);
  const auto found = all.failures.find(request);
  if (found == all.failures.end()) return std::nullopt;
  Failure failure = std::move(found->second);
  all.failures.erase(found);
  all.count--;
  return failure;
}

// What the handler calls goes through sennit as what any function of the program's does; and it may
// never come back.
int tell(const Failure& failure, int error) {
  if (failure.held->freed) return error;
  const uintptr_t frame = std::exchange(*sennit_pmpi_within(), 0);
  PMPI_Comm_call_errhandler(failure.comm, error);
  *sennit_pmpi_within() = frame;
  return error;
}

int run(Operation& operation) {
  MutexLock lock(operation.held->mutex);
  sennit_status_t status = operation.start(operation.held->comm, &operation.work);
  if (status == SENNIT_OK)
    while ((status = sennit_work_wait(operation.work, kSliceMs)) == SENNIT_IN_PROGRESS) {
      lock.unlock();
      let_mpi_progress();
      poll();
      lock.lock();
    }
  const int result = end(operation, status);
  lock.unlock();
  unpack(operation, result);
  return handled(operation, result);
}

int begin(std::unique_ptr<Operation> operation, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  int error = MPI_SUCCESS;
  {
    const MutexLock lock(operation->held->mutex);
    error = error_of(*operation, operation->start(operation->held->comm, &operation->work));
  }
  if (error != MPI_SUCCESS) return handled(*operation, error);
  PMPI_Grequest_start(query, let_go, cancel, nullptr, request);
  if (any_failed())
    take_failure(*request);  // of an earlier one of this name, which nobody asked for
  AllBegun& all = AllBegun::instance();
  const MutexLock lock(all.mutex);
  all.operations.push_back({std::move(operation), *request});
  all.count++;
  return MPI_SUCCESS;
}

bool any_begun() { return AllBegun::instance().count.load() > 0; }

void poll() {
  AllBegun& all = AllBegun::instance();
  if (all.count.load() == 0) return;
  for (const Begun& begun : take_over(all)) {
    unpack(*begun.operation, begun.result);
    if (begun.result != MPI_SUCCESS) {
      AllFailed& failed = AllFailed::instance();
      const MutexLock lock(failed.mutex);
      failed.failures[begun.request] = {begun.operation->mpi, begun.operation->held, begun.result};
      failed.count = failed.failures.size();
    }
    PMPI_Grequest_complete(begun.request);
    all.count--;  // from now on MPI's own functions may wait for it
  }
}

// Another thread may be in a call on the communicator: then this one has nothing to do here.
void rest() {
  AllBegun& all = AllBegun::instance();
  if (all.mutex.try_lock()) {
    const MutexLock lock(all.mutex, std::adopt_lock);
    if (!all.operations.empty()) {
      const Operation& operation = *all.operations.front().operation;
      if (operation.held->mutex.try_lock()) {
        const MutexLock turn(operation.held->mutex, std::adopt_lock);
        sennit_work_wait(operation.work, 0);  // its end is left to poll()
      }
    }
  }
  sched_yield();
}

}  // namespace sennit::pmpi
