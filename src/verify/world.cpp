// world.cpp: see verify/world.hpp.
#include "verify/world.hpp"

#include <numeric>

#include <fmt/core.h>

#include "base/index.hpp"

namespace sennit::verifier {

DataLayout::DataLayout(const TierTree& tree, const Request& request)
    : ranks(tree.ranks()),
      collective(request.collective),
      reduces(request.reduces()),
      in_place(request.in_place),
      vector_variant(request.vector_variant || !request.counts.empty()),
      root(request.root) {
  const uint64_t n = static_cast<uint64_t>(ranks);
  const bool one = collective == Collective::all_reduce || collective == Collective::broadcast ||
                   collective == Collective::reduce || collective == Collective::barrier;
  blocks = one ? 1 : n;
  slot_blocks = collective == Collective::all_to_all ? n * n : blocks;
}

Stretch DataLayout::input(int position) const {
  const uint64_t p = static_cast<uint64_t>(position);
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {p * kUnits, (p + 1) * kUnits};
    case Collective::broadcast:
    case Collective::scatter:
      return position == root ? Stretch{0, blocks * kUnits} : Stretch{0, 0};
    default:
      return {0, blocks * kUnits};
  }
}

Stretch DataLayout::output(int position) const {
  const uint64_t p = static_cast<uint64_t>(position);
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {p * kUnits, (p + 1) * kUnits};
    case Collective::reduce:
    case Collective::gather:
      return position == root ? Stretch{0, blocks * kUnits} : Stretch{0, 0};
    default:
      return {0, blocks * kUnits};
  }
}

bool DataLayout::slot_block_known(int position, uint64_t block) const {
  if (!vector_variant || collective != Collective::all_to_all) return true;
  const uint64_t n = static_cast<uint64_t>(ranks), p = static_cast<uint64_t>(position);
  return block / n == p || block % n == p;
}

std::string step_text(const World& world, int position, size_t step) {
  const CompactStep& s = world.programs[index(position)].steps[step];
  std::string what = s.kind == StepKind::reduce ? "reduce" : "copy";
  if (s.kind == StepKind::send) what = fmt::format("send to {}", s.peer);
  if (s.kind == StepKind::recv) what = fmt::format("recv from {}", s.peer);
  return fmt::format("position {}, step {} ({})", position, step, what);
}

std::string place_text(uint64_t begin, uint64_t end) {
  const auto fraction = [](uint64_t units) {
    const uint64_t divisor = std::gcd(units, kUnits);
    if (units == 0 || divisor == kUnits) return std::to_string(units / kUnits);
    return fmt::format("{}/{}", units / divisor, kUnits / divisor);
  };
  const uint64_t base = begin / kUnits * kUnits;
  return fmt::format("block {} [{}, {})", begin / kUnits, fraction(begin - base),
                     fraction(end - base));
}

}  // namespace sennit::verifier
