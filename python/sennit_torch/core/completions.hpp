// completions.hpp: who wants to be told that a group's calls have completed: PyTorch's flight
// recorder, so that what it dumps tells a call that hangs from one that is over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

// PyTorch 2.14 has hooks (C10D_BACKEND_HAS_HOOKS), but none of these.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15)
#define SENNIT_TORCH_HAS_COMPLETION_HOOKS
#endif

namespace sennit_torch {

// Of the calls on host memory of one group, which they may outlive. Any thread.
#ifdef SENNIT_TORCH_HAS_COMPLETION_HOOKS
class Completions {
 public:
  using Hook = c10d::CompletionHook;

  void add(int64_t hook_id, Hook hook);
  void remove(int64_t hook_id);
  // Of a call that has not failed. It may have completed a while ago: how long it took is not told.
  void tell(uint64_t key) const;

 private:
  using Hooks = std::map<int64_t, Hook>;
  mutable std::mutex mutex_;  // not held while a hook runs
  std::shared_ptr<const Hooks> hooks_ = std::make_shared<Hooks>();
};
#else  // PyTorch of before 2.15
class Completions {
 public:
  void tell(uint64_t) const {}
};
#endif

}  // namespace sennit_torch
