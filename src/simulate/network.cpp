// network.cpp: see simulate/network.hpp.
#include "simulate/network.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "cost/rates.hpp"

namespace sennit::simulation {
namespace {

// The last bits are dropped, so that flows in the same situation get the very same rate and end
// together.
double rounded(double rate) {
  constexpr uint64_t kDropped = (uint64_t{1} << 14) - 1;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(rate) & ~kDropped);
}

// What one flow weighs where a rank stands for all of its kind: a root sends to one of each seven
// at a time, which is a seventh of a flow into each.
constexpr uint64_t kUnitOfKinds = uint64_t{1} << 32;

// Time for `bytes`, rounded up but for what is noise; kNever where no number holds it.
uint64_t duration_ns(double bytes, double rate) {
  constexpr double kTooLongNs = 0x1p64;
  const double ns = std::ceil(std::max(0.0, bytes / rate * 1e9 - 1e-3));
  return ns < kTooLongNs ? static_cast<uint64_t>(ns) : kNever;
}

}  // namespace

// The same for a flow whenever it is asked, and any between flows.
uint64_t FlowNetwork::chance_of(const Flow& flow) {
  return mix(std::bit_cast<uint64_t>(flow.ends_at), flow.connection);
}

FlowNetwork::FlowNetwork(const TierTree& tree, const SimulateOptions& options,
                         const Symmetry& symmetry)
    : first_link_(2 * symmetry.groups_of_class.size() + 1),
      tree_(tree),
      symmetry_(symmetry),
      unit_(symmetry.by_kind ? kUnitOfKinds : 1),
      tolerance_(options.tolerance),
      grain_ns_(options.grain_ns),
      cable_hash_(options.cable_hash) {
  for (size_t g = 0; g < tree.groups.size(); g++)  // how many, and then where
    for (const size_t side : {1u, 2u})
      first_link_[2 * symmetry.class_of_group[g] + side] =
          options.cable_hash != 0 ? tree.groups[g].cables : 1;
  std::partial_sum(first_link_.begin(), first_link_.end(), first_link_.begin());
  links_.resize(first_link_.back());
  // What can come out of a group at most is its own capacity, or what its children's let through.
  std::vector<uint64_t> through(2 * tree.groups.size(), 0);
  const GroupRates rates = planning_rates(tree, options.cost);
  for (size_t g = tree.groups.size(); g-- > 1;) {  // children before parents
    const Group& group = tree.groups[g];
    for (const size_t side : {0u, 1u}) {
      const size_t at = 2 * symmetry.class_of_group[g] + side;
      const uint32_t cables = first_link_[at + 1] - first_link_[at];
      const uint64_t capacity = (side == 0 ? rates.egress : rates.ingress)[g];
      uint64_t inside = 0;
      for (int c = group.first_child; c < group.first_child + group.children; c++)
        inside = saturated(Wide{inside} + through[2 * index(c) + side]);
      const bool can_fill = group.children == 0 || inside > capacity || cables > 1;
      for (uint32_t l = first_link_[at]; l < first_link_[at + 1]; l++) {
        links_[l].capacity = std::max<uint64_t>(1, capacity / cables);
        links_[l].can_fill = can_fill;
      }
      through[2 * g + side] = inside > capacity || group.children == 0 ? capacity : inside;
    }
  }
  for (const SlowCable& slow : options.slow_cables) {
    const size_t at = 2 * symmetry.class_of_group[index(slow.group)] + (slow.egress ? 0 : 1);
    if (first_link_[at] + slow.cable >= first_link_[at + 1]) continue;
    Link& link = links_[first_link_[at] + slow.cable];
    link.capacity =
        static_cast<uint64_t>(std::max(1.0, static_cast<double>(link.capacity) / slow.factor));
  }
  for (Link& link : links_) link.filled = static_cast<unsigned __int128>(link.capacity) * unit_;
}

