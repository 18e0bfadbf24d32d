// flow.cpp: follows the data through the ordered steps: what ends up where (check_flow).
//
// Runs the ordered steps on symbolic memory. Where the collective moves data, the value of a place
// is where it came from; where it reduces, it is an expression: a leaf (one position's contribution
// at this place) or the ordered list of what a reduce added up. An expression knows its
// contributors, as runs of positions, so a contribution that comes twice is seen when it is added;
// and equal expressions mean equal bits, so the ranks of an all-reduce are also compared by
// expression. Data that stays in place is independent by place: the places are cut into slabs that
// are run one after the other when memory would not do.
// Cost: O(pieces touched), at most kMaxPieces pieces of 24 bytes at once per slab.
#include <fmt/core.h>

#include "base/index.hpp"
#include "verify/world.hpp"

namespace sennit::verifier {
namespace {

constexpr size_t kMaxPieces = 40'000'000;

// Expressions by number; the first `ranks` are the leaves.
class Expressions {
 public:
  explicit Expressions(int ranks) {
    for (uint32_t p = 0; p < static_cast<uint32_t>(ranks); p++) {
      const uint32_t self = p | kLeaf;
      pool_.intern({&self, 1});
      contributors_.push_back({Stretch{p, p + 1}});
    }
  }

  // The sum of these in this order. A contributor that occurs twice is written to *twice (else it
  // stays).
  uint32_t add(std::span<const uint32_t> terms, int* twice) {
    if (terms.size() == 1) return terms[0];
    if (std::equal(terms.begin(), terms.end(), last_terms_.begin(), last_terms_.end()))
      return last_;
    const uint32_t id = pool_.intern(terms);
    if (id == contributors_.size()) contributors_.push_back(unite(terms, twice));
    last_terms_.assign(terms.begin(), terms.end());
    last_ = id;
    return id;
  }
  const std::vector<Stretch>& contributors(uint32_t id) const { return contributors_[id]; }

 private:
  static constexpr uint32_t kLeaf = 0x80000000u;  // keeps a leaf's own entry apart from sums

  std::vector<Stretch> unite(std::span<const uint32_t> terms, int* twice) const {
    std::vector<Stretch> all, united;
    for (const uint32_t term : terms)
      all.insert(all.end(), contributors_[term].begin(), contributors_[term].end());
    std::sort(all.begin(), all.end(),
              [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
    for (const Stretch& run : all) {
      if (!united.empty() && run.begin < united.back().end) *twice = static_cast<int>(run.begin);
      if (!united.empty() && run.begin <= united.back().end)
        united.back().end = std::max(united.back().end, run.end);
      else
        united.push_back(run);
    }
    return united;
  }

  SequencePool<uint32_t> pool_;
  std::vector<std::vector<Stretch>> contributors_;
  std::vector<uint32_t> last_terms_;
  uint32_t last_ = 0;
};

// Stretches of contributors that an error names.
constexpr size_t kNamed = 6;

std::string contributors_text(const std::vector<Stretch>& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size() && i < kNamed; i++) {
    text += text.empty() ? "" : ", ";
    text += runs[i].end == runs[i].begin + 1 ? std::to_string(runs[i].begin)
                                             : fmt::format("{}-{}", runs[i].begin, runs[i].end - 1);
  }
  return text + (runs.size() > kNamed ? ", ..." : "");
}

class Flow {
 public:
  Flow(const World& world, const Order& order, Expressions& expressions, Stretch slab)
      : world_(world),
        layout_(world.layout),
        order_(order),
        expressions_(expressions),
        slab_(slab) {}

  // False: too many pieces, try smaller slabs.
  bool run(std::string& error) {
    fill_inputs();
    for (const uint32_t of_all : order_.sequence) {
      const int position = order_.position_of(of_all);
      const size_t number = of_all - order_.first_step[index(position)];
      const CompactProgram& program = world_.programs[index(position)];
      const CompactStep& step = program.steps[number];
      if (step.kind == StepKind::send)
        deliver(position, number);
      else
        combine(position, number);
      if (!error_.empty() || pieces_ > kMaxPieces) break;
    }
    if (error_.empty() && pieces_ <= kMaxPieces) check_outputs();
    error = error_;
    return !error_.empty() || pieces_ <= kMaxPieces;
  }

 private:
  // Moved data: (place it came from) - (place it is at), modulo 2^64; all-to-all numbers the places
  // of all inputs, position i's block j being block i*n + j. Reduced data: expression * 2 +
  // finished.
  using Value = uint64_t;
  using Map = IntervalMap<Value>;
  using Piece = Map::Piece;

