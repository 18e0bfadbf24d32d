// cbor.hpp: JSON values as the bytes that ranks hand each other over the control plane (RFC 8949).
#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

namespace sennit {

std::vector<std::byte> pack(const nlohmann::json& json);

// Discarded (is_discarded()) when it is not CBOR.
nlohmann::json unpack(const std::vector<std::byte>& bytes);

}  // namespace sennit
