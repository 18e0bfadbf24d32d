// emit.cpp: see collectives/tiered/emit.hpp.
#include "collectives/tiered/emit.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "base/sort_stretches.hpp"

namespace sennit::tiered {
namespace {

// Moves of the same places, and how far a walk over them has come.
struct SamePlaces {
  const Places* places;
  std::vector<const Move*> moves;
  Places::const_iterator next;
};

// By the first move of each.
std::vector<SamePlaces> by_places(const Moves& moves) {
  const auto before = [](const Places* a, const Places* b) { return *a < *b; };
  std::map<const Places*, size_t, decltype(before)> known(before);
  std::vector<SamePlaces> groups;
  for (const Move& m : moves.all()) {
    const auto [like, is_new] = known.try_emplace(&m.places, groups.size());
    if (is_new) groups.push_back({&m.places, {}, m.places.begin()});
    groups[like->second].moves.push_back(&m);
  }
  return groups;
}

// Walks over places upwards and knows which groups have the one it is at. A peer of many ranks may
// move something else with each of them, so only groups that begin or end there are looked at.
class Holders {
 public:
  explicit Holders(std::vector<SamePlaces>* groups) : groups_(*groups) {
    for (size_t g = 0; g < groups_.size(); g++)
      if (!groups_[g].places->empty()) turns_.emplace(groups_[g].places->front().begin, g);
  }

  // Of a place no lower than the last one that was asked for.
  const std::set<size_t>& at(uint64_t place) {
    while (!turns_.empty() && turns_.top().first <= place) {
      const size_t g = turns_.top().second;
      turns_.pop();
      auto& next = groups_[g].next;
      if (holding_.insert(g).second) {
        turns_.emplace(next->end, g);
        continue;
      }
      holding_.erase(g);
      if (++next != groups_[g].places->end()) turns_.emplace(next->begin, g);
    }
    return holding_;
  }

 private:
  using Turn = std::pair<uint64_t, size_t>;  // where a group next begins or ends, and which it is
  std::vector<SamePlaces>& groups_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::set<size_t> holding_;
};

}  // namespace

Emitter::Emitter(const TierTree& tree, const Request& request, int position)
    : tree_(tree),
      request_(request),
      position_(position),
      one_owner_(request.collective == Collective::broadcast ||
                 request.collective == Collective::reduce),
      one_vector_(request.collective == Collective::all_reduce ||
                  request.collective == Collective::barrier),
      builder_(request.in_place) {}

// Broadcast and reduce have only block 0, which the forest knows as the root's.
std::vector<Range> Emitter::ranges(const Places& places) const {
  std::vector<Range> result;
  result.reserve(places.size());
  const uint64_t shift = one_owner_ ? static_cast<uint64_t>(request_.root) * kUnits : 0;
  for (const Interval& p : places) {
    const uint64_t begin = p.begin - shift;
    result.push_back({begin / kUnits, begin % kUnits, begin % kUnits + (p.end - p.begin)});
  }
  return result;
}

bool Emitter::owned(uint64_t place) const {
  if (one_vector_) return true;  // whoever completes it
  return place / kUnits == static_cast<uint64_t>(position_);
}

std::vector<const Move*> Emitter::by_peer(const Moves& moves, bool sending) const {
  const int n = tree_.ranks();
  std::vector<const Move*> result;
  result.reserve(moves.all().size());
  for (const Move& m : moves.all()) result.push_back(&m);
  const auto order = [&](const Move* m) {
    return ((sending ? m->peer - position_ : position_ - m->peer) + n) % n;
  };
  std::sort(result.begin(), result.end(),
            [&](const Move* a, const Move* b) { return order(a) < order(b); });
  return result;
}

void Emitter::copy_all() {
  if (request_.collective == Collective::barrier) return;
  if (request_.in_place && !request_.reduces()) return;
  const std::vector<Range> all{{0, 0, kUnits}};
  const Operand input = builder_.input(all);
  builder_.copy(builder_.output(all), input, request_.reduces());
}

void Emitter::gather(const std::vector<StageMoves>& stages) {
  const int owner = one_owner_ ? request_.root : position_;
  if (owner == position_ && !request_.in_place) {
    const uint64_t begin = own_begin();
    const std::vector<Range> own = ranges(Places{{begin, begin + kUnits}});
    const Operand input = builder_.input(own);
    builder_.copy(builder_.output(own), input);
  }
  for (const StageMoves& stage : stages) {
    receive_results(stage.relay_in);
    send_results(stage.relay_out);
  }
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    receive_results(stage->in);
    send_results(stage->out);
  }
}

