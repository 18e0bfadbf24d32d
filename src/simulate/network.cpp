// network.cpp: see simulate/network.hpp.
#include "simulate/network.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

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

// Time for `bytes`, rounded up but for what is noise.
uint64_t duration_ns(double bytes, double rate) {
  return static_cast<uint64_t>(std::ceil(std::max(0.0, bytes / rate * 1e9 - 1e-3)));
}

}  // namespace

FlowNetwork::FlowNetwork(const TierTree& tree, const SimulateOptions& options,
                         const Symmetry& symmetry)
    : links_(2 * symmetry.groups_of_class.size()),
      tree_(tree),
      symmetry_(symmetry),
      tolerance_(options.tolerance) {
  // What can come out of a group at most is its own capacity, or what its children's let through.
  std::vector<uint64_t> through(2 * tree.groups.size(), 0);
  for (size_t g = tree.groups.size(); g-- > 1;) {  // children before parents
    const Group& group = tree.groups[g];
    for (const size_t side : {0u, 1u}) {
      Link& link = links_[2 * symmetry.class_of_group[g] + side];
      link.capacity = boundary_rate(tree, static_cast<int>(g),
                                    side == 0 ? group.egress : group.ingress, options.cost);
      uint64_t inside = 0;
      for (int c = group.first_child; c < group.first_child + group.children; c++)
        inside += through[2 * index(c) + side];
      link.can_fill = group.children == 0 || inside > link.capacity;
      through[2 * g + side] = link.can_fill ? link.capacity : inside;
    }
  }
}

uint32_t FlowNetwork::connect(int from, int to, uint32_t ranks) {
  const auto number = static_cast<uint32_t>(connections_.size());
  Connection connection;
  connection.first_hop = static_cast<uint32_t>(hops_.size());
  connection.limit = kNever;
  const auto climb = [&](int position, int other, size_t side) {
    for (int group = tree_.leaf_of_position[index(position)];;) {
      const Group& g = tree_.groups[index(group)];
      if (g.parent < 0 || (other >= g.first && other < g.first + g.size)) return;
      const uint32_t kind = symmetry_.class_of_group[index(group)];
      const auto link = static_cast<uint32_t>(2 * kind + side);
      SENNIT_CHECK(ranks % symmetry_.groups_of_class[kind] == 0 ||
                   symmetry_.groups_of_class[kind] == 1);
      hops_.push_back({number, link, ranks / symmetry_.groups_of_class[kind], 0});
      if (links_[link].capacity < connection.limit) {
        connection.limit = links_[link].capacity;
        connection.narrowest = link;
      }
      group = g.parent;
    }
  };
  climb(from, to, 0);
  climb(to, from, 1);
  connection.hops = static_cast<uint32_t>(hops_.size()) - connection.first_hop;
  connections_.push_back(connection);
  return number;
}

// What ties flows together before or after a change has to be looked at.
void FlowNetwork::touch(Link& link, uint32_t number, bool was_scarce) {
  if (was_scarce || link.scarce()) changed_links_.push_back(number);
}

void FlowNetwork::start(uint32_t number, uint64_t bytes, uint64_t now_ns) {
  Connection& connection = connections_[number];
  SENNIT_CHECK(connection.heap_place == kNotInHeap && bytes > 0);
  connection.left = static_cast<double>(bytes);
  connection.rate = 0;
  connection.at_ns = now_ns;
  connection.end_ns = kNever;
  connection.bottleneck = kNone;
  for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++) {
    Link& link = links_[hops_[h].link];
    link.bytes += bytes * hops_[h].weight;
    if (link.flows++ == 0) link.busy_since_ns = now_ns;
    if (!link.can_fill) continue;
    const bool was_scarce = link.scarce();
    hops_[h].place = static_cast<uint32_t>(link.hops.size());
    link.hops.push_back(h);
    link.wanted += connection.limit * hops_[h].weight;
    touch(link, hops_[h].link, was_scarce);
  }
  heap_.push_back(number);
  heap_put(heap_.size() - 1, number);
  changed_connections_.push_back(number);
}

