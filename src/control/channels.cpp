// channels.cpp: see control/channels.hpp.
#include "control/channels.hpp"

#include "control/messages.hpp"

namespace sennit::control {

void dismiss(Channels& channels, Channel& channel, int64_t now_ms, int64_t ms) {
  channel.role = Role::visitor;
  channel.deadline_ms = now_ms + ms;
  channels.shut(channel);
}

void refuse(Channels& channels, Channel& channel, int64_t now_ms, const Status& status) {
  channels.send(channel, encode(Refuse{status}));
  dismiss(channels, channel, now_ms, kClosingMs);
}

}  // namespace sennit::control
