// algorithm.cpp: a whole algorithm in one file: an all-reduce by a star. Everybody sends to
// position 0, which adds up and sends the sum back.
//
// The entry at the end is all that it takes: tests/toys/algorithm_test.cpp finds it in the
// plan, in the conformance suite, in the simulator and in a job.
#include "collectives/common.hpp"

namespace sennit {
namespace {

constexpr int kCentre = 0;

class Star : public Algorithm {
 public:
  std::string_view name() const override { return "toy"; }

  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::all_reduce;
  }

  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const uint64_t bytes = total_bytes(request, n);
    Load load(tree);
    for (int p = 1; p < n; p++) {
      load.add(p, kCentre, bytes);
      load.add(kCentre, p, bytes);
    }
    Estimate estimate;
    load.set_times(cost, &estimate);
    add_latency(tree, slowest_group(tree, cost), 2, bytes, cost, &estimate);
    estimate.messages = static_cast<uint64_t>(n) - 1;
    estimate.reduce_bytes = static_cast<uint64_t>(n) * bytes;
    return estimate;
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    return make_blueprint([&](int position) { return program(tree, request, position); });
  }

 private:
  static Program program(const TierTree& tree, const Request& request, int position) {
    const Range vector = block_range(0, 1);
    ProgramBuilder builder(request.in_place);
    const Operand input = builder.input({&vector, 1}), output = builder.output({&vector, 1});
    if (position != kCentre) {
      const int tier = tree.crossing_tier(position, kCentre);
      builder.send(kCentre, input, tier);
      builder.recv(kCentre, output, tier);
      return builder.finish();
    }
    std::vector<Operand> terms = {input};
    for (int p = 1; p < tree.ranks(); p++) {
      terms.push_back(builder.scratch({&vector, 1}));
      builder.recv(p, terms.back(), tree.crossing_tier(kCentre, p));
    }
    combine(builder, output, terms, true);
    for (int p = 1; p < tree.ranks(); p++) builder.send(p, output, tree.crossing_tier(kCentre, p));
    return builder.finish();
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(Star)

}  // namespace sennit
