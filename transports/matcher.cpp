// matcher.cpp: see transports/matcher.hpp.
#include "transports/matcher.hpp"

#include <fmt/core.h>

namespace sennit {

Arrival* Matcher::post(RecvRequest& request) {
  if (arrivals_.size() > 0)
    if (Arrival* arrival = arrivals_.remove(request.peer, request.key)) return arrival;
  SENNIT_CHECK(receives_.insert(&request));  // keys are never reused: posting one twice is a defect
  return nullptr;
}

Arrival* Matcher::keep(int peer, const Key& key, uint64_t signature, size_t bytes) {
  if (arrivals_.find(peer, key)) return nullptr;
  if (free_.empty()) {
    all_.push_back(std::make_unique<Arrival>());
    free_.reserve(all_.capacity());
    free_.push_back(all_.back().get());
  }
  Arrival* arrival = free_.back();
  free_.pop_back();
  arrival->peer = peer;
  arrival->key = key;
  arrival->signature = signature;
  arrival->bytes = bytes;
  arrival->arrived_ns = 0;
  arrival->data.clear();
  for (uint64_t& handle : arrival->handle) handle = 0;
  arrivals_.insert(arrival);
  return arrival;
}

void Matcher::recycle(Arrival* arrival) { free_.push_back(arrival); }

namespace {

std::string describe(const Key& key) {
  return key.chunk >= kPointToPoint - kReplays
             ? fmt::format("communicator {}, message {}", key.comm, key.seq)
             : fmt::format("communicator {}, call {}", key.comm, key.seq);
}

}  // namespace

bool check_match(RecvRequest& request, uint64_t signature, size_t bytes) {
  if (signature == request.signature && bytes == request.bytes) return true;
  request.arrived_signature = signature;
  request.arrived_bytes = bytes;
  request.status =
      bytes != request.bytes
          ? Status(SENNIT_MISMATCH,
                   fmt::format("rank {} sent {} bytes where {} were expected ({})", request.peer,
                               bytes, request.bytes, describe(request.key)))
          : Status(SENNIT_MISMATCH, fmt::format("rank {} made a different call ({})", request.peer,
                                                describe(request.key)));
  return false;
}

Status send_mismatch(const SendRequest& request, size_t expected_bytes) {
  if (expected_bytes != request.bytes)
    return {SENNIT_MISMATCH,
            fmt::format("rank {} expects {} bytes where this rank sends {} ({})", request.peer,
                        expected_bytes, request.bytes, describe(request.key))};
  return {SENNIT_MISMATCH,
          fmt::format("rank {} made a different call ({})", request.peer, describe(request.key))};
}

}  // namespace sennit