// Of a boundary of several cables the one that the messages between two positions take.
uint32_t FlowNetwork::link_of(uint32_t group_class, uint32_t side, int from, int to) const {
  const uint32_t first = first_link_[2 * group_class + side];
  const uint32_t cables = first_link_[2 * group_class + side + 1] - first;
  if (cables == 1) return first;
  const uint64_t flow = mix(static_cast<uint64_t>(from), static_cast<uint64_t>(to));
  return first + static_cast<uint32_t>(mix(mix(cable_hash_, flow), first) % cables);
}

uint32_t FlowNetwork::connect(int from, int to, uint32_t ranks, Part part) {
  std::vector<Hop> hops;
  const auto climb = [&](int position, int other, uint32_t side) {
    for (int group = tree_.leaf_of_position[index(position)];;) {
      const Group& g = tree_.groups[index(group)];
      if (g.parent < 0 || (other >= g.first && other < g.first + g.size)) return;
      const uint32_t kind = symmetry_.class_of_group[index(group)];
      const uint64_t groups = symmetry_.groups_of_class[kind];
      SENNIT_CHECK(symmetry_.by_kind || ranks % groups == 0);
      hops.push_back({0, link_of(kind, side, from, to), 0, unit_ * ranks / groups});
      group = g.parent;
    }
  };
  if (part != Part::down) climb(from, to, 0);
  if (part != Part::up) climb(to, from, 1);
  path_of_connection_.push_back(path_over(hops));
  return static_cast<uint32_t>(path_of_connection_.size() - 1);
}

// The path over these links, a new one where there is none.
uint32_t FlowNetwork::path_over(std::span<Hop> hops) {
  const auto tying = std::stable_partition(
      hops.begin(), hops.end(), [this](const Hop& hop) { return links_[hop.link].can_fill; });
  uint64_t hash = hops.size();
  for (const Hop& hop : hops) hash = mix(mix(hash, hop.link), hop.weight);
  const auto number = static_cast<uint32_t>(paths_.size());
  const auto [found, added] = path_of_hops_.try_emplace(hash, number);
  if (!added &&
      std::ranges::equal(hops, hops_of(paths_[found->second]), [](const Hop& a, const Hop& b) {
        return a.link == b.link && a.weight == b.weight;
      }))
    return found->second;
  Path path;
  path.first_hop = static_cast<uint32_t>(hops_.size());
  path.hops = static_cast<uint32_t>(hops.size());
  path.tying = static_cast<uint32_t>(tying - hops.begin());
  path.limit = kNever;
  for (const Hop& hop : hops) {
    hops_.push_back({number, hop.link, 0, hop.weight});
    if (links_[hop.link].capacity >= path.limit) continue;
    path.limit = links_[hop.link].capacity;
    path.narrowest = hop.link;
  }
  paths_.push_back(std::move(path));
  return number;
}

// What ties flows together before or after a change has to be looked at.
void FlowNetwork::touch(Link& link, uint32_t number, bool was_scarce) {
  if (was_scarce || link.scarce()) changed_links_.push_back(number);
}

void FlowNetwork::start(uint32_t connection, uint64_t bytes, uint64_t now_ns) {
  const uint32_t number = path_of_connection_[connection];
  Path& path = paths_[number];
  SENNIT_CHECK(bytes > 0);
  const bool first = path.flows.empty();
  if (first) {
    path.carried = path.rate = 0;
    path.at_ns = now_ns;
    path.end_ns = kNever;
    path.bottleneck = kNone;
  }
  carry_on(path, now_ns);
  path.flows.push_back({path.carried + static_cast<double>(bytes), connection});
  std::push_heap(path.flows.begin(), path.flows.end());
  for (Hop& hop : hops_of(path)) {
    Link& link = links_[hop.link];
    link.bytes += static_cast<unsigned __int128>(bytes) * hop.weight;
    if (link.flows++ == 0) link.busy_since_ns = now_ns;
    if (!link.can_fill) continue;
    const bool was_scarce = link.scarce();
    if (first) {
      hop.place = static_cast<uint32_t>(link.hops.size());
      link.hops.push_back(static_cast<uint32_t>(&hop - hops_.data()));
    }
    link.wanted += static_cast<unsigned __int128>(path.limit) * hop.weight;
    link.used += path.rate * hop.weight;
    touch(link, hop.link, was_scarce);
  }
  if (first) {
    heap_.push_back(number);
    heap_put(heap_.size() - 1, number);
  } else {
    set_end(number);
  }
  changed_paths_.push_back(number);
}

