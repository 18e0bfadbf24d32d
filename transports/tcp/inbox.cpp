// inbox.cpp: see transports/tcp/inbox.hpp.
#include "transports/tcp/inbox.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace sennit::tcp {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;
static_assert(kMaxEagerBytes + sizeof(WireHeader) + 2 * Seal::kTagBytes <= kBufferBytes);
// Read beyond a piece: the next header; more would be copied twice.
constexpr size_t kLittleBytes = 4096;

}  // namespace

void Inbox::open(const SealKeys* keys) {
  if (keys) sealed_ = std::make_unique<SealedInput>(*keys);
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
}

Status Inbox::broken(const char* what) const {
  return {SENNIT_LINK_FAILED, fmt::format("connection to rank {}: {}; it is closed", peer_, what)};
}

// ---- bytes ----

int Inbox::make_room(iovec* pieces, int count, bool filled) {
  if (begin_ == end_) begin_ = end_ = 0;
  int used = 0;
  direct_ = 0;
  size_t room = kBufferBytes - end_;
  if (expected_ > 0 && !filled) room = std::min(room, kLittleBytes);
  if ((incoming_ || sealed_) && incoming_piece_left_ > 0 && begin_ == end_) {
    used = incoming_cursor_.fill(pieces, count - 1, incoming_piece_left_);
    for (int i = 0; i < used; i++) direct_ += pieces[i].iov_len;
    // Where the segments are too many for one call, what is behind them is not the next header.
    room = direct_ == incoming_piece_left_ ? kLittleBytes : 0;
  }
  if (room > 0) pieces[used++] = {buffer_.get() + end_, room};
  return used;
}

Status Inbox::received(size_t bytes) {
  const size_t placed = std::min(bytes, direct_);
  if (placed > 0) {
    incoming_cursor_.advance(placed);
    incoming_piece_left_ -= placed;
    piece_received();
  }
  end_ += bytes - placed;
  return parse();
}

// ---- headers and messages ----

