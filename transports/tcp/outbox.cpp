// outbox.cpp: see transports/tcp/outbox.hpp.
#include "transports/tcp/outbox.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"

namespace sennit::tcp {
namespace {

constexpr size_t kStageBytes = 16 * 1024;  // staged before a write; one message more may follow

constexpr uint64_t kNsPerUs = 1000;

uint32_t clock_us(uint64_t ns) { return static_cast<uint32_t>(ns / kNsPerUs); }

// From the send's posting until now, when its first byte is about to leave.
uint32_t waited_us(const SendRequest& request) {
  constexpr uint64_t kMost = RecvRequest::kNotTold - 1;
  if (request.posted_ns == 0 || request.posted_ns > request.first_ns) return 0;
  return static_cast<uint32_t>(std::min((request.first_ns - request.posted_ns) / kNsPerUs, kMost));
}

}  // namespace

int Outbox::gather(iovec* pieces, int count) {
  stage();
  int used = 0;
  if (has_staged())
    pieces[used++] = {staged_.data() + staged_begin_, staged_.size() - staged_begin_};
  if (outgoing_piece_left_ > 0)
    used += outgoing_cursor_.fill(pieces + used, count - used, outgoing_piece_left_);
  return used;
}

// Until enough is staged, or a piece follows what is.
void Outbox::stage() {
  if (!has_staged()) {
    staged_.clear();
    staged_begin_ = 0;
  }
  while (outgoing_piece_left_ == 0 && staged_.size() < kStageBytes) {
    if (controls_begin_ < controls_.size()) {
      stage_header(controls_[controls_begin_++]);
      if (controls_begin_ == controls_.size()) {
        controls_.clear();
        controls_begin_ = 0;
      }
    } else if (SendRequest* request = eager_.front()) {
      eager_.remove(*request);
      stage_eager(*request);
    } else if (!stage_piece()) {
      return;
    }
  }
}

// Room for one unit at the end of what is staged.
std::byte* Outbox::stage_bytes(size_t bytes) {
  const size_t at = staged_.size();
  staged_.resize(at + bytes + (seal_ ? Seal::kTagBytes : 0));
  return staged_.data() + at;
}

void Outbox::stage_header(WireHeader header) {
  header.credit = windows_.collect_credit(header.key.comm, header.kind == HeaderKind::credit);
  std::byte* const to = stage_bytes(sizeof header);
  std::memcpy(to, &header, sizeof header);
  if (seal_) seal_->close(to, sizeof header, to);
}

void Outbox::stage_eager(SendRequest& request) {
  request.first_ns = now_ns();
  WireHeader header;
  header.kind = HeaderKind::eager;
  header.key = request.key;
  header.signature = request.signature;
  header.bytes = request.bytes;
  header.piece_bytes = static_cast<uint32_t>(request.bytes);
  header.waited_us = waited_us(request);
  header.clock_us = clock_us(request.first_ns);
  stage_header(header);
  staged_sends_.push_back(&request);
  if (request.bytes == 0) return;
  std::byte* const to = stage_bytes(request.bytes);
  SegmentCursor(request.segments).get(to, request.bytes);
  if (seal_) seal_->close(to, request.bytes, to);
}

// The header of the next piece of a large message; the piece itself only where it is sealed. False:
// there is no such message.
bool Outbox::stage_piece() {
  WireHeader header;
  header.kind = HeaderKind::more;
  if (!outgoing_) {
    outgoing_ = granted_.front();
    if (!outgoing_) return false;
    granted_.remove(*outgoing_);
    outgoing_->first_ns = now_ns();
    outgoing_cursor_ = SegmentCursor(outgoing_->segments);
    outgoing_left_ = outgoing_->bytes;
    header.kind = HeaderKind::first;
    header.waited_us = waited_us(*outgoing_);
    header.clock_us = clock_us(outgoing_->first_ns);
  }
  outgoing_piece_left_ = std::min(outgoing_left_, kPieceBytes);
  outgoing_left_ -= outgoing_piece_left_;
  header.key = outgoing_->key;
  header.signature = outgoing_->signature;
  header.bytes = outgoing_->bytes;
  header.piece_bytes = static_cast<uint32_t>(outgoing_piece_left_);
  stage_header(header);
  if (seal_ && outgoing_piece_left_ > 0) stage_sealed_piece();
  if (outgoing_left_ == 0 && outgoing_piece_left_ == 0)
    staged_sends_.push_back(std::exchange(outgoing_, nullptr));
  return true;
}

void Outbox::stage_sealed_piece() {
  const size_t bytes = std::exchange(outgoing_piece_left_, 0);
  std::byte* const to = stage_bytes(bytes);
  iovec piece{};
  outgoing_cursor_.fill(&piece, 1, bytes);
  if (piece.iov_len == bytes) {
    seal_->close(static_cast<const std::byte*>(piece.iov_base), bytes, to);
    outgoing_cursor_.advance(bytes);
  } else {
    outgoing_cursor_.get(to, bytes);
    seal_->close(to, bytes, to);
  }
}

SendRequest* Outbox::detach_outgoing() {
  if (outgoing_piece_left_ > 0) {
    private_copy_.resize(outgoing_piece_left_);
    outgoing_cursor_.get(private_copy_.data(), outgoing_piece_left_);
    private_segment_ = {private_copy_.data(), private_copy_.size()};
    outgoing_cursor_ = SegmentCursor({&private_segment_, 1});
  }
  return std::exchange(outgoing_, nullptr);
}

}  // namespace sennit::tcp
