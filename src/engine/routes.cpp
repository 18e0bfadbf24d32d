// routes.cpp: see engine/routes.hpp.
#include "engine/routes.hpp"

#include <fmt/core.h>

namespace sennit {

void Routes::set_transports(std::vector<std::unique_ptr<Transport>> transports,
                            std::string missing) {
  transports_ = std::move(transports);
  missing_ = std::move(missing);
  used_.assign(transports_.size(), false);
  tended_.clear();
  for (const auto& transport : transports_) {
    tended_.push_back(!transport->withdraws_at_once() && transport->event_fd() >= 0);
    tends_ = tends_ || tended_.back();
  }
}

void Routes::set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses) {
  addresses_ = std::move(addresses);
  routes_.assign(addresses_.size(), {});
}

Transport* Routes::resolve(int peer) {
  Route& route = routes_[static_cast<size_t>(peer)];
  route.resolved = true;
  const auto& addresses = addresses_[static_cast<size_t>(peer)];
  const auto trouble = [&](size_t i, const std::string& what) {
    route.trouble += fmt::format("; {}: {}", transports_[i]->name(), what);
  };
  for (size_t i = 0; i < transports_.size() && !route.transport && route.failed.ok(); i++) {
    if (i >= addresses.size() || addresses[i].empty()) {
      trouble(i, fmt::format("rank {} does not use it", peer));
      continue;
    }
    if (transports_[i]->reach(peer, addresses[i]) == Reach::none) {
      trouble(i, transports_[i]->obstacle());
      continue;
    }
    // The peer takes this one all the same: over another, neither would hear of the other.
    if (const Status added = transports_[i]->add_peer(peer, addresses[i]); !added.ok()) {
      route.failed = added.with_context(fmt::format("rank {} is reached over {}, which fails here",
                                                    peer, transports_[i]->name()));
      continue;
    }
    route.transport = transports_[i].get();
    used_[i] = true;
    (transports_[i]->event_fd() >= 0 ? wakes_waiters_ : some_wake_nobody_) = true;
  }
  return route.transport;
}

Status Routes::unreachable(int peer) const {
  const Route& route = routes_[static_cast<size_t>(peer)];
  if (!route.failed.ok()) return route.failed;
  return {SENNIT_LINK_FAILED,
          fmt::format("no transport reaches rank {} (SENNIT_TRANSPORTS says which may be used){}{}",
                      peer, route.trouble, missing_)};
}

bool Routes::progress(Driven which, Completions& completions) {
  const bool tending = which == Driven::used_or_tended;
  bool moved = false;
  for (size_t i = 0; i < transports_.size(); i++)
    if (used_[i] || (tending && tended_[i])) moved |= transports_[i]->progress(completions);
  return moved;
}

void Routes::stalled() {
  for (size_t i = 0; i < transports_.size(); i++)
    if (used_[i]) transports_[i]->stalled();
}

Routes::Descriptors Routes::prepare_wait(Awaited which) {
  Descriptors found;
  const std::vector<bool>& counts = which == Awaited::tended ? tended_ : used_;
  for (size_t i = 0; i < transports_.size() && found.count < found.fds.size(); i++) {
    if (!counts[i]) continue;
    const int fd = transports_[i]->event_fd();
    if (fd < 0) {
      found.all = false;
      continue;
    }
    if (!transports_[i]->prepare_wait()) {
      found.some_moves = true;
      break;
    }
    found.fds[found.count++] = fd;
  }
  return found;
}

}  // namespace sennit