void Emitter::scatter(const std::vector<StageMoves>& stages) {
  declare_partials(stages);
  for (const StageMoves& stage : stages) {
    send_partials(stage.in);
    collect(stage.out, stage.child, &stage == &stages.back());
  }
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    collect(stage->relay_out, stage->child, true);
    send_partials(stage->relay_in);
  }
}

void Emitter::all_reduce(const std::vector<StageMoves>& inner,
                         const std::vector<StageMoves>& whole) {
  for (const StageMoves& stage : inner) {
    send_partials(stage.in);
    collect(stage.out, stage.child, whole.empty() && &stage == &inner.back());
  }
  for (const StageMoves& stage : whole) {
    send_partials(stage.out);
    collect(stage.in, stage.child, &stage == &whole.back());
  }
  for (auto stage = inner.rbegin(); stage != inner.rend(); ++stage) {
    receive_results(stage->in);
    send_results(stage->out);
  }
}

void Emitter::receive_results(const Moves& moves) {
  for (const Move* m : by_peer(moves, false))
    builder_.recv(m->peer, builder_.output(ranges(m->places)),
                  tree_.crossing_tier(position_, m->peer));
}

// A message of nothing but this rank's own block need not wait for the copy to the output.
void Emitter::send_results(const Moves& moves) {
  for (const Move* m : by_peer(moves, true)) {
    const bool own = !one_vector_ && m->places.front().begin >= own_begin() &&
                     m->places.back().end <= own_begin() + kUnits;
    const std::vector<Range> what = ranges(m->places);
    builder_.send(m->peer, own ? builder_.input(what) : builder_.output(what),
                  tree_.crossing_tier(position_, m->peer));
  }
}

void Emitter::send_partials(const Moves& moves) {
  for (const Move* m : by_peer(moves, true)) {
    Places sums, raw;
    walk_both(m->places, accumulated_, [&](uint64_t begin, uint64_t end, bool summed) {
      append(summed ? sums : raw, begin, end);
    });
    const std::vector<Range> what = ranges(m->places);
    const int tier = tree_.crossing_tier(position_, m->peer);
    if (raw.empty()) {
      builder_.send(m->peer, partials(what), tier);
    } else if (sums.empty()) {
      builder_.send(m->peer, builder_.input(what), tier);
    } else {
      const Operand packed = builder_.scratch(what);
      builder_.copy(builder_.part(packed, ranges(sums)), partials(ranges(sums)));
      builder_.copy(builder_.part(packed, ranges(raw)), builder_.input(ranges(raw)));
      builder_.send(m->peer, packed, tier);
    }
  }
}

void Emitter::collect(const Moves& moves, uint32_t own_child, bool last) {
  if (moves.empty()) return;
  std::map<int, Operand> slots;
  for (const Move* m : by_peer(moves, false)) {
    const Operand slot = builder_.scratch(ranges(m->places));
    builder_.recv(m->peer, slot, tree_.crossing_tier(position_, m->peer));
    slots.emplace(m->peer, slot);
  }
  Places added;
  for (const Sum& sum : sums_of(moves, last)) {
    const std::vector<Range> at = ranges(sum.places);
    const bool in_place = sum.accumulated && (!sum.last || one_vector_);
    const Operand target = sum.last ? builder_.output(at) : partials(at);
    const Operand own = in_place ? target : sum.accumulated ? partials(at) : builder_.input(at);
    std::vector<Operand> sources;
    bool own_added = false;
    for (const Move* m : sum.from) {
      if (m->child > own_child && !own_added) {
        sources.push_back(own);
        own_added = true;
      }
      sources.push_back(builder_.part(slots.at(m->peer), at));
    }
    if (!own_added) sources.push_back(own);
    builder_.reduce(target, sources, sum.last);
    if (!sum.accumulated) added.insert(added.end(), sum.places.begin(), sum.places.end());
  }
  arrange(added);
  accumulated_ = unite(accumulated_, added);
}

