// peer_connection.cpp: see transports/tcp/peer_connection.hpp.
#include "transports/tcp/peer_connection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/process/forked.hpp"
#include "base/trace.hpp"

namespace sennit::tcp {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;
static_assert(kMaxEagerBytes + sizeof(WireHeader) + 2 * Seal::kTagBytes <= kBufferBytes);
constexpr size_t kStageBytes = 16 * 1024;  // staged before a write; one message more may follow
// moved in one call, so that one connection cannot keep others waiting
constexpr size_t kTurnBytes = 512 * 1024;
// read beyond a piece: the next header; more would be copied twice
constexpr size_t kLittleBytes = 4096;
constexpr int kPieces = 64;

Status connection_error(int peer, const char* what, int error) {
  return {SENNIT_LINK_FAILED,
          fmt::format("connection to rank {}: {}: {}", peer, what, std::strerror(error))};
}

Status protocol_error(int peer, const char* what) {
  return {SENNIT_LINK_FAILED, fmt::format("connection to rank {}: {}; it is closed", peer, what)};
}

}  // namespace

void PeerConnection::open(int fd, const std::optional<SealKeys>& keys) {
  fd_ = fd;
  if (keys) sealed_ = std::make_unique<Sealed>(*keys);
  blocked_ = false;
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
}

void PeerConnection::shut() {
  close_guarded(fd_);
  fd_ = -1;
  buffer_.reset();
}

// ---- the window of eager messages ----

PeerConnection::Window* PeerConnection::known_window(uint32_t comm) {
  if (last_window_ && last_comm_ == comm) return last_window_;
  const auto found = windows_.find(comm);
  if (found == windows_.end()) return nullptr;
  last_comm_ = comm;
  return last_window_ = &found->second;  // does not move
}

PeerConnection::Window& PeerConnection::window(uint32_t comm) {
  if (Window* known = known_window(comm)) return *known;
  last_comm_ = comm;
  return *(last_window_ = &windows_.try_emplace(comm, Window{window_bytes_}).first->second);
}

bool PeerConnection::take_window(uint32_t comm, size_t bytes) {
  Window& w = window(comm);
  if (w.available < eager_cost(bytes)) return false;
  w.available -= eager_cost(bytes);
  return true;
}

bool PeerConnection::hold(uint32_t comm, size_t bytes) {
  Window& w = window(comm);
  if (w.held + eager_cost(bytes) > window_bytes_) return false;
  w.held += eager_cost(bytes);
  return true;
}

void PeerConnection::return_window(uint32_t comm, size_t bytes) {
  Window& w = window(comm);
  w.owed += eager_cost(bytes);
  if (w.owed < window_bytes_ / 2 || w.credit_posted) return;
  WireHeader header;
  header.kind = HeaderKind::credit;
  header.key.comm = comm;
  post_control(header);  // unless another header of the communicator takes the credit along first
  w.credit_posted = true;
}

void PeerConnection::forget(const std::function<bool(uint32_t comm)>& over) {
  std::erase_if(windows_, [&](const auto& entry) { return over(entry.first); });
  last_window_ = nullptr;
}

// ---- out ----

void PeerConnection::stage_header(WireHeader header) {
  Window& w = window(header.key.comm);
  header.credit = static_cast<uint32_t>(w.owed);
  w.held -= w.owed;
  w.owed = 0;
  if (header.kind == HeaderKind::credit) w.credit_posted = false;
  std::byte* const to = stage_bytes(sizeof header);
  std::memcpy(to, &header, sizeof header);
  if (sealed_) sealed_->out.close(to, sizeof header, to);
}

// Room for one unit at the end of what is staged.
std::byte* PeerConnection::stage_bytes(size_t bytes) {
  const size_t at = staged_.size();
  staged_.resize(at + unit_bytes(bytes));
  return staged_.data() + at;
}

