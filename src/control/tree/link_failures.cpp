// link_failures.cpp: see control/tree/link_failures.hpp.
#include "control/tree/link_failures.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/log.hpp"

namespace sennit::control {

void LinkFailures::announce(int a, int b, const std::string& what) {
  if (known_.count(std::minmax(a, b))) return;
  const Status status{SENNIT_LINK_FAILED,
                      fmt::format("the connection between {} and {} broke while both live: {}",
                                  census_.describe(a), census_.describe(b), what)};
  log(LogLevel::error, "{}", status.text());
  tell({announcements_.new_number(), a, b, status});
}

void LinkFailures::on_link_down(const LinkDown& message) { tell(message); }

void LinkFailures::tell(const LinkDown& message) {
  const EncodedFrame frame = encode(message);
  if (!announcements_.remember(message.event, frame)) return;
  known_.insert(std::minmax(message.a, message.b));
  sender_.flood_down(frame);
  // A collective of the start may have lost its frames on that way.
  callers_.fail_if_well(message.status);
  const Control::Callbacks& callbacks = self_.callbacks;
  if (callbacks.link_failed)
    callbacks.link_failed(message.a, message.b, message.status);
  else if (callbacks.peers_failed)
    callbacks.peers_failed({census_.dead.begin(), census_.dead.end()}, message.status);
}

}  // namespace sennit::control
