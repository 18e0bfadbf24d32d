// completions.cpp: see python/sennit_torch/core/completions.hpp.
#include "core/completions.hpp"

#include <optional>
#include <utility>

namespace sennit_torch {

#ifdef SENNIT_TORCH_HAS_COMPLETION_HOOKS
void Completions::add(int64_t hook_id, Hook hook) {
  const std::scoped_lock lock(mutex_);
  auto more = std::make_shared<Hooks>(*hooks_);
  more->insert_or_assign(hook_id, std::move(hook));
  hooks_ = std::move(more);
}

void Completions::remove(int64_t hook_id) {
  const std::scoped_lock lock(mutex_);
  auto fewer = std::make_shared<Hooks>(*hooks_);
  fewer->erase(hook_id);
  hooks_ = std::move(fewer);
}

void Completions::tell(uint64_t key) const {
  std::shared_ptr<const Hooks> hooks;
  {
    const std::scoped_lock lock(mutex_);
    hooks = hooks_;
  }
  for (const auto& [id, hook] : *hooks) hook({key, std::nullopt});
}
#endif

}  // namespace sennit_torch