// Takes what is whole out of the buffer.
Status Inbox::parse() {
  while (begin_ < end_) {
    if (incoming_piece_left_ > 0) {
      begin_ += take_piece(end_ - begin_);
      continue;
    }
    WireHeader header;
    if (Status status; !header_here(header, status)) {
      if (!status.ok()) return status;
      break;
    }
    begin_ += sizeof header;
    if (sealed_) sealed_->header_open = false;
    SENNIT_RETURN_IF_ERROR(take_header(header));
  }
  // Keep room for a whole eager message behind what is left of it.
  if (begin_ > 0 && begin_ < end_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {};
}

// Bytes of a piece that came into the buffer; returns how many of those available there are.
size_t Inbox::take_piece(size_t available) {
  const size_t take = std::min(available, incoming_piece_left_);
  if (incoming_ || sealed_) incoming_cursor_.put(buffer_.get() + begin_, take);
  incoming_piece_left_ -= take;
  piece_received();
  return take;
}

// Whether a header lies at begin_, an eager one with its message. Otherwise it is not all there
// yet, unless `status` says more.
bool Inbox::header_here(WireHeader& header, Status& status) {
  if (sealed_ && !header_opened(status)) return false;
  const size_t available = end_ - begin_;
  if (available < sizeof header) return false;
  std::memcpy(&header, buffer_.get() + begin_, sizeof header);
  if (header.magic != WireHeader::kMagic || header.version != WireHeader::kVersion)
    status = broken("what arrived is not a message of this version of sennit");
  else if (header.kind != HeaderKind::eager)
    return true;
  else if (header.bytes > kMaxEagerBytes || header.piece_bytes != header.bytes)
    status = broken("an eager message of impossible size");
  else
    return available >= sizeof header + unit_bytes(header.bytes);
  return false;
}

Status Inbox::take_header(const WireHeader& header) {
  if (header.credit > 0 && !windows_.take_credit(header.key.comm, header.credit))
    return broken("more credit came back than there is");
  if (header.kind == HeaderKind::first || header.kind == HeaderKind::more)
    return begin_piece(header);
  if (header.kind == HeaderKind::credit) return {};
  if (header.kind == HeaderKind::refuse && expected_ > 0) expected_--;
  const size_t bytes = header.kind == HeaderKind::eager ? header.bytes : 0;
  std::byte* const body = buffer_.get() + begin_;
  if (sealed_ && bytes > 0 && !sealed_->seal.open(body, bytes, body + bytes)) return forged();
  SENNIT_RETURN_IF_ERROR(handler_.on_message(connection_, header, {body, bytes}));
  begin_ += unit_bytes(bytes);
  return {};
}

Status Inbox::begin_piece(const WireHeader& header) {
  if (header.kind == HeaderKind::first) {
    SENNIT_RETURN_IF_ERROR(begin_message(header));
  } else if (incoming_) {  // else of a message that was cancelled here
    if (header.key != incoming_->key || header.piece_bytes > incoming_left_)
      return broken("a piece of another message");
    incoming_left_ -= header.piece_bytes;
  }
  incoming_piece_left_ = header.piece_bytes;
  return sealed_ && header.piece_bytes > 0 ? place_piece(header.piece_bytes) : Status();
}

Status Inbox::begin_message(const WireHeader& header) {
  if (expected_ > 0) expected_--;
  if (incoming_) handler_.on_given_up(connection_, *std::exchange(incoming_, nullptr));
  if (header.piece_bytes > header.bytes || (header.piece_bytes == 0 && header.bytes > 0))
    return broken("a piece of impossible size");
  incoming_ = handler_.on_first_piece(connection_, header);
  if (!incoming_) return {};
  (sealed_ ? sealed_->rest : incoming_cursor_) = SegmentCursor(incoming_->segments);
  incoming_left_ = header.bytes - header.piece_bytes;
  if (header.bytes == 0) message_received();
  return {};
}

void Inbox::piece_received() {
  if (incoming_piece_left_ > 0) return;
  if (sealed_)
    sealed_->piece_due = true;
  else
    message_received();
}

// Unless more of it is to come.
void Inbox::message_received() {
  if (incoming_ && incoming_left_ == 0) handler_.on_received(*std::exchange(incoming_, nullptr));
}

// ---- sealed ----

Status Inbox::forged() const {
  return broken(
      "what came is not what was sent: somebody on the way changed, repeated, moved or left out "
      "bytes");
}

// Opens the tag of the piece that has come, then the next header. True: an open header lies at
// begin_. Otherwise it is not all there yet, unless `status` says more.
bool Inbox::header_opened(Status& status) {
  SealedInput& sealed = *sealed_;
  if (sealed.header_open) return true;
  if (sealed.piece_due) {
    if (end_ - begin_ < Seal::kTagBytes) return false;
    status = open_piece();
    if (!status.ok()) return false;
  }
  if (end_ - begin_ < sizeof(WireHeader) + Seal::kTagBytes) return false;
  std::byte* const header = buffer_.get() + begin_;
  if (!sealed.seal.open(header, sizeof(WireHeader), header + sizeof(WireHeader))) {
    status = forged();
    return false;
  }
  // Over its tag, so that what belongs to it comes right behind.
  std::memmove(header + Seal::kTagBytes, header, sizeof(WireHeader));
  begin_ += Seal::kTagBytes;
  sealed.header_open = true;
  return true;
}

Status Inbox::place_piece(size_t bytes) {
  if (bytes > kPieceBytes) return broken("a piece of impossible size");
  SealedInput& sealed = *sealed_;
  iovec piece{};
  sealed.aside = !incoming_ || sealed.rest.fill(&piece, 1, bytes) != 1 || piece.iov_len != bytes;
  if (sealed.aside && sealed.buffer.size() < bytes) sealed.buffer.resize(bytes);
  sealed.place = {sealed.aside ? sealed.buffer.data() : static_cast<std::byte*>(piece.iov_base),
                  bytes};
  incoming_cursor_ = SegmentCursor({&sealed.place, 1});
  return {};
}

Status Inbox::open_piece() {
  SealedInput& sealed = *sealed_;
  sealed.piece_due = false;
  if (!sealed.seal.open(sealed.place.data, sealed.place.bytes, buffer_.get() + begin_))
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
void Inbox::receive_elsewhere() {
  SealedInput& sealed = *sealed_;
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