void FlowNetwork::count(uint32_t connection, uint64_t bytes) {
  for (const Hop& hop : hops_of(paths_[path_of_connection_[connection]]))
    links_[hop.link].bytes += static_cast<unsigned __int128>(bytes) * hop.weight;
}

uint64_t FlowNetwork::least_time_ns() const {
  uint64_t longest = 0;
  for (const Link& link : links_)
    if (link.bytes > 0)
      longest = std::max(
          longest, duration_ns(static_cast<double>(link.bytes), static_cast<double>(link.filled)));
  return longest;
}

uint32_t FlowNetwork::end_next(uint64_t now_ns) {
  const uint32_t number = heap_.front();
  Path& path = paths_[number];
  carry_on(path, now_ns);
  std::pop_heap(path.flows.begin(), path.flows.end());
  const uint32_t ended = path.flows.back().connection;
  path.flows.pop_back();
  for (Hop& hop : hops_of(path)) {
    Link& link = links_[hop.link];
    if (--link.flows == 0) link.busy_ns += now_ns - link.busy_since_ns;
    if (!link.can_fill) continue;
    const bool was_scarce = link.scarce();
    if (path.flows.empty()) {
      const uint32_t last = link.hops.back();
      link.hops[hop.place] = last;
      hops_[last].place = hop.place;
      link.hops.pop_back();
    }
    link.wanted -= static_cast<unsigned __int128>(path.limit) * hop.weight;
    link.used = link.hops.empty() ? 0 : link.used - path.rate * hop.weight;
    touch(link, hop.link, was_scarce);
  }
  if (!path.flows.empty()) {
    set_end(number);
    return ended;
  }
  path.heap_place = kNotInHeap;
  const uint32_t moved = heap_.back();
  heap_.pop_back();
  if (moved != number) {
    heap_put(0, moved);
    heap_down(0);
  }
  return ended;
}

void FlowNetwork::settle(uint64_t now_ns) {
  if (changed_links_.empty() && changed_paths_.empty()) return;
  settling_++;
  area_links_.clear();
  area_.clear();
  if (grain_ns_ > 0) {
    changed_links_.clear();
    changed_paths_.clear();
    fill_all();
    return commit(now_ns);
  }
  for (const uint32_t link : changed_links_) take_in(link);
  for (const uint32_t path : changed_paths_) take_in_path(path);
  changed_links_.clear();
  changed_paths_.clear();
  do fill();
  while (widen());
  commit(now_ns);
}

void FlowNetwork::take_in(uint32_t number) {
  Link& link = links_[number];
  if (link.seen == settling_) return;
  link.seen = settling_;
  area_links_.push_back(number);
  for (const uint32_t h : link.hops) take_in_path(hops_[h].path);
}

void FlowNetwork::take_in_path(uint32_t number) {
  Path& path = paths_[number];
  if (path.seen == settling_ || path.heap_place == kNotInHeap) return;
  path.seen = settling_;
  area_.push_back(number);
}

// The most that a flow can get from links outside the area as they are, and from its own narrowest
// link.
void FlowNetwork::cap(Path& path) {
  path.cap = kUnlimited;
  path.capped_by = kNone;
  if (!links_[path.narrowest].scarce()) path.cap = static_cast<double>(path.limit);
  for (const Hop& hop : tying_hops_of(path)) {
    const Link& link = links_[hop.link];
    if (link.seen == settling_ || !link.scarce()) continue;
    const double spare = std::max(0.0, static_cast<double>(link.filled) - link.used);
    const double offer =
        path.rate + (path.bottleneck == hop.link ? 0 : spare / (hop.weight * path.many()));
    if (offer < path.cap) {
      path.cap = offer;
      path.capped_by = hop.link;
    }
  }
}

