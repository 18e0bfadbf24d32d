// mailbox.cpp: see engine/mailbox.hpp.
#include "engine/mailbox.hpp"

#include "engine/engine.hpp"

namespace sennit {

void Mailbox::send(Execution& execution, int peer, uint32_t tag) {
  execution.start_message(number_send(peer, tag), peer, tag);
}

void Mailbox::receive(Execution& execution, int peer, uint32_t tag) {
  const auto before = waiting_.find(tag);
  if (before == waiting_.end() && peer != kAnySource) return start_receive(execution, peer, tag);
  execution.await_source(tag);
  waiting_[tag].push_back({&execution, peer});
  if (before == waiting_.end()) look();
}

void Mailbox::start_receive(Execution& execution, int peer, uint32_t tag) {
  execution.start_message(number_receive(peer, tag), peer, tag);
}

int Mailbox::find_source(uint32_t tag) {
  engine_.assert_locked();
  for (size_t i = 0; i < peers_.size(); i++) {
    const size_t at = (first_ + i) % peers_.size();
    const int peer = peers_[at];
    const auto so_far = received_.find(lane(peer, tag));
    const uint32_t next = (so_far == received_.end() ? 0 : so_far->second) + 1;
    if (!engine_.has_come(peer, {comm_, next, kPointToPoint, tag})) continue;
    first_ = at + 1;
    return peer;
  }
  return kAnySource;
}

bool Mailbox::look() {
  bool started = false;
  for (auto queue = waiting_.begin(); queue != waiting_.end();) {
    auto& [tag, receives] = *queue;
    while (!receives.empty()) {
      const Waiting next = receives.front();
      const int peer = next.peer == kAnySource ? find_source(tag) : next.peer;
      if (peer == kAnySource) break;
      receives.pop_front();
      start_receive(*next.execution, peer, tag);
      started = true;
    }
    queue = receives.empty() ? waiting_.erase(queue) : std::next(queue);
  }
  return started;
}

}  // namespace sennit
