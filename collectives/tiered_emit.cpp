// tiered_emit.cpp: see tiered_emit.hpp.
#include "tiered_emit.hpp"

#include <algorithm>
#include <map>

namespace sennit::tiered {

Emitter::Emitter(const TierTree& tree, const Request& request, int position)
    : tree_(tree),
      request_(request),
      position_(position),
      one_owner_(request.collective == Collective::broadcast || request.collective == Collective::reduce),
      one_vector_(request.collective == Collective::all_reduce || request.collective == Collective::barrier),
      builder_(request.in_place) {}

// Broadcast and reduce have only block 0, which the forest knows as the root's.
std::vector<Range> Emitter::ranges(const std::vector<Interval>& places) const {
  std::vector<Range> result;
  result.reserve(places.size());
  const uint64_t shift = one_owner_ ? static_cast<uint64_t>(request_.root) * kUnits : 0;
  for (const Interval& p : places) {
    const uint64_t begin = p.begin - shift;
    result.push_back({begin / kUnits, begin % kUnits, begin % kUnits + (p.end - p.begin)});
  }
  return result;
}

std::vector<Range> Emitter::ranges(const std::vector<Move>& moves) const {
  std::vector<Interval> places;
  places.reserve(moves.size());
  for (const Move& m : moves) places.push_back({m.begin, m.end});
  return ranges(places);
}

bool Emitter::owned(uint64_t place) const {
  if (one_vector_) return true;  // whoever completes it
  return place / kUnits == static_cast<uint64_t>(position_);
}

// Moves that go on where another with the same peer ends become one, except where this rank's own block,
// which is looked at by itself, begins or ends. A forest has a move per block and holder; a program needs
// only few.
void Emitter::join(std::vector<Move>& moves) const {
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return a.peer != b.peer ? a.peer < b.peer : a.child != b.child ? a.child < b.child : a.begin < b.begin;
  });
  size_t kept = 0;
  for (const Move& m : moves) {
    const bool follows = kept > 0 && moves[kept - 1].peer == m.peer && moves[kept - 1].child == m.child &&
                         moves[kept - 1].end == m.begin;
    const uint64_t own = static_cast<uint64_t>(position_) * kUnits;
    if (follows && (one_vector_ || one_owner_ || (m.begin != own && m.begin != own + kUnits)))
      moves[kept - 1].end = m.end;
    else
      moves[kept++] = m;
  }
  moves.resize(kept);
}

template <typename F>
void Emitter::by_peer(std::vector<Move> moves, bool sending, F&& f) const {
  const int n = tree_.ranks();
  join(moves);
  const auto order = [&](const Move& m) {
    return ((sending ? m.peer - position_ : position_ - m.peer) + n) % n;
  };
  std::sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) {
    return a.peer != b.peer ? order(a) < order(b) : a.begin < b.begin;
  });
  std::vector<Move> group;
  for (size_t i = 0; i < moves.size(); i++) {
    group.push_back(moves[i]);
    if (i + 1 < moves.size() && moves[i + 1].peer == moves[i].peer) continue;
    f(moves[i].peer, group);
    group.clear();
  }
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
    const uint64_t begin = static_cast<uint64_t>(position_) * kUnits;
    const std::vector<Range> own = ranges(std::vector<Interval>{{begin, begin + kUnits}});
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