// Fills the area's links.
void FlowNetwork::fill() {
  round_++;
  stops_.clear();
  caps_.clear();
  for (const uint32_t number : area_links_) {
    Link& link = links_[number];
    link.left = static_cast<double>(link.filled);
    link.open = 0;
    for (const uint32_t h : link.hops) link.open += hops_[h].weight * paths_[hops_[h].path].many();
    link.next_level = kUnlimited;
    if (link.scarce()) stops_.push_back({link.left / link.open, number});
  }
  for (const uint32_t number : area_) {
    cap(paths_[number]);
    if (paths_[number].cap < kUnlimited) caps_.push_back({paths_[number].cap, number});
  }
  run_stops();
}

// All at once, which is less work where much changes at a time. A path's narrowest link is among
// those that its flows alone can fill, so that no path needs a limit of its own.
void FlowNetwork::fill_all() {
  round_++;
  stops_.clear();
  caps_.clear();
  area_.assign(heap_.begin(), heap_.end());
  for (Link& link : links_) {
    if (link.hops.empty()) continue;
    link.left = static_cast<double>(link.filled);
    link.open = 0;
    for (const uint32_t h : link.hops) link.open += hops_[h].weight * paths_[hops_[h].path].many();
    link.next_level = kUnlimited;
    const auto number = static_cast<uint32_t>(&link - links_.data());
    area_links_.push_back(number);
    if (link.wanted >= link.filled) stops_.push_back({link.left / link.open, number});
  }
  run_stops();
}

// What a flow can get at most is known before, and put in order once. Where a link is full moves
// with what its flows get elsewhere.
void FlowNetwork::run_stops() {
  const std::greater<> last;
  std::sort(caps_.begin(), caps_.end());
  std::make_heap(stops_.begin(), stops_.end(), last);
  for (auto cap = caps_.begin(); cap != caps_.end() || !stops_.empty();) {
    if (cap != caps_.end() && (stops_.empty() || cap->rate < stops_.front().rate)) {
      const Path& path = paths_[cap->number];
      if (path.fixed != round_) fix(cap->number, cap->rate, path.capped_by);
      cap++;
      continue;
    }
    std::pop_heap(stops_.begin(), stops_.end(), last);
    const auto [rate, number] = stops_.back();
    stops_.pop_back();
    Link& link = links_[number];
    if (link.open == 0) continue;
    // Flows that were stopped elsewhere left something to the others since.
    const double share = link.left / link.open;
    if (share > rate * (1 + 1e-12)) {
      stops_.push_back({share, number});
      std::push_heap(stops_.begin(), stops_.end(), last);
      continue;
    }
    link.next_level = rate;
    for (const uint32_t h : link.hops)
      if (paths_[hops_[h].path].fixed != round_) fix(hops_[h].path, rate, number);
  }
}

void FlowNetwork::fix(uint32_t number, double rate, uint32_t by) {
  Path& path = paths_[number];
  path.fixed = round_;
  path.next_rate = rounded(rate);
  path.next_bottleneck = by;
  for (const Hop& hop : tying_hops_of(path)) {
    Link& link = links_[hop.link];
    link.left -= path.next_rate * hop.weight * path.many();
    link.open -= hop.weight * path.many();
  }
}

