// collectives.cpp: all_gather and broadcast over the tree, for the start of communicators.
//
// Contributions go up in one frame per edge as soon as a subtree is complete; while somebody is
// late, what is there goes up in parts, so that rank 0 knows by name who is missing when the time
// is up. The result comes down in one frame. Collectives are numbered; a fast rank may be ahead of
// its parent. Cost: 2 frames per edge, the bytes of all blobs once up and once down each edge.
#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kFlushMs = 500;

}  // namespace

void ControlPlane::contribute(uint32_t seq, std::vector<std::byte> mine) {
  if (failed_collectives_.count(seq)) return;
  Collective& collective = collectives_[seq];
  collective.fresh[rank_] = std::move(mine);
  collective.have.insert(rank_);
  advance_gather(seq, false);
}

void ControlPlane::on_gather(Reader& in) {
  const uint32_t seq = in.u32();
  const uint32_t count = in.u32();
  if (count > in.left() / 8) return in.fail();
  if (failed_collectives_.count(seq)) return;  // too late
  Collective& collective = collectives_[seq];
  for (uint32_t i = 0; i < count; i++) {
    const int from = in.rank();
    const auto blob = in.blob();
    if (!in.ok() || from < 0 || from >= size_) return in.fail();
    if (collective.have.insert(from).second)
      collective.fresh[from].assign(blob.begin(), blob.end());
  }
  advance_gather(seq, false);
}

bool ControlPlane::subtree_complete(const Collective& collective) const {
  // Walks the static tree below this rank; a rank's descendants are one range per level.
  int64_t first = rank_, last = rank_;
  while (first < size_) {
    for (int64_t r = first; r <= last && r < size_; r++)
      if (!collective.have.count(static_cast<int>(r))) return false;
    first = first * kFanOut + 1;
    last = last * kFanOut + kFanOut;
  }
  return true;
}

void ControlPlane::advance_gather(uint32_t seq, bool flush) {
  Collective& collective = collectives_[seq];
  if (collective.first_ms == 0) collective.first_ms = collective.flushed_ms = now_ms_;
  const bool complete = static_cast<int>(collective.have.size()) == size_;
  if (rank_ == 0) {
    if (!complete) return due(collective.first_ms + options_.arrival_timeout_ms);
    Writer frame(Frame::gathered);
    frame.u32(seq);
    for (const auto& [rank, blob] : collective.fresh) frame.blob(blob);
    const Buffer result = frame.finish();
    flood_down(result);
    const auto payload = std::span(*result).subspan(kFrameHeaderBytes + sizeof seq);
    finish_collective(
        seq, std::make_shared<const std::vector<std::byte>>(payload.begin(), payload.end()));
    return;
  }
  if (collective.fresh.empty()) return;
  if (!flush && !subtree_complete(collective)) return due(collective.flushed_ms + kFlushMs);
  Writer frame(Frame::gather);
  frame.u32(seq).u32(static_cast<uint32_t>(collective.fresh.size()));
  for (const auto& [rank, blob] : collective.fresh) frame.rank(rank).blob(blob);
  if (!send_up(frame.finish())) return;
  collective.fresh.clear();
  collective.flushed_ms = now_ms_;
}

void ControlPlane::tick_collectives(int64_t now) {
  std::vector<uint32_t> overdue;
  for (auto& [seq, collective] : collectives_) {
    if (rank_ == 0) {
      const int64_t limit = collective.first_ms + options_.arrival_timeout_ms;
      if (now >= limit)
        overdue.push_back(seq);
      else
        due(limit);
    } else if (!collective.fresh.empty()) {
      if (now - collective.flushed_ms >= kFlushMs)
        advance_gather(seq, true);
      else
        due(collective.flushed_ms + kFlushMs);
    }
  }
  for (const uint32_t seq : overdue) {
    std::set<int> missing;
    for (int r = 0; r < size_; r++)
      if (!collectives_[seq].have.count(r)) missing.insert(r);
    fail_collective(seq, {SENNIT_TIMED_OUT,
                          fmt::format("{} did not come to all_gather {} of the start within {} ms",
                                      name_ranks(missing), seq, options_.arrival_timeout_ms)});
  }
}

void ControlPlane::fail_collective(uint32_t seq, const Status& status) {
  log(LogLevel::error, "{}", status.text());
  flood_down(Writer(Frame::collective_off).u32(seq).status(status).finish());
  failed_collectives_.insert(seq);
  finish_collective(seq, status);
}

void ControlPlane::on_collective(Frame frame, Reader& in, const Message& message) {
  const uint32_t seq = in.u32();
  Result<Buffer> result = Status{SENNIT_INTERNAL, "no result"};
  const std::span<const std::byte> rest = std::span(message.payload).subspan(in.ok() ? 4 : 0);
  if (frame == Frame::gathered) {
    result = std::make_shared<const std::vector<std::byte>>(rest.begin(), rest.end());
  } else if (frame == Frame::broadcast) {
    const auto blob = in.blob();
    result = std::make_shared<const std::vector<std::byte>>(blob.begin(), blob.end());
  } else {
    result = in.status();
  }
  if (!in.ok()) return;
  flood_down(forward(message));
  finish_collective(seq, std::move(result));
}

void ControlPlane::finish_collective(uint32_t seq, Result<Buffer> result) {
  collectives_.erase(seq);
  const std::lock_guard lock(mutex_);
  results_.insert_or_assign(seq, std::move(result));
  changed_.notify_all();
}

}  // namespace sennit::control
