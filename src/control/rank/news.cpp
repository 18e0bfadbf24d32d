// news.cpp: see control/rank/news.hpp.
#include "control/rank/news.hpp"

#include <algorithm>
#include <utility>

namespace sennit::control {
namespace {

// With its rank, topic and length.
size_t bytes_of(const Tell::Said& said) { return sizeof(Tell::Said) + said.blob.size(); }

}  // namespace

void News::tell(uint8_t topic, Blob blob, bool may_wait) {
  may_wait_ = may_wait_ && may_wait;
  gather({self_.rank, topic, std::move(blob)});
  pass_on();
}

void News::on_tell(Tell message) {
  if (gathered_.empty()) pass_on_ms_ = self_.now_ms + kGatherMs;
  may_wait_ = may_wait_ && message.may_wait;
  for (Tell::Said& one : message.said) gather(std::move(one));
  if (census_.coordinator() || !may_wait_ || gathered_bytes_ > kMostGathered) pass_on();
}

void News::gather(Tell::Said said) {
  gathered_bytes_ += bytes_of(said);
  gathered_.push_back(std::move(said));
}

void News::pass_on() {
  if (gathered_.empty()) return;
  if (!census_.coordinator() &&
      !sender_.send_up(encode(Tell{may_wait_, {gathered_.begin(), gathered_.end()}}))) {
    pass_on_ms_ = self_.now_ms + kGatherMs;
    for (; gathered_bytes_ > kMostGathered; gathered_.pop_front())
      gathered_bytes_ -= bytes_of(gathered_.front());
    return;
  }
  const std::deque<Tell::Said> said = std::exchange(gathered_, {});
  gathered_bytes_ = 0;
  may_wait_ = true;
  if (!census_.coordinator() || !self_.callbacks.told) return;
  for (const Tell::Said& one : said) self_.callbacks.told(one.rank, one.topic, one.blob);
}

// Who leaves does not wait.
void News::tick() {
  if (gathered_.empty()) return;
  if (self_.now_ms >= pass_on_ms_ || self_.phase == Phase::leaving) return pass_on();
  self_.due(pass_on_ms_);
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
  pass_on();
  if (self_.callbacks.may_be_lost) self_.callbacks.may_be_lost();
}

}  // namespace sennit::control
