// connection.cpp: see control/connection.hpp.
#include "control/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

namespace sennit::control {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
// so that one talker does not keep the others waiting
constexpr size_t kReadBytesPerWake = 4 << 20;

size_t units(size_t bytes) { return (bytes + Connection::kUnitBytes - 1) / Connection::kUnitBytes; }

}  // namespace

Connection::Connection(int fd, Handshake handshake, Role its_role, int its_rank, bool connecting,
                       int64_t now)
    : fd_(fd), handshake_(std::move(handshake)), connecting_(connecting) {
  role = its_role;
  rank = its_rank;
  outgoing = connecting;
  since_ms = last_in_ms = last_out_ms = now;
}

void Connection::finish(End end, std::string reason) {
  if (end_ != End::none) return;
  end_ = end;
  reason_ = std::move(reason);
}

void Connection::send(const EncodedFrame& buffer, int64_t now) {
  if (shutting_ || end_ != End::none) return;
  out_.push_back(buffer);
  last_out_ms = now;
  if (proven) write_frames();
}

void Connection::shut() {
  shutting_ = true;
  if (out_.empty() && !shut_ && !connecting_) shut_ = ::shutdown(fd_, SHUT_WR) == 0;
}

void Connection::drive(std::vector<ReceivedFrame>* messages, int64_t now) {
  if (end_ != End::none) return;
  if (connecting_) {
    const int error = connect_error(fd_);
    if (error != 0) {
      const bool refused = error == ECONNREFUSED || error == ECONNRESET;
      return finish(refused ? End::refused : End::unreachable, std::strerror(error));
    }
    connecting_ = false;
    if (handshake_time_ms != 0) deadline_ms = now + handshake_time_ms;
  }
  if (!proven) {
    Handshake::State state = handshake_.drive(fd_);
    if (state == Handshake::State::proven) {
      if (rank < 0) rank = handshake_.peer();
      handshake_.decide(true);
      state = handshake_.drive(fd_);
    }
    if (state == Handshake::State::failed)
      return finish(handshake_.connection_lost()                            ? End::closed
                    : handshake_.status().kind() == SENNIT_INVALID_ARGUMENT ? End::disagrees
                                                                            : End::unproven,
                    handshake_.status().text());
    if (state != Handshake::State::done) return;
    if (const auto keys = handshake_.seal_keys()) sealed_ = std::make_unique<Sealed>(*keys);
    proven = true;
    last_in_ms = now;
  }
  write_frames();
  const size_t before = messages->size();
  // Sealed, bytes are a sign of life when they have opened: anybody on the way can send some.
  if ((read_frames(messages) && !sealed_) || messages->size() > before) last_in_ms = now;
}

// True if anything arrived.
bool Connection::read_frames(std::vector<ReceivedFrame>* messages) {
  size_t total = 0;
  bool over = false;
  while (total < kReadBytesPerWake && !over) {
    const size_t had = in_.size();
    in_.resize(had + kReadBytes);
    const ssize_t got = ::recv(fd_, in_.data() + had, kReadBytes, MSG_DONTWAIT);
    in_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) {
      total += static_cast<size_t>(got);
    } else if (got == 0) {
      finish(End::closed, "connection closed");
      over = true;
    } else if (errno != EINTR) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) finish(End::closed, std::strerror(errno));
      over = true;
    }
    size_t used = 0;
    ReceivedFrame message;
    while (take_frame(&used, &message)) {
      messages->push_back(std::move(message));
      if (role != Role::stranger) continue;
      over = true;  // its role decides what may follow; the loop comes back for the rest
      break;
    }
    if (end_ == End::garbage || end_ == End::forged) {
      in_.clear();
      return total > 0;
    }
    if (used > 0) in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(used));
  }
  return total > 0;
}

// The next frame of what has arrived, from `used` on. False: it is not all there, or it is none,
// and this is the end.
bool Connection::take_frame(size_t* used, ReceivedFrame* message) {
  const size_t available = in_.size() - *used;
  const size_t header_bytes = kFrameHeaderBytes + (sealed_ ? Seal::kTagBytes : 0);
  if (available < header_bytes) return false;
  std::byte* const at = in_.data() + *used;
  if (sealed_ && !open_header(at)) return false;
  const FrameHeader header =
      read_frame_header(std::span<const std::byte, kFrameHeaderBytes>(at, kFrameHeaderBytes));
  const size_t length = header.length;
  message->type = header.type;
  if (!header.known || length > (role == Role::stranger ? kFirstFrameBytes : kFrameBytes)) {
    finish(End::garbage,
           fmt::format("a frame of type {} and {} bytes", static_cast<int>(message->type), length));
    return false;
  }
  const size_t payload_bytes = sealed_ ? length + units(length) * Seal::kTagBytes : length;
  if (available < header_bytes + payload_bytes) return false;
  message->payload.clear();
  if (!sealed_)
    message->payload.assign(at + header_bytes, at + header_bytes + length);
  else if (!open_payload(at + header_bytes, length, &message->payload))
    return false;
  *used += header_bytes + payload_bytes;
  return true;
}

// ---- sealed ----

void Connection::finish_forged() {
  finish(End::forged,
         "what came is not what was sent: somebody on the way changed, repeated, moved or left out "
         "bytes");
}

bool Connection::open_header(std::byte* at) {
  if (!sealed_->header_open && !sealed_->in.open(at, kFrameHeaderBytes, at + kFrameHeaderBytes)) {
    finish_forged();
    return false;
  }
  sealed_->header_open = true;
  return true;
}

bool Connection::open_payload(std::byte* at, size_t length, std::vector<std::byte>* out) {
  sealed_->header_open = false;
  out->reserve(length);
  for (size_t left = length; left > 0;) {
    const size_t bytes = std::min(left, kUnitBytes);
    if (!sealed_->in.open(at, bytes, at + bytes)) {
      finish_forged();
      return false;
    }
    out->insert(out->end(), at, at + bytes);
    at += bytes + Seal::kTagBytes;
    left -= bytes;
  }
  return true;
}

void Connection::seal_front() {
  const std::vector<std::byte>& frame = *out_.front();
  const size_t length = frame.size() - kFrameHeaderBytes;
  std::vector<std::byte>& leaving = sealed_->leaving;
  leaving.resize(frame.size() + (1 + units(length)) * Seal::kTagBytes);
  const std::byte* plain = frame.data();
  std::byte* to = leaving.data();
  const auto close_unit = [&](size_t bytes) {
    sealed_->out.close(plain, bytes, to);
    plain += bytes;
    to += bytes + Seal::kTagBytes;
  };
  close_unit(kFrameHeaderBytes);
  for (size_t left = length; left > 0; left -= std::min(left, kUnitBytes))
    close_unit(std::min(left, kUnitBytes));
}

void Connection::write_frames() {
  while (!out_.empty()) {
    if (sealed_ && sealed_->leaving.empty()) seal_front();
    const std::vector<std::byte>& bytes = sealed_ ? sealed_->leaving : *out_.front();
    const ssize_t sent = ::send(fd_, bytes.data() + out_offset_, bytes.size() - out_offset_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // The reading side says how it ended, after what still lies there: it may be a goodbye.
      out_.clear();
      shutting_ = shut_ = true;
      return;
    }
    out_offset_ += static_cast<size_t>(sent);
    if (out_offset_ < bytes.size()) continue;
    out_.pop_front();
    out_offset_ = 0;
    if (sealed_) sealed_->leaving.clear();
  }
  if (shutting_ && !shut_) shut_ = ::shutdown(fd_, SHUT_WR) == 0;
}

}  // namespace sennit::control
