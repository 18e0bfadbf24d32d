// sealed.cpp: what a PeerConnection does besides where its connection is sealed. See transports/tcp/peer_connection.hpp.
//
// The stream is a row of units: a header, then, where it announces any, the bytes of an eager
// message or of a piece. The length of each is known from a header that has opened, so nobody on
// the path can make a reader wait for bytes that do not come.
//
// Bytes that somebody left out show when others come, which then do not open. In a silence none
// come, so who waits for a peer while his call has stalled asks it, with one header that says how
// many bytes have come, and the peer answers with as many as are missing. Both run in the stream
// itself: where nothing was left out, they open, and say nothing. Cost: one pass over what goes out
// (in place of none), two over what comes in, and a copy where a piece spans segments.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transports/tcp/peer_connection.hpp"

namespace sennit::tcp {

Status PeerConnection::forged() const {
  return {SENNIT_LINK_FAILED, fmt::format("connection to rank {}: what came is not what was sent: "
                                          "somebody on the way changed, repeated, "
                                          "moved or left out bytes; it is closed",
                                          peer_)};
}

void PeerConnection::stage_sealed_piece() {
  const size_t bytes = std::exchange(outgoing_piece_left_, 0);
  std::byte* const to = stage_bytes(bytes);
  iovec piece{};
  outgoing_cursor_.fill(&piece, 1, bytes);
  if (piece.iov_len == bytes) {
    sealed_->out.close(static_cast<const std::byte*>(piece.iov_base), bytes, to);
    outgoing_cursor_.advance(bytes);
  } else {
    outgoing_cursor_.get(to, bytes);
    sealed_->out.close(to, bytes, to);
  }
}

// Without an answer at the first stall, the second, the fourth, and so on: a peer that does
// something else for an hour finds a dozen questions, not thousands.
bool PeerConnection::post_ask() {
  if (!sealed_ || blocked_ || has_staged()) return false;
  if (sealed_->silent_at != bytes_received_) sealed_->stalls = 0;
  sealed_->silent_at = bytes_received_;
  if (!std::has_single_bit(++sealed_->stalls)) return false;
  WireHeader header;
  header.kind = HeaderKind::ask;
  header.bytes = bytes_received_;
  post_control(header);
  return true;
}

// As many bytes as the peer has not seen, which are enough for the unit that it may be waiting for;
// mostly there are none, and one header says so. What is queued anyway is an answer, too.
void PeerConnection::post_answer(uint64_t received) {
  constexpr uint64_t kUnit = kPieceBytes + Seal::kTagBytes,
                     kHeader = sizeof(WireHeader) + Seal::kTagBytes;
  if (has_staged() || outgoing_ || eager_.front() || granted_.front() ||
      controls_begin_ < controls_.size() || received > bytes_sent_)
    return;
  const uint64_t missing = std::min(bytes_sent_ - received, kUnit);
  for (uint64_t filled = 0; filled == 0 || filled < missing; filled += kHeader) post_control({});
}

// Opens the tag of the piece that has come, then the next header. True: an open header lies at
// begin_. Otherwise it is not all there yet, unless `status` says more.
bool PeerConnection::header_opened(Status& status) {
  Sealed& sealed = *sealed_;
  if (sealed.header_open) return true;
  if (sealed.piece_due) {
    if (end_ - begin_ < Seal::kTagBytes) return false;
    status = open_piece();
    if (!status.ok()) return false;
  }
  if (end_ - begin_ < sizeof(WireHeader) + Seal::kTagBytes) return false;
  std::byte* const header = buffer_.get() + begin_;
  if (!sealed.in.open(header, sizeof(WireHeader), header + sizeof(WireHeader))) {
    status = forged();
    return false;
  }
  // Over its tag, so that what belongs to it comes right behind.
  std::memmove(header + Seal::kTagBytes, header, sizeof(WireHeader));
  begin_ += Seal::kTagBytes;
  sealed.header_open = true;
  return true;
}

Status PeerConnection::place_piece(size_t bytes) {
  if (bytes > kPieceBytes)
    return {SENNIT_LINK_FAILED,
            fmt::format("connection to rank {}: a piece of impossible size; it is closed", peer_)};
  Sealed& sealed = *sealed_;
  iovec piece{};
  sealed.aside = !incoming_ || sealed.rest.fill(&piece, 1, bytes) != 1 || piece.iov_len != bytes;
  if (sealed.aside && sealed.buffer.size() < bytes) sealed.buffer.resize(bytes);
  sealed.place = {sealed.aside ? sealed.buffer.data() : static_cast<std::byte*>(piece.iov_base),
                  bytes};
  incoming_cursor_ = SegmentCursor({&sealed.place, 1});
  return {};
}

Status PeerConnection::open_piece() {
  Sealed& sealed = *sealed_;
  sealed.piece_due = false;
  if (!sealed.in.open(sealed.place.data, sealed.place.bytes, buffer_.get() + begin_))
    return forged();
  begin_ += Seal::kTagBytes;
  if (!incoming_) return {};
  if (sealed.aside)
    sealed.rest.put(sealed.place.data, sealed.place.bytes);
  else
    sealed.rest.advance(sealed.place.bytes);
  message_received();
  return {};
}

// The memory of the message that comes in is no longer ours: the rest of its piece is received and
// opened all the same, so that the units stay in step.
void PeerConnection::receive_elsewhere() {
  Sealed& sealed = *sealed_;
  if (sealed.aside || (incoming_piece_left_ == 0 && !sealed.piece_due)) return;
  const size_t here = sealed.place.bytes - incoming_piece_left_;
  sealed.buffer.resize(std::max(sealed.buffer.size(), sealed.place.bytes));
  std::memcpy(sealed.buffer.data(), sealed.place.data, here);
  sealed.place.data = sealed.buffer.data();
  sealed.aside = true;
  incoming_cursor_ = SegmentCursor({&sealed.place, 1});
  incoming_cursor_.advance(here);
}

}  // namespace sennit::tcp