  Map& space(int position, const CompactOperand& o) {
    const bool one_space = layout_.in_place && o.space < kFirstSlotSpace;
    return memory_[index(position)][one_space ? 0 : o.space];
  }

  void fill_inputs() {
    memory_.resize(index(layout_.ranks));
    for (int p = 0; p < layout_.ranks; p++) {
      memory_[index(p)].resize(kFirstSlotSpace + world_.programs[index(p)].exposable.size());
      const Stretch input = clip(layout_.input(p));
      if (input.begin >= input.end) continue;
      Value value = 0;
      if (layout_.reduces) value = Value{static_cast<uint32_t>(p)} * 2;
      if (layout_.collective == Collective::all_to_all)
        value = static_cast<uint64_t>(p) * static_cast<uint64_t>(layout_.ranks) * kUnits;
      const Piece piece{input.begin, input.end, value};
      memory_[index(p)][kInputSpace].replace({&piece, 1});
      pieces_++;
    }
  }

  Stretch clip(Stretch run) const {
    return {std::max(run.begin, slab_.begin), std::min(run.end, slab_.end)};
  }

  // The part of a list within the slab.
  std::span<const Stretch> part(uint32_t list, std::vector<Stretch>& scratch) const {
    const std::span<const Stretch> all = world_.lists.sorted(list);
    if (all.empty() || (all.front().begin >= slab_.begin && all.back().end <= slab_.end))
      return all;
    auto it = std::upper_bound(all.begin(), all.end(), slab_.begin,
                               [](uint64_t at, const Stretch& r) { return at < r.end; });
    scratch.clear();
    for (; it != all.end() && it->begin < slab_.end; ++it) scratch.push_back(clip(*it));
    return scratch;
  }

  // Reads `source` as it will stand in list `to`. Where data stays in place, pieces are counted
  // from the list's beginning, all of its runs without a gap; else by place.
  void gather(int position, size_t step, const CompactOperand& source, uint32_t to,
              std::vector<Piece>& out) {
    out.clear();
    if (layout_.fixed_places())
      gather_packed(position, step, source, out);
    else
      gather_moved(position, step, source, to, out);
  }

  void gather_packed(int position, size_t step, const CompactOperand& source,
                     std::vector<Piece>& out) {
    const Map& memory = space(position, source);
    const std::span<const Stretch> runs = part(source.list, runs_scratch_);
    if (packed(position, source)) {
      out.assign(memory.pieces().begin(), memory.pieces().end());
      if (out.empty() && !runs.empty()) fail_empty(position, step, runs[0].begin, runs[0].end);
      return;
    }
    uint64_t at = 0;
    memory.visit(runs, [&](uint64_t begin, uint64_t end, const Value* value) {
      if (!value) return fail_empty(position, step, begin, end);
      if (!out.empty() && out.back().value == *value)
        out.back().end += end - begin;
      else
        out.push_back({at, at + (end - begin), *value});
      at += end - begin;
    });
  }

