// registry.cpp: see api/state/registry.hpp.
#include "api/state/registry.hpp"

#include <algorithm>

namespace sennit {

void Registry::set_engine(Engine* engine) {
  const MutexLock lock(mutex_);
  engine_ = engine;
}

void Registry::add(CommunicatorState* communicator) {
  const uint32_t comm = communicator->id();
  const MutexLock lock(mutex_);
  communicators_[comm] = communicator;
  if (!dead_.empty()) communicator->peers_failed(dead_, death_);
  for (const BrokenLink& link : broken_links_)
    if (communicator->has(link.a) && communicator->has(link.b)) communicator->fail(link.status);
  for (const EarlyFailure& failure : early_failures_)
    if (failure.comm == comm && communicator->has(failure.member))
      communicator->fail(failure.status);
  if (comm == kWholeJob) end_making(kFirstMaking);
}

void Registry::remove(const CommunicatorState* communicator) {
  const uint32_t comm = communicator->id();
  const MutexLock lock(mutex_);
  communicators_.erase(comm);
  one_failed_ = one_failed_ || communicator->failed();
  // Peers may still send, or return credit, on what this rank has left: that goes when no
  // communicator can be on its way to this rank.
  engine_->forget([&](uint32_t other) SENNIT_REQUIRES(mutex_) {
    return makings_.empty() ? !communicators_.contains(without_channel(other)) : other == comm;
  });
}

bool Registry::well() const {
  const MutexLock lock(mutex_);
  return dead_.empty() && broken_links_.empty() && !one_failed_ &&
         std::none_of(communicators_.begin(), communicators_.end(),
                      [](const auto& one) { return one.second->failed(); });
}

Registry::Making::Making(Registry& registry)
    : registry_(registry), number_(registry.begin_making()) {}

Registry::Making::~Making() {
  const MutexLock lock(registry_.mutex_);
  registry_.end_making(number_);
}

uint64_t Registry::begin_making() {
  const MutexLock lock(mutex_);
  makings_.insert(next_making_);
  return next_making_++;
}

void Registry::end_making(uint64_t making) {
  makings_.erase(making);
  const bool none = makings_.empty();
  const uint64_t oldest = none ? 0 : *makings_.begin();
  std::erase_if(early_failures_,
                [&](const EarlyFailure& failure) { return none || failure.last_making < oldest; });
}

CommunicatorState* Registry::find(uint32_t comm) const {
  const auto found = communicators_.find(comm);
  return found == communicators_.end() ? nullptr : found->second;
}

void Registry::peers_failed(const std::vector<int>& failed, const Status& status) {
  Engine* engine = nullptr;
  {
    const MutexLock lock(mutex_);
    dead_ = failed;  // all so far
    death_ = status;
    for (const auto& [comm, communicator] : communicators_)
      communicator->peers_failed(failed, status);
    engine = engine_;
  }
  for (const int peer : failed)
    if (engine && peer != rank_) engine->fail_peer(peer, status);
}

void Registry::link_failed(int a, int b, const Status& status) {
  const MutexLock lock(mutex_);
  broken_links_.push_back({a, b, status});
  for (const auto& [comm, communicator] : communicators_)
    if (communicator->has(a) && communicator->has(b)) communicator->fail(status);
}

// A communicator that this rank does not have can come to it only out of a split that it is in:
// nobody else has made it before this rank took part in that.
void Registry::communicator_failed(uint32_t comm, int member, const Status& status) {
  const MutexLock lock(mutex_);
  if (CommunicatorState* const communicator = find(comm)) {
    if (communicator->has(member)) communicator->fail(status);
  } else if (!makings_.empty()) {
    early_failures_.push_back({comm, member, status, *makings_.rbegin()});
  }
}

bool Registry::describe(uint32_t comm, uint32_t seq, CallDescriptor* out) const {
  const MutexLock lock(mutex_);
  const CommunicatorState* const communicator = find(without_channel(comm));
  if (!communicator) return false;
  if (without_channel(comm) == comm) return communicator->describe(seq, out);
  out->comm = comm;  // on which nothing has a number
  out->refusal = communicator->calls().refusal(CallLog::Refused::group);
  return false;
}

std::vector<int> Registry::members(uint32_t comm) const {
  const MutexLock lock(mutex_);
  const CommunicatorState* const communicator = find(comm);
  return communicator ? communicator->members() : std::vector<int>{};
}

void Registry::for_each(const std::function<void(CommunicatorState&)>& visit) const {
  const MutexLock lock(mutex_);
  for (const auto& [comm, communicator] : communicators_) visit(*communicator);
}

void Registry::failed_here(uint32_t comm, const Status& status) {
  const MutexLock lock(mutex_);
  if (CommunicatorState* const communicator = find(comm)) communicator->fail_and_tell(status);
}

}  // namespace sennit