// Takes in the links around that cannot stay as they are.
bool FlowNetwork::widen() {
  around_.clear();
  more_.clear();
  for (const uint32_t number : area_) {
    const Path& path = paths_[number];
    const uint32_t by = path.next_bottleneck;
    if (by != kNone && by != path.bottleneck && links_[by].seen != settling_ &&
        path.next_rate < links_[by].level * (1 - tolerance_))
      more_.push_back(by);
    const double change = path.next_rate - path.rate;
    if (change == 0) continue;
    for (const Hop& hop : tying_hops_of(path)) {
      Link& link = links_[hop.link];
      if (link.seen == settling_ || !link.scarce()) continue;
      if (link.changed != round_) {
        link.changed = round_;
        link.change = 0;
        around_.push_back(hop.link);
      }
      link.change += change * hop.weight * path.many();
    }
  }
  for (const uint32_t number : around_) {
    const Link& link = links_[number];
    const double used = link.used + link.change, capacity = static_cast<double>(link.filled);
    if (used > capacity * (1 + 1e-9) ||
        (used < capacity * (1 - tolerance_) && link.level < kUnlimited))
      more_.push_back(number);
  }
  for (const uint32_t link : more_) take_in(link);
  return !more_.empty();
}

void FlowNetwork::commit(uint64_t now_ns) {
  for (const uint32_t number : area_) {
    Path& path = paths_[number];
    path.bottleneck = path.next_bottleneck;
    const double change = path.next_rate - path.rate;
    if (change == 0) continue;
    for (const Hop& hop : tying_hops_of(path))
      links_[hop.link].used += change * hop.weight * path.many();
    carry_on(path, now_ns);
    path.rate = path.next_rate;
    set_end(number);
  }
  for (const uint32_t number : area_links_) {
    Link& link = links_[number];
    link.level = link.next_level;
    link.used = static_cast<double>(link.filled) - link.left;
  }
}

void FlowNetwork::carry_on(Path& path, uint64_t now_ns) {
  path.carried += path.rate * 1e-9 * static_cast<double>(now_ns - path.at_ns);
  path.at_ns = now_ns;
}

// After a change of rate, or of the flow that ends first. The path has carried on to now.
void FlowNetwork::set_end(uint32_t number) {
  Path& path = paths_[number];
  if (path.rate > 0) {
    const Flow& flow = path.flows.front();
    const uint64_t end_ns =
        saturated(Wide{path.at_ns} + duration_ns(flow.ends_at - path.carried, path.rate));
    path.end_ns = std::max(path.at_ns, on_grain(end_ns, grain_ns_, chance_of(flow)));
  }
  heap_up(path.heap_place);
  heap_down(path.heap_place);
}

bool FlowNetwork::earlier(uint32_t a, uint32_t b) const {
  const uint64_t end_a = paths_[a].end_ns, end_b = paths_[b].end_ns;
  return end_a != end_b ? end_a < end_b : a < b;
}

void FlowNetwork::heap_put(size_t place, uint32_t path) {
  heap_[place] = path;
  paths_[path].heap_place = static_cast<uint32_t>(place);
}

void FlowNetwork::heap_up(size_t place) {
  const uint32_t moving = heap_[place];
  while (place > 0 && earlier(moving, heap_[(place - 1) / 2])) {
    heap_put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  heap_put(place, moving);
}

void FlowNetwork::heap_down(size_t place) {
  const uint32_t moving = heap_[place];
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && earlier(heap_[child + 1], heap_[child])) child++;
    if (!earlier(heap_[child], moving)) break;
    heap_put(place, heap_[child]);
    place = child;
  }
  heap_put(place, moving);
}

std::vector<GroupLoad> FlowNetwork::loads() const {
  std::vector<GroupLoad> loads;
  for (const uint32_t kind : symmetry_.class_of_group) {
    const auto sum = [&](uint32_t side) {
      Link all;
      for (uint32_t l = first_link_[2 * kind + side]; l < first_link_[2 * kind + side + 1]; l++) {
        all.bytes += links_[l].bytes;
        all.busy_ns = std::max(all.busy_ns, links_[l].busy_ns);
      }
      return all;
    };
    const Link out = sum(0), in = sum(1);
    loads.push_back({static_cast<uint64_t>(out.bytes / unit_),
                     static_cast<uint64_t>(in.bytes / unit_), out.busy_ns, in.busy_ns});
  }
  return loads;
}

}  // namespace sennit::simulation