void FlowNetwork::count(uint32_t number, uint64_t bytes) {
  const Connection& connection = connections_[number];
  for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++)
    links_[hops_[h].link].bytes += bytes * hops_[h].weight;
}

uint64_t FlowNetwork::least_time_ns() const {
  uint64_t longest = 0;
  for (const Link& link : links_)
    if (link.bytes > 0)
      longest = std::max(longest, duration_ns(static_cast<double>(link.bytes),
                                              static_cast<double>(link.capacity)));
  return longest;
}

uint32_t FlowNetwork::end_next(uint64_t now_ns) {
  const uint32_t number = heap_.front();
  Connection& connection = connections_[number];
  for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++) {
    Link& link = links_[hops_[h].link];
    if (--link.flows == 0) link.busy_ns += now_ns - link.busy_since_ns;
    if (!link.can_fill) continue;
    const bool was_scarce = link.scarce();
    const uint32_t last = link.hops.back();
    link.hops[hops_[h].place] = last;
    hops_[last].place = hops_[h].place;
    link.hops.pop_back();
    link.wanted -= connection.limit * hops_[h].weight;
    link.used = link.hops.empty() ? 0 : link.used - connection.rate * hops_[h].weight;
    touch(link, hops_[h].link, was_scarce);
  }
  connection.heap_place = kNotInHeap;
  const uint32_t moved = heap_.back();
  heap_.pop_back();
  if (moved != number) {
    heap_put(0, moved);
    heap_down(0);
  }
  return number;
}

void FlowNetwork::settle(uint64_t now_ns) {
  if (changed_links_.empty() && changed_connections_.empty()) return;
  settling_++;
  area_links_.clear();
  area_.clear();
  for (const uint32_t link : changed_links_) take_in(link);
  for (const uint32_t connection : changed_connections_) take_in_connection(connection);
  changed_links_.clear();
  changed_connections_.clear();
  do fill();
  while (widen());
  commit(now_ns);
}

void FlowNetwork::take_in(uint32_t number) {
  Link& link = links_[number];
  if (link.seen == settling_) return;
  link.seen = settling_;
  area_links_.push_back(number);
  for (const uint32_t h : link.hops) take_in_connection(hops_[h].connection);
}

void FlowNetwork::take_in_connection(uint32_t number) {
  Connection& connection = connections_[number];
  if (connection.seen == settling_ || connection.heap_place == kNotInHeap) return;
  connection.seen = settling_;
  area_.push_back(number);
}

// The most that a flow can get from links outside the area as they are, and from its own narrowest
// link.
void FlowNetwork::cap(Connection& connection) {
  connection.cap = kUnlimited;
  connection.capped_by = kNone;
  if (!links_[connection.narrowest].scarce())
    connection.cap = static_cast<double>(connection.limit);
  for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++) {
    const Link& link = links_[hops_[h].link];
    if (link.seen == settling_ || !link.scarce()) continue;
    const double spare = std::max(0.0, static_cast<double>(link.capacity) - link.used);
    const double offer =
        connection.rate + (connection.bottleneck == hops_[h].link ? 0 : spare / hops_[h].weight);
    if (offer < connection.cap) {
      connection.cap = offer;
      connection.capped_by = hops_[h].link;
    }
  }
}

// Fills the area's links.
void FlowNetwork::fill() {
  const auto links = static_cast<uint32_t>(links_.size());
  round_++;
  stops_.clear();
  for (const uint32_t number : area_links_) {
    Link& link = links_[number];
    link.left = static_cast<double>(link.capacity);
    link.open = 0;
    for (const uint32_t h : link.hops) link.open += hops_[h].weight;
    link.next_level = kUnlimited;
    if (link.scarce()) stops_.emplace_back(link.left / link.open, number);
  }
  for (const uint32_t number : area_) {
    cap(connections_[number]);
    if (connections_[number].cap < kUnlimited)
      stops_.emplace_back(connections_[number].cap, links + number);
  }
  const std::greater<> last;
  std::make_heap(stops_.begin(), stops_.end(), last);
  while (!stops_.empty()) {
    std::pop_heap(stops_.begin(), stops_.end(), last);
    const auto [rate, number] = stops_.back();
    stops_.pop_back();
    if (number >= links) {
      const Connection& connection = connections_[number - links];
      if (connection.fixed != round_) fix(number - links, rate, connection.capped_by);
      continue;
    }
    Link& link = links_[number];
    if (link.open == 0) continue;
    // Flows that were stopped elsewhere left something to the others since.
    const double share = link.left / link.open;
    if (share > rate * (1 + 1e-12)) {
      stops_.emplace_back(share, number);
      std::push_heap(stops_.begin(), stops_.end(), last);
      continue;
    }
    link.next_level = rate;
    for (const uint32_t h : link.hops)
      if (connections_[hops_[h].connection].fixed != round_) fix(hops_[h].connection, rate, number);
  }
}