void PeerConnection::stage() {
  if (staged_begin_ == staged_.size()) {
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
      continue;
    }
    WireHeader header;
    if (SendRequest* request = eager_.front()) {
      eager_.pop();
      request->first_ns = now_ns();
      header.kind = HeaderKind::eager;
      header.key = request->key;
      header.signature = request->signature;
      header.bytes = request->bytes;
      header.piece_bytes = static_cast<uint32_t>(request->bytes);
      stage_header(header);
      staged_sends_.push_back(request);
      if (request->bytes == 0) continue;
      std::byte* const to = stage_bytes(request->bytes);
      SegmentCursor(request->segments).get(to, request->bytes);
      if (sealed_) sealed_->out.close(to, request->bytes, to);
      continue;
    }
    header.kind = HeaderKind::more;
    if (!outgoing_) {
      outgoing_ = granted_.front();
      if (!outgoing_) break;
      granted_.pop();
      outgoing_->first_ns = now_ns();
      outgoing_cursor_ = SegmentCursor(outgoing_->segments);
      outgoing_left_ = outgoing_->bytes;
      header.kind = HeaderKind::first;
    }
    outgoing_piece_left_ = std::min(outgoing_left_, kPieceBytes);
    outgoing_left_ -= outgoing_piece_left_;
    header.key = outgoing_->key;
    header.signature = outgoing_->signature;
    header.bytes = outgoing_->bytes;
    header.piece_bytes = static_cast<uint32_t>(outgoing_piece_left_);
    stage_header(header);
    if (sealed_ && outgoing_piece_left_ > 0) stage_sealed_piece();
    if (outgoing_left_ == 0 && outgoing_piece_left_ == 0)
      staged_sends_.push_back(std::exchange(outgoing_, nullptr));
  }
}

Status PeerConnection::write(bool& more) {
  size_t moved_in_all = 0;
  while (!blocked_) {
    stage();
    iovec pieces[kPieces];
    int count = 0;
    size_t offered = 0;
    if (has_staged())
      pieces[count++] = {staged_.data() + staged_begin_, staged_.size() - staged_begin_};
    if (outgoing_piece_left_ > 0)
      count += outgoing_cursor_.fill(pieces + count, kPieces - count, outgoing_piece_left_);
    if (count == 0) break;
    for (int i = 0; i < count; i++) offered += pieces[i].iov_len;
    if (moved_in_all >= kTurnBytes) {
      more = true;
      break;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t result = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return connection_error(peer_, "sending", errno);
      blocked_ = true;
      break;
    }
    auto moved = static_cast<size_t>(result);
    blocked_ = moved < offered;  // the kernel reports when there is room again
    bytes_sent_ += moved;
    moved_in_all += moved;
    const size_t of_staged = std::min(moved, staged_.size() - staged_begin_);
    staged_begin_ += of_staged;
    moved -= of_staged;
    if (!has_staged()) {
      for (SendRequest* request : staged_sends_)
        if (request) handler_.on_sent(*request);
      staged_sends_.clear();
    }
    if (moved > 0) {
      outgoing_cursor_.advance(moved);
      outgoing_piece_left_ -= moved;
      if (outgoing_piece_left_ == 0) {
        if (!outgoing_)
          private_copy_ = {};
        else if (outgoing_left_ == 0)
          handler_.on_sent(*std::exchange(outgoing_, nullptr));
      }
    }
  }
  return {};
}

SendRequest* PeerConnection::detach_outgoing() {
  if (outgoing_piece_left_ > 0) {
    private_copy_.resize(outgoing_piece_left_);
    outgoing_cursor_.get(private_copy_.data(), outgoing_piece_left_);
    private_segment_ = {private_copy_.data(), private_copy_.size()};
    outgoing_cursor_ = SegmentCursor({&private_segment_, 1});
  }
  return std::exchange(outgoing_, nullptr);
}

// ---- in ----

Status PeerConnection::read(bool to_the_end, bool& more) {
  size_t moved_in_all = 0;
  bool filled = false;  // the last call found more than it had room for
  while (is_open()) {
    if (begin_ == end_) begin_ = end_ = 0;
    iovec pieces[kPieces];
    int count = 0;
    size_t direct = 0, room = kBufferBytes - end_;
    if (expected_ > 0 && !filled) room = std::min(room, kLittleBytes);
    if ((incoming_ || sealed_) && incoming_piece_left_ > 0 && begin_ == end_) {
      count = incoming_cursor_.fill(pieces, kPieces - 1, incoming_piece_left_);
      for (int i = 0; i < count; i++) direct += pieces[i].iov_len;
      // Where the segments are too many for one call, what is behind them is not the next header.
      room = direct == incoming_piece_left_ ? kLittleBytes : 0;
    }
    if (room > 0) pieces[count++] = {buffer_.get() + end_, room};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t result = ::recvmsg(fd_, &message, MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return connection_error(peer_, "receiving", errno);
    }
    if (result == 0)
      return {SENNIT_LINK_FAILED,
              fmt::format("connection to rank {}: closed by the other side", peer_)};
    const auto moved = static_cast<size_t>(result);
    bytes_received_ += moved;
    moved_in_all += moved;
    const size_t placed = std::min(moved, direct);
    if (placed > 0) {
      incoming_cursor_.advance(placed);
      incoming_piece_left_ -= placed;
      piece_received();
    }
    end_ += moved - placed;
    SENNIT_RETURN_IF_ERROR(parse());
    filled = moved == direct + room;
    if (!filled && !to_the_end) break;
    if (moved_in_all >= kTurnBytes) {
      more = true;
      break;
    }
  }
  return {};
}