void Emitter::all_reduce(const std::vector<StageMoves>& inner, const std::vector<StageMoves>& whole) {
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

void Emitter::receive_results(const std::vector<Move>& moves) {
  by_peer(moves, false, [&](int peer, const std::vector<Move>& from_peer) {
    builder_.recv(peer, builder_.output(ranges(from_peer)), tree_.crossing_tier(position_, peer));
  });
}

// A message of nothing but this rank's own block need not wait for the copy to the output.
void Emitter::send_results(const std::vector<Move>& moves) {
  by_peer(moves, true, [&](int peer, const std::vector<Move>& to_peer) {
    const bool own = !one_vector_ && std::all_of(to_peer.begin(), to_peer.end(),
                                                 [&](const Move& m) { return owned(m.begin); });
    const std::vector<Range> what = ranges(to_peer);
    builder_.send(peer, own ? builder_.input(what) : builder_.output(what),
                  tree_.crossing_tier(position_, peer));
  });
}

void Emitter::send_partials(const std::vector<Move>& moves) {
  by_peer(moves, true, [&](int peer, const std::vector<Move>& to_peer) {
    std::vector<Interval> sums, raw;
    for (const Move& m : to_peer)
      by_accumulation(m.begin, m.end, [&](uint64_t begin, uint64_t end, bool summed) {
        (summed ? sums : raw).push_back({begin, end});
      });
    const std::vector<Range> what = ranges(to_peer);
    const int tier = tree_.crossing_tier(position_, peer);
    if (raw.empty()) return builder_.send(peer, partials(what), tier);
    if (sums.empty()) return builder_.send(peer, builder_.input(what), tier);
    const Operand packed = builder_.scratch(what);
    builder_.copy(builder_.part(packed, ranges(sums)), partials(ranges(sums)));
    builder_.copy(builder_.part(packed, ranges(raw)), builder_.input(ranges(raw)));
    builder_.send(peer, packed, tier);
  });
}

void Emitter::collect(const std::vector<Move>& moves, uint32_t own_child, bool last) {
  if (moves.empty()) return;
  std::map<int, Operand> slots;
  by_peer(moves, false, [&](int peer, const std::vector<Move>& from_peer) {
    const Operand slot = builder_.scratch(ranges(from_peer));
    builder_.recv(peer, slot, tree_.crossing_tier(position_, peer));
    slots.emplace(peer, slot);
  });
  for (const Sum& sum : sums_of(moves, last)) {
    const std::vector<Range> at = ranges(sum.places);
    const bool in_place = sum.accumulated && (!sum.last || one_vector_);
    const Operand target = sum.last ? builder_.output(at) : partials(at);
    const Operand own = in_place ? target : sum.accumulated ? partials(at) : builder_.input(at);
    std::vector<Operand> sources;
    bool own_added = false;
    for (const Move& m : sum.from) {
      if (m.child > own_child && !own_added) {
        sources.push_back(own);
        own_added = true;
      }
      sources.push_back(builder_.part(slots.at(m.peer), at));
    }
    if (!own_added) sources.push_back(own);
    builder_.reduce(target, sources, sum.last);
    accumulated_.insert(accumulated_.end(), sum.places.begin(), sum.places.end());
  }
  merge(accumulated_);
}

std::vector<Emitter::Sum> Emitter::sums_of(std::vector<Move> moves, bool last) const {
  join(moves);
  std::vector<uint64_t> cuts;
  cuts.reserve(2 * moves.size());
  for (const Move& m : moves) {
    cuts.push_back(m.begin);
    cuts.push_back(m.end);
  }
  for (const Interval& i : accumulated_) {
    cuts.push_back(i.begin);
    cuts.push_back(i.end);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Move> pieces;  // the moves, cut everywhere
  pieces.reserve(moves.size());
  for (const Move& m : moves)
    for (auto cut = std::lower_bound(cuts.begin(), cuts.end(), m.begin); *cut < m.end; ++cut)
      pieces.push_back({m.peer, m.child, *cut, *std::next(cut)});
  std::sort(pieces.begin(), pieces.end(), [](const Move& a, const Move& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.child < b.child;
  });
  std::vector<Sum> sums;
  std::map<std::vector<int32_t>, size_t> known;  // by accumulated, last, and the peers
  std::vector<int32_t> key;
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i;
    const bool summed = accumulated(pieces[i].begin), done = last && owned(pieces[i].begin);
    key.assign({summed, done});
    for (; end < pieces.size() && pieces[end].begin == pieces[i].begin; end++)
      key.push_back(pieces[end].peer);
    const auto [it, is_new] = known.try_emplace(key, sums.size());
    if (is_new)
      sums.push_back(
          {{},
           {pieces.begin() + static_cast<ptrdiff_t>(i), pieces.begin() + static_cast<ptrdiff_t>(end)},
           summed,
           done});
    sums[it->second].places.push_back({pieces[i].begin, pieces[i].end});
    i = end;
  }
  return sums;
}

void Emitter::declare_partials(const std::vector<StageMoves>& stages) {
  std::vector<Interval> places;
  const auto add = [&](const std::vector<Move>& moves, bool last) {
    for (const Move& m : moves)
      if (!last || !owned(m.begin)) places.push_back({m.begin, m.end});
  };
  for (const StageMoves& stage : stages) {
    add(stage.out, &stage == &stages.back());
    add(stage.relay_out, true);
  }
  merge(places);
  if (!places.empty()) partials_ = builder_.scratch(ranges(places));
}

Operand Emitter::partials(const std::vector<Range>& at) {
  return one_vector_ ? builder_.output(at) : builder_.part(partials_, at);
}

bool Emitter::accumulated(uint64_t place) const {
  const auto after = std::upper_bound(accumulated_.begin(), accumulated_.end(), place,
                                      [](uint64_t p, const Interval& i) { return p < i.begin; });
  return after != accumulated_.begin() && place < std::prev(after)->end;
}

template <typename F>
void Emitter::by_accumulation(uint64_t begin, uint64_t end, F&& f) const {
  auto next = std::upper_bound(accumulated_.begin(), accumulated_.end(), begin,
                               [](uint64_t p, const Interval& i) { return p < i.end; });
  while (begin < end) {
    const bool inside = next != accumulated_.end() && next->begin <= begin;
    const uint64_t edge = next == accumulated_.end() ? end : inside ? next->end : next->begin;
    f(begin, std::min(end, edge), inside);
    begin = std::min(end, edge);
    if (inside) ++next;
  }
}

void Emitter::merge(std::vector<Interval>& places) {
  std::sort(places.begin(), places.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const Interval& p : places) {
    if (kept > 0 && p.begin <= places[kept - 1].end)
      places[kept - 1].end = std::max(places[kept - 1].end, p.end);
    else
      places[kept++] = p;
  }
  places.resize(kept);
}

}  // namespace sennit::tiered
