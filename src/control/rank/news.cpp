// news.cpp: see control/rank/news.hpp.
#include "control/rank/news.hpp"

#include <algorithm>

namespace sennit::control {

void News::on_tell(const Tell& message) {
  if (!census_.coordinator())
    sender_.send_up(encode(message));
  else if (self_.callbacks.told)
    self_.callbacks.told(message.rank, message.topic, message.blob);
}

void News::announce(uint8_t topic, const Blob& blob) {
  if (!census_.coordinator()) return;
  const uint64_t first = static_cast<uint64_t>(self_.rank) << 32;
  on_announce({std::max(latest_, first) + 1, topic, blob});
}

void News::on_announce(const Announce& message) {
  if (message.event <= latest_) return;
  latest_ = message.event;
  announced_.push_back(encode(message));
  if (announced_.size() > kKept) announced_.pop_front();
  sender_.flood_down(announced_.back());
  if (self_.callbacks.announced) self_.callbacks.announced(message.topic, message.blob);
}

void News::tell_child(Channels& channels, Channel& channel) const {
  for (const EncodedFrame& frame : announced_) channels.send(channel, frame);
}

void News::tell_again() {
  if (self_.callbacks.may_be_lost) self_.callbacks.may_be_lost();
}

}  // namespace sennit::control