// Cuts places wherever a move, the partial sums or (last) this rank's own block begin or end; what
// then has the same moves is one sum. Peers mostly move the same places: these are looked at once.
std::vector<Emitter::Sum> Emitter::sums_of(const Moves& moves, bool last) const {
  std::vector<SamePlaces> groups = by_places(moves);
  std::vector<uint64_t> cuts;
  const auto cut_at = [&](const Interval& i) {
    cuts.push_back(i.begin);
    cuts.push_back(i.end);
  };
  for (const SamePlaces& g : groups)
    for (const Interval& i : *g.places) cut_at(i);
  for (const Interval& i : accumulated_) cut_at(i);
  if (last && !one_vector_) cut_at({own_begin(), own_begin() + kUnits});
  sort_stretches(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

  std::vector<Sum> sums;
  std::map<std::vector<size_t>, size_t> known;  // by accumulated, last, and the groups
  std::vector<size_t> key, last_key;
  size_t sum = 0;
  Holders holders(&groups);
  auto summed = accumulated_.begin();
  for (size_t i = 0; i + 1 < cuts.size(); i++) {
    const uint64_t begin = cuts[i], end = cuts[i + 1];
    while (summed != accumulated_.end() && summed->end <= begin) ++summed;
    const bool accumulated = summed != accumulated_.end() && summed->begin <= begin;
    const bool done = last && owned(begin);
    key.assign({accumulated, done});
    const std::set<size_t>& holding = holders.at(begin);
    key.insert(key.end(), holding.begin(), holding.end());
    if (key.size() == 2) continue;  // nobody's
    if (key != last_key) {
      const auto [it, is_new] = known.try_emplace(key, sums.size());
      sum = it->second;
      last_key = key;
      if (is_new) {
        sums.push_back({{}, {}, accumulated, done});
        for (size_t k = 2; k < key.size(); k++)
          sums[sum].from.insert(sums[sum].from.end(), groups[key[k]].moves.begin(),
                                groups[key[k]].moves.end());
        std::sort(sums[sum].from.begin(), sums[sum].from.end(),
                  [](const Move* a, const Move* b) { return a->child < b->child; });
      }
    }
    append(sums[sum].places, begin, end);
  }
  return sums;
}

void Emitter::declare_partials(const std::vector<StageMoves>& stages) {
  Places places;
  const Places* before = nullptr;  // peers mostly move the same places
  const auto add = [&](const Moves& moves, bool last) {
    for (const Move& m : moves.all()) {
      if (before && *before == m.places) continue;
      before = &m.places;
      if (!last) {
        places = unite(places, m.places);
        continue;
      }
      Places others;
      walk_both(m.places, {{own_begin(), own_begin() + kUnits}},
                [&](uint64_t begin, uint64_t end, bool own) {
                  if (!own) append(others, begin, end);
                });
      places = unite(places, others);
    }
  };
  for (const StageMoves& stage : stages) {
    before = nullptr;
    add(stage.out, &stage == &stages.back());
    before = nullptr;
    add(stage.relay_out, true);
  }
  if (!places.empty()) partials_ = builder_.scratch(ranges(places));
}

Operand Emitter::partials(const std::vector<Range>& at) {
  return one_vector_ ? builder_.output(at) : builder_.part(partials_, at);
}

}  // namespace sennit::tiered
