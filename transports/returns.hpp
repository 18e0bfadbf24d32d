// returns.hpp: what a transport hands back out of its next progress(): requests that have ended,
// and what was seen of peers.
#pragma once

#include <utility>
#include <vector>

#include "transports/transport.hpp"

namespace sennit {

class Returns {
 public:
  void add(SendRequest& request, Status status = {}) {
    request.status = std::move(status);
    sends_.push_back(&request);
  }
  void add(RecvRequest& request, Status status = {}) {
    request.status = std::move(status);
    receives_.push_back(&request);
  }
  // With the status that check_match() gave it.
  void add_checked(RecvRequest& request) { receives_.push_back(&request); }
  void add_event(int peer, Status status) { events_.push_back({peer, std::move(status)}); }

  bool empty() const { return sends_.empty() && receives_.empty() && events_.empty(); }
  // Whether there was anything.
  bool hand_over(Completions& completions) {
    bool any = move_all(sends_, completions.sends);
    any |= move_all(receives_, completions.receives);
    any |= move_all(events_, completions.events);
    return any;
  }

 private:
  template <typename T>
  static bool move_all(std::vector<T>& from, std::vector<T>& to) {
    if (from.empty()) return false;
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
    return true;
  }

  std::vector<SendRequest*> sends_;
  std::vector<RecvRequest*> receives_;
  std::vector<PeerEvent> events_;
};

}  // namespace sennit
