#include "cbor.hpp"

#include <cstdint>

namespace sennit {

std::vector<std::byte> pack(const nlohmann::json& json) {
  const std::vector<uint8_t> cbor = nlohmann::json::to_cbor(json);
  const auto* data = reinterpret_cast<const std::byte*>(cbor.data());
  return {data, data + cbor.size()};
}

nlohmann::json unpack(const std::vector<std::byte>& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return nlohmann::json::from_cbor(data, data + bytes.size(), true, false);
}

}  // namespace sennit