void PeerConnection::piece_received() {
  if (incoming_piece_left_ > 0) return;
  if (sealed_)
    sealed_->piece_due = true;
  else
    message_received();
}

// Unless more of it is to come.
void PeerConnection::message_received() {
  if (incoming_ && incoming_left_ == 0) handler_.on_received(*std::exchange(incoming_, nullptr));
}

Status PeerConnection::parse() {
  while (begin_ < end_) {
    if (incoming_piece_left_ > 0) {
      const size_t take = std::min(end_ - begin_, incoming_piece_left_);
      if (incoming_ || sealed_) incoming_cursor_.put(buffer_.get() + begin_, take);
      begin_ += take;
      incoming_piece_left_ -= take;
      piece_received();
      continue;
    }
    if (Status status; sealed_ && !header_opened(status)) {
      if (!status.ok()) return status;
      break;
    }
    const size_t available = end_ - begin_;
    WireHeader header;
    if (available < sizeof header) break;
    std::memcpy(&header, buffer_.get() + begin_, sizeof header);
    if (header.magic != WireHeader::kMagic || header.version != WireHeader::kVersion)
      return protocol_error(peer_, "what arrived is not a message of this version of sennit");
    if (header.kind == HeaderKind::eager) {
      if (header.bytes > kMaxEagerBytes || header.piece_bytes != header.bytes)
        return protocol_error(peer_, "an eager message of impossible size");
      if (available < sizeof header + unit_bytes(header.bytes)) break;
    }
    begin_ += sizeof header;
    if (sealed_) sealed_->header_open = false;
    if (header.credit > 0) {
      if (header.credit > window_bytes_)
        return protocol_error(peer_, "more credit came back than there is");
      // What was spent may have been forgotten meanwhile.
      if (Window* w = known_window(header.key.comm))
        w->available = std::min(w->available + header.credit, window_bytes_);
    }
    if (header.kind == HeaderKind::first || header.kind == HeaderKind::more) {
      SENNIT_RETURN_IF_ERROR(begin_piece(header));
    } else if (header.kind != HeaderKind::credit) {
      if (header.kind == HeaderKind::refuse && expected_ > 0) expected_--;
      const size_t bytes = header.kind == HeaderKind::eager ? header.bytes : 0;
      std::byte* const body = buffer_.get() + begin_;
      if (sealed_ && bytes > 0 && !sealed_->in.open(body, bytes, body + bytes)) return forged();
      SENNIT_RETURN_IF_ERROR(handler_.on_message(*this, header, {body, bytes}));
      begin_ += unit_bytes(bytes);
    }
  }
  // Keep room for a whole eager message behind what is left of it.
  if (begin_ > 0 && begin_ < end_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {};
}

Status PeerConnection::begin_piece(const WireHeader& header) {
  if (header.kind == HeaderKind::first) {
    if (expected_ > 0) expected_--;
    if (incoming_) handler_.on_given_up(*this, *std::exchange(incoming_, nullptr));
    if (header.piece_bytes > header.bytes || (header.piece_bytes == 0 && header.bytes > 0))
      return protocol_error(peer_, "a piece of impossible size");
    incoming_ = handler_.on_first_piece(*this, header);
    if (incoming_) {
      (sealed_ ? sealed_->rest : incoming_cursor_) = SegmentCursor(incoming_->segments);
      incoming_left_ = header.bytes - header.piece_bytes;
      if (header.bytes == 0) message_received();
    }
  } else if (incoming_) {  // else of a message that was cancelled here
    if (header.key != incoming_->key || header.piece_bytes > incoming_left_)
      return protocol_error(peer_, "a piece of another message");
    incoming_left_ -= header.piece_bytes;
  }
  incoming_piece_left_ = header.piece_bytes;
  return sealed_ && header.piece_bytes > 0 ? place_piece(header.piece_bytes) : Status();
}

}  // namespace sennit::tcp
