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

void News::announce(uint8_t topic, uint64_t key, const Blob& blob) {
  if (!census_.coordinator()) return;
  const uint64_t first = static_cast<uint64_t>(self_.rank) << 32;
  on_announce({std::max(latest_, first) + 1, topic, key, blob});
}

void News::on_announce(const Announce& message) {
  if (message.event <= latest_) return;
  latest_ = message.event;
  std::erase_if(announced_, [&](const Kept& one) {
    return one.topic == message.topic && one.key == message.key;
  });
  announced_.push_back({message.topic, message.key, encode(message)});
  if (announced_.size() > kMostKept) announced_.pop_front();
  sender_.flood_down(announced_.back().frame);
  if (self_.callbacks.announced) self_.callbacks.announced(message.topic, message.blob);
}

void News::tell_child(Channels& channels, Channel& channel) const {
  for (const Kept& one : announced_) channels.send(channel, one.frame);
}

void News::tell_again() {
  if (self_.callbacks.may_be_lost) self_.callbacks.may_be_lost();
}

}  // namespace sennit::control
