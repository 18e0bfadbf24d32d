// names.cpp: see topology/sources/ibnet/names.hpp. The kernel or rdma-ndd writes "HOST DEVICE" into
// an adapter's node description; where neither ran it is what the vendor burnt in, such as "MT4123
// ConnectX6 Mellanox Technologies", and says nothing about the host.
#include "topology/sources/ibnet/names.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr size_t kMostAdapters = 32;  // of one host; more that are called alike are a model's name

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    at = std::min(text.find(' ', begin), text.size());
    words.emplace_back(text.substr(begin, at - begin));
  }
  return words;
}

// What a name may not hold in a fabric's text form is replaced.
std::string clean(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 128)) out += is_plain(c) ? c : '?';
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// mlx5_0, mlx5_bond_0, HCA-1
bool is_device(std::string_view word) {
  const size_t mark = word.find_last_of("_-");
  return !word.empty() && is_letter(word[0]) && mark != std::string_view::npos &&
         mark + 1 < word.size() &&
         std::all_of(word.begin() + static_cast<std::ptrdiff_t>(mark) + 1, word.end(), is_digit);
}

std::string guid_name(const IbNode& node) {
  return fmt::format("{:016x}", node.system_guid != 0 ? node.system_guid : node.guid);
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto run = [](std::string_view text, size_t* at) {
        while (*at < text.size() && text[*at] == '0') ++*at;
        const size_t begin = *at;
        while (*at < text.size() && is_digit(text[*at])) ++*at;
        return text.substr(begin, *at - begin);
      };
      const std::string_view x = run(a, &i);
      const std::string_view y = run(b, &j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    i++;
    j++;
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // "h01" and "h1"
}

std::vector<IbHost> ib_hosts(const IbSubnet& subnet) {
  struct Said {
    std::string host, device;
    int node;
  };
  std::vector<Said> said;
  std::map<std::pair<std::string, std::string>, size_t> alike;
  for (size_t n = 0; n < subnet.nodes.size(); n++) {
    const IbNode& node = subnet.nodes[n];
    if (node.kind != IbKind::adapter ||
        node.description.find("Aggregation Node") != std::string::npos)
      continue;
    std::vector<std::string> words = words_of(clean(node.description));
    if (words.empty() || (words.size() > 2 && !is_device(words[1]))) words = {guid_name(node)};
    if (words.size() == 1) words.emplace_back();
    alike[{words[0], words[1]}]++;
    said.push_back({words[0], words[1], static_cast<int>(n)});
  }
  std::map<std::string, IbHost> by_name;
  for (Said& one : said) {
    const size_t others = alike.at({one.host, one.device});
    if (others > (one.device.empty() ? kMostAdapters : 1)) {
      one.host = guid_name(subnet.nodes[index(one.node)]);
      one.device.clear();
    }
    IbHost& host = by_name[one.host];
    host.name = one.host;
    host.adapters.emplace_back(one.device, one.node);
  }
  std::vector<IbHost> hosts;
  for (auto& [name, host] : by_name) {
    const auto guid = [&](int node) { return subnet.nodes[index(node)].guid; };
    std::sort(host.adapters.begin(), host.adapters.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return natural_less(a.first, b.first);
      return guid(a.second) < guid(b.second);
    });
    for (size_t i = 0; i < host.adapters.size(); i++)
      if (host.adapters[i].first.empty()) host.adapters[i].first = fmt::format("hca{}", i);
    hosts.push_back(std::move(host));
  }
  std::sort(hosts.begin(), hosts.end(),
            [](const IbHost& a, const IbHost& b) { return natural_less(a.name, b.name); });
  return hosts;
}

std::vector<std::string> ib_switch_names(const IbSubnet& subnet, const std::vector<int>& nodes) {
  std::vector<std::string> brief;
  std::vector<std::string> whole;
  std::map<std::string, size_t> alike;
  for (const int n : nodes) {
    whole.push_back(clean(subnet.nodes[index(n)].description));
    const size_t semicolon = whole.back().find(';');
    const size_t colon = whole.back().rfind(':');
    const bool managed =
        semicolon != std::string::npos && colon != std::string::npos && colon > semicolon + 1;
    brief.push_back(managed ? whole.back().substr(semicolon + 1, colon - semicolon - 1)
                            : whole.back());
    alike[brief.back()]++;
    if (whole.back() != brief.back()) alike[whole.back()]++;
  }
  for (size_t i = 0; i < nodes.size(); i++) {
    const IbNode& node = subnet.nodes[index(nodes[i])];
    if (!brief[i].empty() && alike.at(brief[i]) == 1) continue;
    if (!whole[i].empty() && alike.at(whole[i]) == 1)
      brief[i] = whole[i];
    else
      brief[i] = fmt::format("{}@{:016x}", brief[i], node.guid);
  }
  return brief;
}

}  // namespace sennit
