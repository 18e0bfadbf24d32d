// cbor.hpp: JSON values as the bytes that ranks hand each other over the control plane (RFC 8949).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

namespace sennit {

inline std::vector<std::byte> pack(const nlohmann::json& json) {
  const std::vector<uint8_t> cbor = nlohmann::json::to_cbor(json);
  const auto* data = reinterpret_cast<const std::byte*>(cbor.data());
  return {data, data + cbor.size()};
}

// Discarded (is_discarded()) when it is not CBOR.
inline nlohmann::json unpack(const std::vector<std::byte>& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return nlohmann::json::from_cbor(data, data + bytes.size(), true, false);
}

}  // namespace sennit
