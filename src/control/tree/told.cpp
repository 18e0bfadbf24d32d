// told.cpp: see control/tree/told.hpp.
#include "control/tree/told.hpp"

namespace sennit::control {
namespace {

constexpr size_t kReportsKept = 64;
constexpr size_t kAnnouncementsKept = 64;
// What the last parent was told longer ago than this it has passed on.
constexpr int64_t kTellAgainMs = 5000;

}  // namespace

void Reports::send_up(const EncodedFrame& frame) {
  if (told_.size() >= kReportsKept) told_.pop_front();
  told_.push_back({frame, sender_.send_up(frame) ? self_.now_ms : 0});
}

bool Reports::may_be_lost(const Told& told) const {
  return told.sent_ms == 0 || self_.now_ms - told.sent_ms <= kTellAgainMs;
}

void Reports::tell_again() {
  for (Told& told : told_)
    if (may_be_lost(told) && sender_.send_up(told.frame)) told.sent_ms = self_.now_ms;
}

std::vector<EncodedFrame> Reports::take_back() {
  std::vector<EncodedFrame> lost;
  for (const Told& told : std::exchange(told_, {}))
    if (may_be_lost(told)) lost.push_back(told.frame);
  return lost;
}

bool Announcements::remember(uint64_t number, const EncodedFrame& frame) {
  if (!numbers_.insert(number).second) return false;
  frames_.emplace_back(number, frame);
  if (frames_.size() > kAnnouncementsKept) {
    numbers_.erase(frames_.front().first);
    frames_.pop_front();
  }
  return true;
}

void Announcements::tell_again(Channels& channels, Channel& channel) const {
  for (const auto& [number, frame] : frames_) channels.send(channel, frame);
}

}  // namespace sennit::control
