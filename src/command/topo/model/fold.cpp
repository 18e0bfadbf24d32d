// fold.cpp: see command/topo/model/fold.hpp.
#include "command/topo/model/fold.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

namespace sennit::topo {
namespace {

// Measured rates of a tier -> the median of those within 5% of the least of their cluster.
class Rounding {
 public:
  explicit Rounding(const Item& root) {
    std::map<std::string, std::vector<uint64_t>> rates;
    collect(root, &rates);
    for (auto& [tier, all] : rates) {
      std::sort(all.begin(), all.end());
      for (size_t begin = 0; begin < all.size();) {
        size_t end = begin;
        while (end < all.size() &&
               static_cast<double>(all[end]) <= 1.05 * static_cast<double>(all[begin]))
          end++;
        for (size_t i = begin; i < end; i++)
          rounded_[{tier, all[i]}] = all[begin + (end - begin) / 2];
        begin = end;
      }
    }
  }
  uint64_t of(const std::string& tier, const Capacity& capacity) const {
    if (capacity.provenance != Provenance::measured) return capacity.bytes_per_s;
    return rounded_.at({tier, capacity.bytes_per_s});
  }

 private:
  static void collect(const Item& item, std::map<std::string, std::vector<uint64_t>>* rates) {
    for (const Capacity* figure : {&item.egress, &item.ingress})
      if (figure->provenance == Provenance::measured)
        (*rates)[item.tier].push_back(figure->bytes_per_s);
    for (const Item& child : item.children) collect(child, rates);
  }
  std::map<std::pair<std::string, uint64_t>, uint64_t> rounded_;
};

class Folder {
 public:
  Folder(const Model& model, const FoldOptions& options)
      : model_(model), options_(options), rounding_(model.root) {
    sign(model.root);
  }

  Fold run() {
    Fold whole = build(model_.root, 0);
    for (int depth = 1; options_.unfolded_columns > 0 && depth < 64; depth++) {
      unfolded_depth_ = depth;
      Fold wider = build(model_.root, 0);
      if (leaves(wider) > options_.unfolded_columns) break;
      whole = std::move(wider);
    }
    return whole;
  }

 private:
  int sign(const Item& item) {
    std::vector<int> children;
    for (const Item& child : item.children) children.push_back(sign(child));
    std::sort(children.begin(), children.end());
    std::string text = fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(item.kind), item.tier,
        rounding_.of(item.tier, item.egress), rounding_.of(item.tier, item.ingress),
        name(item.egress.provenance), name(item.ingress.provenance), item.origin, item.cables,
        item.planes, item.latency_ns, item.latency_assumed, name(item.wire));
    for (const int s : item.suspects)
      text += fmt::format("!{} {}", model_.suspects[static_cast<size_t>(s)].kind,
                          model_.suspects[static_cast<size_t>(s)].what);
    for (const int child : children) text += fmt::format(",{}", child);
    return signature_[&item] =
               known_.emplace(std::move(text), static_cast<int>(known_.size())).first->second;
  }

  static int leaves(const Fold& fold) {
    int sum = 0;
    for (const Fold& child : fold.children) sum += leaves(child);
    return std::max(1, sum);
  }

  Fold build(const Item& item, int depth) const {
    Fold whole;
    whole.first = &item;
    whole.names = {item.name};
    whole.about_egress_bytes_per_s = rounding_.of(item.tier, item.egress);
    whole.about_ingress_bytes_per_s = rounding_.of(item.tier, item.ingress);
    if (item.kind == ItemKind::host && !options_.insides) return whole;
    std::vector<std::vector<const Item*>> classes;
    std::unordered_map<int, size_t> class_of;
    for (const Item& child : item.children) {
      const int key =
          depth < unfolded_depth_ ? -1 - static_cast<int>(classes.size()) : signature_.at(&child);
      const auto [entry, added] = class_of.emplace(key, classes.size());
      if (added) classes.emplace_back();
      classes[entry->second].push_back(&child);
    }
    const std::vector<bool> shown = pick(classes);
    std::vector<const Item*> rest;
    for (size_t c = 0; c < classes.size(); c++) {
      if (!shown[c]) {
        rest.insert(rest.end(), classes[c].begin(), classes[c].end());
        continue;
      }
      Fold child = build(*classes[c][0], depth + 1);
      child.count = static_cast<int>(classes[c].size());
      child.names.clear();
      for (const Item* member : classes[c]) child.names.push_back(member->name);
      whole.children.push_back(std::move(child));
    }
    if (!rest.empty()) whole.children.push_back(rest_of(rest));
    return whole;
  }