  void gather_moved(int position, size_t step, const CompactOperand& source, uint32_t to,
                    std::vector<Piece>& out) {
    const Map& memory = space(position, source);
    const std::span<const Stretch> target = world_.lists.runs(to);
    size_t j = 0;
    uint64_t filled = 0;  // of target[j]
    for (const Stretch& run : world_.lists.runs(source.list))
      memory.visit(run.begin, run.end, [&](uint64_t begin, uint64_t end, const Value* value) {
        if (!value) return fail_empty(position, step, begin, end);
        while (begin < end) {
          const uint64_t at = target[j].begin + filled;
          const uint64_t length = std::min(end - begin, target[j].end - at);
          out.push_back({at, at + length, *value + (begin - at)});
          begin += length;
          filled += length;
          if (at + length == target[j].end) {
            j++;
            filled = 0;
          }
        }
      });
    if (!world_.lists.ascending(to))
      std::sort(out.begin(), out.end(),
                [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }

  void store(int position, size_t step, const CompactOperand& target,
             std::span<const Piece> pieces) {
    if (layout_.vector_variant && layout_.collective == Collective::all_to_all)
      check_lengths(position, step, target, pieces);
    if (layout_.fixed_places() && !packed(position, target)) pieces = unpack(target.list, pieces);
    Map& memory = space(position, target);
    pieces_ -= memory.size();
    memory.replace(pieces);
    pieces_ += memory.size();
  }

  // A slot that is only touched as a whole is kept as gather() counts: there, few pieces mostly do.
  bool packed(int position, const CompactOperand& o) const {
    return layout_.fixed_places() && world_.programs[index(position)].is_whole(o);
  }

  std::span<const Piece> unpack(uint32_t list, std::span<const Piece> pieces) {
    unpacked_.clear();
    uint64_t at = 0;  // counted from the list's beginning
    auto piece = pieces.begin();
    for (const Stretch& run : part(list, runs_scratch_)) {
      for (uint64_t begin = run.begin; begin < run.end;) {
        if (piece->end <= at) ++piece;
        const uint64_t length = std::min(run.end - begin, piece->end - at);
        unpacked_.push_back({begin, begin + length, piece->value});
        begin += length;
        at += length;
      }
    }
    return unpacked_;
  }

  // All-to-all with counts: what lies in a block must be of that block's length.
  void check_lengths(int position, size_t step, const CompactOperand& target,
                     std::span<const Piece> pieces) {
    const uint64_t n = static_cast<uint64_t>(layout_.ranks);
    for (const Piece& piece : pieces)
      for (uint64_t block = piece.begin / kUnits; block * kUnits < piece.end; block++) {
        const uint64_t due =
            target.space >= kFirstSlotSpace ? block : block * n + static_cast<uint64_t>(position);
        if (block + piece.value / kUnits != due)
          return fail(position, step,
                      fmt::format("puts a block of another length into block {}", block));
      }
  }

  void deliver(int position, size_t number) {
    const CompactProgram& program = world_.programs[index(position)];
    const CompactStep& send = program.steps[number];
    const CompactOperand& source = program.operands[send.first_source];
    const size_t partner = send.partner - order_.first_step[index(send.peer)];
    const CompactStep& receive = world_.programs[index(send.peer)].steps[partner];
    gather(position, number, source, receive.target.list, result_);
    if (error_.empty()) store(send.peer, partner, receive.target, result_);
  }

  void combine(int position, size_t number) {
    const CompactProgram& program = world_.programs[index(position)];
    const CompactStep& step = program.steps[number];
    if (terms_.size() < step.sources) terms_.resize(step.sources);
    for (uint32_t s = 0; s < step.sources && error_.empty(); s++)
      gather(position, number, program.operands[step.first_source + s], step.target.list,
             terms_[s]);
    if (!error_.empty()) return;
    if (step.sources > 1 && !layout_.reduces)
      return fail(position, number, "adds up data in a collective that only moves it");
    result_.clear();
    if (step.sources == 1 && !(step.finish && layout_.reduces))
      result_.assign(terms_[0].begin(), terms_[0].end());
    else
      add_up(position, number, step);
    if (error_.empty()) store(position, number, step.target, result_);
  }

  // All terms cover the same places: walks over them together, cutting where any of them changes.
  void add_up(int position, size_t number, const CompactStep& step) {
    at_.assign(step.sources, 0);
    children_.resize(step.sources);
    if (terms_[0].empty()) return;
    for (uint64_t begin = terms_[0].front().begin;;) {
      uint64_t end = ~uint64_t{0};
      for (uint32_t s = 0; s < step.sources; s++) {
        const Piece& piece = terms_[s][at_[s]];
        end = std::min(end, piece.end);
        children_[s] = static_cast<uint32_t>(piece.value / 2);
        if (piece.value % 2 != 0 && (step.sources > 1 || step.finish))
          return fail(position, number,
                      text_at(step.target.list, begin, piece.end) + " is finished already");
      }
      int twice = -1;
      const uint32_t sum = expressions_.add(children_, &twice);
      if (twice >= 0)
        return fail(position, number,
                    fmt::format("the contribution of position {} to {} is added twice", twice,
                                text_at(step.target.list, begin, end)));
      result_.push_back({begin, end, Value{sum} * 2 + (step.finish ? 1 : 0)});
      for (uint32_t s = 0; s < step.sources; s++)
        if (terms_[s][at_[s]].end == end) at_[s]++;
      if (at_[0] == terms_[0].size()) return;
      begin = std::max(end, terms_[0][at_[0]].begin);
    }
  }

  void check_outputs() {
    const bool compare = layout_.collective == Collective::all_reduce;
    for (int p = 0; p < layout_.ranks && error_.empty(); p++) {
      const Stretch output = clip(layout_.output(p));
      if (output.begin >= output.end) continue;
      const Map& memory = space(p, {kOutputSpace, kNone});
      memory.visit(output.begin, output.end, [&](uint64_t begin, uint64_t end, const Value* value) {
        if (!error_.empty()) return;
        if (!value)
          fail_output(p, begin, end, "nothing");
        else if (layout_.reduces)
          check_sum(p, begin, end, *value);
        else
          check_origin(p, begin, end, *value);
      });
      if (compare && error_.empty() && p > 0) compare_with_first(p, memory);
    }
  }

  void check_sum(int position, uint64_t begin, uint64_t end, Value value) {
    const std::vector<Stretch>& who = expressions_.contributors(static_cast<uint32_t>(value / 2));
    if (who.size() != 1 || who[0].begin != 0 || who[0].end != static_cast<uint64_t>(layout_.ranks))
      return fail_output(position, begin, end, "the sum over positions " + contributors_text(who));
    if (value % 2 == 0 && layout_.ranks > 1)
      fail_output(position, begin, end, "a sum that no step finished");
  }

  void check_origin(int position, uint64_t begin, uint64_t end, Value value) {
    // then value is 0: whose block it is says where it came from
    if (layout_.fixed_places()) return;
    const uint64_t n = static_cast<uint64_t>(layout_.ranks);
    for (uint64_t block = begin / kUnits; block * kUnits < end; block++) {
      const uint64_t from = block + value / kUnits;
      if (from != block * n + static_cast<uint64_t>(position))
        return fail_output(position, begin, end,
                           fmt::format("block {} of position {}", from % n, from / n));
    }
  }

  void compare_with_first(int position, const Map& memory) {
    const Stretch all = clip(layout_.output(position));
    space(0, {kOutputSpace, kNone})
        .visit(all.begin, all.end, [&](uint64_t begin, uint64_t end, const Value* first) {
          memory.visit(begin, end, [&](uint64_t from, uint64_t to, const Value* mine) {
            if (error_.empty() && *mine != *first)
              error_ = fmt::format(
                  "position {}: {} is added up in another order than on position 0, so the bits "
                  "may differ",
                  position, place_text(from, to));
          });
        });
  }

  // The place where [begin, end), counted from the list's beginning, begins.
  std::string text_at(uint32_t list, uint64_t begin, uint64_t end) {
    for (const Stretch& run : part(list, runs_scratch_)) {
      const uint64_t length = run.end - run.begin;
      if (begin < length) return place_text(run.begin + begin, std::min(run.end, run.begin + end));
      begin -= length;
      end -= length;
    }
    return {};
  }

  void fail_empty(int position, size_t step, uint64_t begin, uint64_t end) {
    fail(position, step, "reads " + place_text(begin, end) + " before anything is there");
  }
  void fail(int position, size_t step, const std::string& what) {
    if (error_.empty()) error_ = step_text(world_, position, step) + ": " + what;
  }
  void fail_output(int position, uint64_t begin, uint64_t end, const std::string& what) {
    if (error_.empty())
      error_ =
          fmt::format("position {}: output {} holds {}", position, place_text(begin, end), what);
  }

  const World& world_;
  const DataLayout& layout_;
  const Order& order_;
  Expressions& expressions_;
  const Stretch slab_;
  std::vector<std::vector<Map>> memory_;  // by position, by space
  size_t pieces_ = 0;
  std::string error_;
  // Scratch, kept to save allocations.
  std::vector<Stretch> runs_scratch_;
  std::vector<std::vector<Piece>> terms_;
  std::vector<Piece> result_, unpacked_;
  std::vector<size_t> at_;
  std::vector<uint32_t> children_;
};

// Units; where so few have too many pieces, fewer would help no more.
constexpr uint64_t kLeastSlab = 1024;

}  // namespace

std::string check_flow(const World& world, const Order& order) {
  Expressions expressions(world.layout.ranks);
  const uint64_t all = world.layout.blocks * kUnits;
  std::string error;
  uint64_t slab =
      world.layout.fixed_places() ? all / (world.written_runs / kMaxPieces + 1) + 1 : all;
  for (uint64_t begin = 0; begin < all && error.empty();) {
    const uint64_t end = all - begin > slab ? begin + slab : all;
    if (Flow(world, order, expressions, {begin, end}).run(error))
      begin = end;
    else if (slab < kLeastSlab || !world.layout.fixed_places())
      error = "more pieces of data than the verifier has memory for";
    else
      slab /= 4;
  }
  return error;
}

}  // namespace sennit::verifier
