// peer_connection.cpp: see transports/tcp/peer_connection.hpp.
#include "transports/tcp/peer_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "base/process/forked.hpp"

namespace sennit::tcp {
namespace {

// Moved in one call, so that one connection cannot keep others waiting.
constexpr size_t kTurnBytes = 512 * 1024;
constexpr int kPieces = 64;  // of one system call

Status connection_error(int peer, const char* what, int error) {
  return {SENNIT_LINK_FAILED,
          fmt::format("connection to rank {}: {}: {}", peer, what, std::strerror(error))};
}

size_t bytes_of(const iovec* pieces, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += pieces[i].iov_len;
  return bytes;
}

msghdr message_of(iovec* pieces, int count) {
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = static_cast<size_t>(count);
  return message;
}

}  // namespace

void PeerConnection::open(int fd, const std::optional<SealKeys>& keys) {
  fd_ = fd;
  blocked_ = false;
  sealed_ = keys.has_value();
  if (sealed_) outbox_.seal(*keys);
  inbox_.open(sealed_ ? &*keys : nullptr);
}

void PeerConnection::shut() {
  close_guarded(fd_);
  fd_ = -1;
  inbox_.close();
}

void PeerConnection::return_window(uint32_t comm, size_t bytes) {
  if (!windows_.owe(comm, bytes)) return;
  WireHeader header;
  header.kind = HeaderKind::credit;
  header.key.comm = comm;
  post_control(header);  // unless another header of the communicator takes the credit along first
}

Status PeerConnection::write(bool& more) {
  size_t moved_in_all = 0;
  while (!blocked_) {
    iovec pieces[kPieces];
    const int count = outbox_.gather(pieces, kPieces);
    if (count == 0) break;
    if (moved_in_all >= kTurnBytes) {
      more = true;
      break;
    }
    const msghdr message = message_of(pieces, count);
    const ssize_t result = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return connection_error(peer_, "sending", errno);
      blocked_ = true;
      break;
    }
    const auto moved = static_cast<size_t>(result);
    blocked_ = moved < bytes_of(pieces, count);  // the kernel reports when there is room again
    bytes_sent_ += moved;
    moved_in_all += moved;
    outbox_.sent(moved, [this](SendRequest& request) { handler_.on_sent(request); });
  }
  return {};
}

Status PeerConnection::read(bool to_the_end, bool& more) {
  size_t moved_in_all = 0;
  bool filled = false;  // the last call found more than it had room for
  while (is_open()) {
    iovec pieces[kPieces];
    const int count = inbox_.make_room(pieces, kPieces, filled);
    msghdr message = message_of(pieces, count);
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
    SENNIT_RETURN_IF_ERROR(inbox_.received(moved));
    filled = moved == bytes_of(pieces, count);
    if (!filled && !to_the_end) break;
    if (moved_in_all >= kTurnBytes) {
      more = true;
      break;
    }
  }
  return {};
}

// ---- silence ----

// Without an answer at the first stall, the second, the fourth, and so on: a peer that does
// something else for an hour finds a dozen questions, not thousands.
bool PeerConnection::post_ask() {
  if (!sealed_ || blocked_ || has_staged()) return false;
  if (silent_at_ != bytes_received_) stalls_ = 0;
  silent_at_ = bytes_received_;
  if (!std::has_single_bit(++stalls_)) return false;
  WireHeader header;
  header.kind = HeaderKind::ask;
  header.bytes = bytes_received_;
  post_control(header);
  return true;
}

// As many bytes as the peer has not seen, which are enough for the unit that it may be waiting for;
// mostly there are none, and one header says so. What is queued anyway is an answer, too.
void PeerConnection::post_answer(uint64_t received) {
  constexpr uint64_t kUnit = kPieceBytes + Seal::kTagBytes;
  constexpr uint64_t kHeader = sizeof(WireHeader) + Seal::kTagBytes;
  if (!outbox_.empty() || received > bytes_sent_) return;
  const uint64_t missing = std::min(bytes_sent_ - received, kUnit);
  for (uint64_t filled = 0; filled == 0 || filled < missing; filled += kHeader) post_control({});
}

}  // namespace sennit::tcp
