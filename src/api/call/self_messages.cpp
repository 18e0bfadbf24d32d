// self_messages.cpp: see api/call/self_messages.hpp.
#include "api/call/self_messages.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace sennit {

Status SelfMessages::start(const Call& call, const Matched& matched, uint32_t comm, int world_rank,
                           const Copy& copy) {
  const MutexLock lock(mutex_);
  std::deque<Half>& others = call.receiving ? sends_ : receives_;
  const auto found = std::find_if(others.begin(), others.end(),
                                  [&](const Half& half) { return half.call.tag == call.tag; });
  if (found == others.end()) {
    (call.receiving ? receives_ : sends_).push_back({call, matched});
    return {};
  }
  const Half other = *found;
  others.erase(found);
  const Call& sent = call.receiving ? other.call : call;
  const Call& expected = call.receiving ? call : other.call;
  if (sent.count != expected.count || sent.type != expected.type)
    return {SENNIT_MISMATCH,
            fmt::format("on communicator {} rank {} called send count {} {} to itself, but recv "
                        "count {} {} from itself",
                        comm, world_rank, sent.count, name(sent.type), expected.count,
                        name(expected.type))};
  if (sent.on_device != expected.on_device || sent.stream != expected.stream ||
      sent.in_graph != expected.in_graph)
    return {SENNIT_MISMATCH,
            fmt::format("on communicator {} rank {} called send and recv to itself in two streams, "
                        "or one of them on a device's memory and the other on the host's, or one "
                        "as part of a graph",
                        comm, world_rank)};
  other.matched->met = matched->met = true;
  const Copied copied = [first = other.matched, second = matched] {
    first->copied = second->copied = true;
  };
  const size_t bytes = sent.count * type_bytes(sent.type);
  const bool in_stream = bytes > 0 && sent.on_device;
  const bool later = in_stream && (matched->has_handle || other.matched->has_handle);
  if (in_stream)
    SENNIT_RETURN_IF_ERROR(copy(expected.recv, sent.send, bytes, later ? copied : Copied()));
  else if (bytes > 0)
    std::memmove(expected.recv, sent.send, bytes);
  if (!later) copied();
  return {};
}

Status SelfMessages::withdraw(const Call& call, const Matched& matched) {
  const MutexLock lock(mutex_);
  if (matched->met) return {};
  std::erase_if(call.receiving ? receives_ : sends_,
                [&](const Half& half) { return half.matched == matched; });
  return invalid(
      call.receiving
          ? "recv from oneself: nothing was sent; start the send first, with sennit_send_start"
          : "send to oneself: no receive waits for it; start that first, with sennit_recv_start");
}

}  // namespace sennit
