// address_head.hpp: what a rank's address begins with, by which both ends decide alike whether they
// talk over UCX. UCX's own address follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sennit::ucx {

// As these bytes.
struct AddressHead {
  static constexpr uint32_t kMagic = 0x32786375;  // "ucx2"; another layout, another number

  uint32_t magic = kMagic;
  uint32_t has_rdma = 0;   // as it was when the transport was made
  uint32_t asked_for = 0;  // TransportContext::asked_for
};

// Whether the rank with this address and the one with `mine` talk over UCX: where both have RDMA,
// or both were asked to.
inline bool both_use_ucx(const AddressHead& mine, std::span<const std::byte> address) {
  AddressHead theirs;
  if (address.size() <= sizeof theirs) return false;
  std::memcpy(&theirs, address.data(), sizeof theirs);
  if (theirs.magic != AddressHead::kMagic) return false;
  return (mine.has_rdma && theirs.has_rdma) || (mine.asked_for && theirs.asked_for);
}

}  // namespace sennit::ucx
