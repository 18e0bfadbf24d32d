// network.cpp: see control/network.hpp.
#include "control/network.hpp"

#include "control/messages.hpp"

namespace sennit::control {

void dismiss(Network& network, Link& link, int64_t now_ms, int64_t ms) {
  link.role = Role::visitor;
  link.deadline_ms = now_ms + ms;
  network.shut(link);
}

void refuse(Network& network, Link& link, int64_t now_ms, const Status& status) {
  network.send(link, encode(Refuse{status}));
  dismiss(network, link, now_ms, kClosingMs);
}

}  // namespace sennit::control
