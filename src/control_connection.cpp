#include "control_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace sennit::control {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kReadBytesPerWake = 4 << 20;  // so that one talker does not keep the others waiting

}  // namespace

Connection::Connection(int fd, Handshake handshake, Role its_role, int its_rank, bool connecting, int64_t now)
    : outgoing(connecting),
      role(its_role),
      rank(its_rank),
      since_ms(now),
      deadline_ms(0),
      last_in_ms(now),
      last_out_ms(now),
      fd_(fd),
      handshake_(std::move(handshake)),
      connecting_(connecting) {}

void Connection::finish(End end, std::string reason) {
  if (end_ != End::none) return;
  end_ = end;
  reason_ = std::move(reason);
}

void Connection::send(const Buffer& buffer, int64_t now) {
  if (shutting_ || end_ != End::none) return;
  out_.push_back(buffer);
  last_out_ms = now;
  if (open_) write_frames();
}

void Connection::shut() {
  shutting_ = true;
  if (out_.empty() && !shut_ && !connecting_) shut_ = ::shutdown(fd_, SHUT_WR) == 0;
}

void Connection::drive(std::vector<Message>* messages, int64_t now) {
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
  if (!open_) {
    Handshake::State state = handshake_.drive(fd_);
    if (state == Handshake::State::proven) {
      if (rank < 0) rank = handshake_.peer();
      handshake_.decide(true);
      state = handshake_.drive(fd_);
    }
    if (state == Handshake::State::failed)
      return finish(handshake_.connection_lost() ? End::closed : End::unproven, handshake_.status().text());
    if (state != Handshake::State::done) return;
    open_ = true;
    last_in_ms = now;
  }
  write_frames();
  const size_t before = messages->size();
  if (read_frames(messages) || messages->size() > before) last_in_ms = now;
}

// True if anything arrived.
bool Connection::read_frames(std::vector<Message>* messages) {
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
    while (in_.size() - used >= kFrameHeaderBytes) {
      const std::span<const std::byte> unread = std::span<const std::byte>(in_).subspan(used);
      Reader header(unread.first(kFrameHeaderBytes));
      const size_t length = header.u32();
      const auto frame = static_cast<Frame>(header.u16());
      const bool first = role == Role::stranger;
      if (frame > Frame::last_ || header.u16() != 0 || length > (first ? kFirstFrameBytes : kFrameBytes)) {
        finish(End::garbage, fmt::format("a frame of type {} and {} bytes", static_cast<int>(frame), length));
        in_.clear();
        return total > 0;
      }
      if (in_.size() - used < kFrameHeaderBytes + length) break;
      const auto begin = in_.begin() + static_cast<ptrdiff_t>(used + kFrameHeaderBytes);
      messages->push_back({frame, {begin, begin + static_cast<ptrdiff_t>(length)}});
      used += kFrameHeaderBytes + length;
      if (first) {  // its role decides what may follow; the loop comes back for the rest
        over = true;
        break;
      }
    }
    if (used > 0) in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(used));
  }
  return total > 0;
}

void Connection::write_frames() {
  while (!out_.empty()) {
    const auto& bytes = *out_.front();
    const ssize_t sent =
        ::send(fd_, bytes.data() + out_offset_, bytes.size() - out_offset_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // The reading side says how it ended, after what still lies there: it may be a goodbye.
      out_.clear();
      shutting_ = shut_ = true;
      return;
    }
    out_offset_ += static_cast<size_t>(sent);
    if (out_offset_ == bytes.size()) out_.pop_front(), out_offset_ = 0;
  }
  if (shutting_ && !shut_) shut_ = ::shutdown(fd_, SHUT_WR) == 0;
}

}  // namespace sennit::control