  // Suspects first, then the largest classes; shown in the order of the tree.
  std::vector<bool> pick(const std::vector<std::vector<const Item*>>& classes) const {
    const size_t most = static_cast<size_t>(std::max(1, options_.most_classes));
    std::vector<bool> shown(classes.size(), classes.size() <= most);
    if (classes.size() <= most) return shown;
    std::vector<size_t> order(classes.size());
    for (size_t c = 0; c < order.size(); c++) order[c] = c;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const bool suspect_a = !classes[a][0]->suspects.empty(),
                 suspect_b = !classes[b][0]->suspects.empty();
      return suspect_a != suspect_b ? suspect_a : classes[a].size() > classes[b].size();
    });
    for (size_t i = 0; i < most; i++) shown[order[i]] = true;
    return shown;
  }

  static Fold rest_of(const std::vector<const Item*>& items) {
    Fold rest;
    rest.rest = true;
    rest.first = items[0];
    rest.count = static_cast<int>(items.size());
    rest.least = rest.most = items[0]->egress;
    for (const Item* item : items) {
      rest.names.push_back(item->name);
      if (item->egress.bytes_per_s < rest.least.bytes_per_s) rest.least = item->egress;
      if (item->egress.bytes_per_s > rest.most.bytes_per_s) rest.most = item->egress;
    }
    return rest;
  }

  const Model& model_;
  const FoldOptions& options_;
  Rounding rounding_;
  std::unordered_map<std::string, int> known_;
  std::unordered_map<const Item*, int> signature_;
  int unfolded_depth_ = 0;
};

// "node07-ib" -> "node", "07", "-ib"; no digits: all in the first.
struct NameParts {
  std::string before, number, after;
};
NameParts split(const std::string& name) {
  const char* const digits = "0123456789";
  const size_t last = name.find_last_of(digits);
  if (last == name.npos) return {name, "", ""};
  const size_t before = name.find_last_not_of(digits, last);
  const size_t first = before == name.npos ? 0 : before + 1;
  return {name.substr(0, first), name.substr(first, last + 1 - first), name.substr(last + 1)};
}

}  // namespace

Fold fold(const Model& model, const FoldOptions& options) { return Folder(model, options).run(); }

std::string fold_names(const std::vector<std::string>& names) {
  struct Numbered {
    NameParts parts;
    std::vector<std::pair<std::string, std::string>> ranges;
    uint64_t next = 0;
  };
  std::vector<Numbered> runs;
  std::map<std::tuple<std::string, std::string, size_t>, size_t> run_of;
  for (const std::string& name : names) {
    NameParts parts = split(name);
    uint64_t number = 0;
    const char* const end = parts.number.data() + parts.number.size();
    const bool numbered = !parts.number.empty() && parts.number.size() <= 18 &&
                          std::from_chars(parts.number.data(), end, number).ptr == end;
    if (!numbered) parts = {name, "", ""};
    // Numbers with leading zeros keep their width; others run on from 9 to 10.
    const size_t width =
        numbered && parts.number[0] == '0' && parts.number.size() > 1 ? parts.number.size() : 0;
    auto entry = run_of.find({parts.before, parts.after, width});
    if (entry == run_of.end() && numbered && width == 0)  // 10 follows 09
      entry = run_of.find({parts.before, parts.after, parts.number.size()});
    if (entry == run_of.end()) {
      entry = run_of.emplace(std::tuple(parts.before, parts.after, width), runs.size()).first;
      runs.push_back({parts, {}, 0});
    }
    Numbered& run = runs[entry->second];
    if (!run.ranges.empty() && numbered && number == run.next)
      run.ranges.back().second = parts.number;
    else
      run.ranges.emplace_back(parts.number, parts.number);
    run.next = number + 1;
  }
  std::string text;
  for (const Numbered& run : runs) {
    if (!text.empty()) text += ",";
    if (run.ranges.size() == 1 && run.ranges[0].first == run.ranges[0].second) {
      text += run.parts.before + run.ranges[0].first + run.parts.after;
      continue;
    }
    std::string ranges;
    for (const auto& [first, last] : run.ranges)
      ranges +=
          (ranges.empty() ? "" : ",") + (first == last ? first : fmt::format("{}-{}", first, last));
    text += fmt::format("{}[{}]{}", run.parts.before, ranges, run.parts.after);
  }
  return text;
}

}  // namespace sennit::topo
