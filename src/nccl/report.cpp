// report.cpp: see nccl/report.hpp.
#include "nccl/report.hpp"

#include <string>

#include "base/mutex.hpp"
#include "nccl/group.hpp"
#include "nccl/numbers.hpp"

namespace sennit::nccl {
namespace {

struct ProcessError {
  Mutex mutex;
  std::string text SENNIT_GUARDED_BY(mutex);
};
ProcessError& process_error() {
  static auto* const error = new ProcessError;  // programs ask at their very end, too
  return *error;
}
thread_local std::string t_error;
thread_local std::string t_answer;

}  // namespace

ncclResult_t report(const Outcome& outcome) {
  if (outcome.ok() || outcome.result == ncclInProgress) return outcome.result;
  t_error = outcome.text;
  ProcessError& shared = process_error();
  const MutexLock lock(shared.mutex);
  shared.text = outcome.text;
  return outcome.result;
}

ncclResult_t report(sennit_status_t status) {
  if (status == SENNIT_OK) return ncclSuccess;
  return report(Outcome{result_of(status), sennit_last_error()});
}

const char* last_error() {
  t_answer = t_error;
  if (t_answer.empty()) {
    ProcessError& shared = process_error();
    const MutexLock lock(shared.mutex);
    t_answer = shared.text;
  }
  return t_answer.c_str();
}

ncclResult_t refuse(const char* function, const char* what) {
  const Outcome outcome{ncclInvalidUsage, std::string(function) + ": sennit " + what};
  fail_group(outcome);
  return report(outcome);
}

}  // namespace sennit::nccl
