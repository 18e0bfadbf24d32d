// device.cpp: the registry of trainer/device/device.hpp.
#include "trainer/device/device.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace sennit::trainer {
namespace {

// Entries register themselves before main(), in any order of files.
std::vector<const DeviceEntry*>& entries() {
  static std::vector<const DeviceEntry*> all;
  return all;
}

const DeviceEntry* find(const std::string& name) {
  for (const DeviceEntry* entry : entries())
    if (entry->name() == name) return entry;
  return nullptr;
}

}  // namespace

DeviceEntry::DeviceEntry(const char* name, Open opens) : name_(name), open_(opens) {
  const auto place = std::find_if(entries().begin(), entries().end(), [&](const DeviceEntry* e) {
    return std::string_view(e->name()) > name;
  });
  entries().insert(place, this);
}

std::span<const DeviceEntry* const> devices() { return entries(); }

Status check_device(const std::string& name) {
  if (find(name)) return {};
  std::string names;
  for (const DeviceEntry* entry : devices())
    names += (names.empty() ? "" : ", ") + std::string(entry->name());
  return invalid(fmt::format("--device {}: there is no such device; there are: {}", name, names));
}

Result<std::unique_ptr<Device>> open_device(const std::string& name, int threads) {
  SENNIT_RETURN_IF_ERROR(check_device(name));
  return find(name)->open(threads);
}

}  // namespace sennit::trainer
