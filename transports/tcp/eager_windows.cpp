// eager_windows.cpp: see transports/tcp/eager_windows.hpp.
#include "transports/tcp/eager_windows.hpp"

#include <algorithm>

#include "transports/tcp/wire.hpp"

namespace sennit::tcp {

EagerWindows::EagerWindow* EagerWindows::find(uint32_t comm) {
  if (last_ && last_comm_ == comm) return last_;
  const auto found = windows_.find(comm);
  if (found == windows_.end()) return nullptr;
  last_comm_ = comm;
  return last_ = &found->second;  // does not move
}

EagerWindows::EagerWindow& EagerWindows::at(uint32_t comm) {
  if (EagerWindow* known = find(comm)) return *known;
  last_comm_ = comm;
  return *(last_ = &windows_.try_emplace(comm, EagerWindow{bytes_}).first->second);
}

bool EagerWindows::spend(uint32_t comm, size_t bytes) {
  EagerWindow& window = at(comm);
  if (window.available < eager_cost(bytes)) return false;
  window.available -= eager_cost(bytes);
  return true;
}

bool EagerWindows::take_credit(uint32_t comm, uint32_t credit) {
  if (credit > bytes_) return false;
  if (EagerWindow* window = find(comm))
    window->available = std::min(window->available + credit, bytes_);
  return true;
}

bool EagerWindows::hold(uint32_t comm, size_t bytes) {
  EagerWindow& window = at(comm);
  if (window.held + eager_cost(bytes) > bytes_) return false;
  window.held += eager_cost(bytes);
  return true;
}

bool EagerWindows::owe(uint32_t comm, size_t bytes) {
  EagerWindow& window = at(comm);
  window.owed += eager_cost(bytes);
  if (window.owed < bytes_ / 2 || window.credit_posted) return false;
  window.credit_posted = true;
  return true;
}

uint32_t EagerWindows::collect_credit(uint32_t comm, bool own) {
  EagerWindow& window = at(comm);
  const auto credit = static_cast<uint32_t>(window.owed);
  window.held -= window.owed;
  window.owed = 0;
  if (own) window.credit_posted = false;
  return credit;
}

void EagerWindows::forget(const std::function<bool(uint32_t comm)>& over) {
  std::erase_if(windows_, [&](const auto& entry) { return over(entry.first); });
  last_ = nullptr;
}

}  // namespace sennit::tcp
