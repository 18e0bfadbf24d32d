// report.hpp: how a function of the interface ends: its result, and the text that ncclGetLastError
// gives for it. No exception leaves a function of the interface.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// Keeps the text where the outcome is an error, and returns the result.
ncclResult_t report(const Outcome& outcome);
// The same for what sennit's own interface has just returned on this thread.
ncclResult_t report(sennit_status_t status);

// What the thread was told last, else what any thread was. Good until the thread asks again.
const char* last_error();

// Runs f, which returns an Outcome; what escapes it becomes one.
template <typename F>
Outcome contain(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const std::bad_alloc&) {
    return {ncclSystemError, "out of memory"};
  } catch (const std::exception& e) {
    return {ncclInternalError, e.what()};
  }
}
template <typename F>
ncclResult_t guarded(F&& f) {
  return report(contain(std::forward<F>(f)));
}

// For what NCCL has and sennit has not. `what` completes "ncclCommGrow: sennit ".
ncclResult_t refuse(const char* function, const char* what);

}  // namespace sennit::nccl
