// registry.cpp: the list of transports. Each transport's file adds itself with SENNIT_TRANSPORT_ENTRY before
// main() runs; afterwards the list does not change, so it needs no lock.
#include <algorithm>

#include "transport.hpp"

namespace sennit {
namespace {

std::vector<TransportFactory>& registered() {
  static std::vector<TransportFactory> list;
  return list;
}

}  // namespace

std::span<const TransportFactory> transports() { return registered(); }

TransportEntry::TransportEntry(TransportFactory factory) {
  std::vector<TransportFactory>& list = registered();
  const auto place = std::find_if(list.begin(), list.end(), [&](const TransportFactory& other) {
    return other.priority < factory.priority ||
           (other.priority == factory.priority && other.name > factory.name);
  });
  list.insert(place, std::move(factory));
}

}  // namespace sennit