void FlowNetwork::fix(uint32_t number, double rate, uint32_t by) {
  Connection& connection = connections_[number];
  connection.fixed = round_;
  connection.next_rate = rounded(rate);
  connection.next_bottleneck = by;
  for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++) {
    Link& link = links_[hops_[h].link];
    link.left -= connection.next_rate * hops_[h].weight;
    link.open -= hops_[h].weight;
  }
}

// Takes in the links around that cannot stay as they are.
bool FlowNetwork::widen() {
  around_.clear();
  more_.clear();
  for (const uint32_t number : area_) {
    const Connection& connection = connections_[number];
    const uint32_t by = connection.next_bottleneck;
    if (by != kNone && by != connection.bottleneck && links_[by].seen != settling_ &&
        connection.next_rate < links_[by].level * (1 - tolerance_))
      more_.push_back(by);
    const double change = connection.next_rate - connection.rate;
    if (change == 0) continue;
    for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++) {
      Link& link = links_[hops_[h].link];
      if (link.seen == settling_ || !link.scarce()) continue;
      if (link.changed != round_) {
        link.changed = round_;
        link.change = 0;
        around_.push_back(hops_[h].link);
      }
      link.change += change * hops_[h].weight;
    }
  }
  for (const uint32_t number : around_) {
    const Link& link = links_[number];
    const double used = link.used + link.change, capacity = static_cast<double>(link.capacity);
    if (used > capacity * (1 + 1e-9) ||
        (used < capacity * (1 - tolerance_) && link.level < kUnlimited))
      more_.push_back(number);
  }
  for (const uint32_t link : more_) take_in(link);
  return !more_.empty();
}

void FlowNetwork::commit(uint64_t now_ns) {
  for (const uint32_t number : area_) {
    Connection& connection = connections_[number];
    connection.bottleneck = connection.next_bottleneck;
    const double change = connection.next_rate - connection.rate;
    if (change == 0) continue;
    for (uint32_t h = connection.first_hop; h < connection.first_hop + connection.hops; h++)
      links_[hops_[h].link].used += change * hops_[h].weight;
    set_rate(number, connection.next_rate, now_ns);
  }
  for (const uint32_t number : area_links_) {
    Link& link = links_[number];
    link.level = link.next_level;
    link.used = static_cast<double>(link.capacity) - link.left;
  }
}

void FlowNetwork::set_rate(uint32_t number, double rate, uint64_t now_ns) {
  Connection& connection = connections_[number];
  connection.left =
      std::max(0.0, connection.left -
                        connection.rate * 1e-9 * static_cast<double>(now_ns - connection.at_ns));
  connection.at_ns = now_ns;
  connection.rate = rate;
  connection.end_ns = now_ns + duration_ns(connection.left, rate);
  heap_up(connection.heap_place);
  heap_down(connection.heap_place);
}

bool FlowNetwork::earlier(uint32_t a, uint32_t b) const {
  const uint64_t end_a = connections_[a].end_ns, end_b = connections_[b].end_ns;
  return end_a != end_b ? end_a < end_b : a < b;
}

void FlowNetwork::heap_put(size_t place, uint32_t connection) {
  heap_[place] = connection;
  connections_[connection].heap_place = static_cast<uint32_t>(place);
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
    const Link &out = links_[2 * kind], &in = links_[2 * kind + 1];
    loads.push_back({out.bytes, in.bytes, out.busy_ns, in.busy_ns});
  }
  return loads;
}

}  // namespace sennit::simulation
