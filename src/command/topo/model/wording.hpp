// wording.hpp: how `sennit topo` puts things into words: rates, ratios, plurals, provenance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/topo/model/fold.hpp"
#include "command/topo/model/model.hpp"
#include "command/topo/read/read.hpp"

namespace sennit::topo {

// "400 Mbit/s", or "50 MB/s" without `bits`: four digits, decimal prefixes. 0 is "unknown".
std::string readable_rate(uint64_t bytes_per_s, bool bits = true);
// "7:1", with three digits.
std::string readable_ratio(double ratio);
// "1 rack", "2 racks", "3 leaves". A tier without a name of its own is a group.
std::string plural(int count, const std::string& tier);
// "229 Mbit/s out, 400 Mbit/s in". Of several that were measured: "about 229 Mbit/s".
std::string rate_words(const Item& item);
std::string rate_words(const Fold& fold);
// "2 racks + 1 host".
std::string members_words(const Item& item);
// "declared, file"; empty where the item has no known figure.
std::string origin_words(const Item& item);
// The first line of an output: the fabric's name, or this host's, and how much there is.
std::string heading(const Reading& reading, const Model& model);
// What was read: "file demo.fabric, hwloc".
std::string from_words(const Reading& reading);
// Empty where hosts are drawn below their switches.
std::string way_up_words(const Model& model);
// What a user can do where nothing is known above the hosts, a sentence each.
std::vector<std::string> ways_to_learn();

}  // namespace sennit::topo
