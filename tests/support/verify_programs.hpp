// verify_programs.hpp: hand-made programs of several collectives, for the tests of the verifier.
#pragma once

#include <functional>
#include <vector>

#include "verify/verify.hpp"

namespace sennit {

using Maker = std::function<Program(int)>;
// The program of a position is what the maker gives for it.
class HandMade : public Blueprint {
 public:
  explicit HandMade(Maker maker) : maker_(std::move(maker)) {}
  Program program(int position) const override { return maker_(position); }

 private:
  Maker maker_;
};

// Of 1000 elements (a block, where there are blocks) of float32.
inline Request request(Collective collective, bool in_place = false, int root = 0) {
  Request r;
  r.collective = collective;
  r.in_place = in_place;
  r.root = root;
  r.count = 1000;
  return r;
}

// What the verifier says to the programs that `maker` makes.
inline Verdict run(const TierTree& tree, const Request& r, Maker maker) {
  return verify(tree, r, HandMade(std::move(maker)));
}

// The i-th of n equal shares of a vector; a whole block; whole blocks that follow each other.
inline std::vector<Range> share(uint64_t i, uint64_t n) {
  return {{0, kUnits * i / n, kUnits * (i + 1) / n}};
}
inline std::vector<Range> block(uint64_t i) { return {{i, 0, kUnits}}; }
inline std::vector<Range> blocks(uint64_t first, uint64_t count) {
  return {{first, 0, count * kUnits}};
}
inline const std::vector<Range> kWholeVector = {{0, 0, kUnits}};

// In bytes.
inline Request bytes_request(Collective collective, uint64_t count) {
  Request r;
  r.collective = collective;
  r.type = DataType::uint8;
  r.count = count;
  return r;
}

// One message of `bytes` per pair {from, to}; everybody else does nothing.
inline Maker one_message_each(std::vector<std::pair<int, int>> pairs) {
  return [pairs](int position) {
    ProgramBuilder builder;
    for (const auto& [from, to] : pairs) {
      if (position == from) builder.send(to, builder.input(kWholeVector), 0);
      if (position == to) builder.recv(from, builder.scratch(kWholeVector), 0);
    }
    return builder.finish();
  };
}

// Ring reduce-scatter, then ring all-gather.
inline Program ring_all_reduce(const TierTree& tree, int p) {
  const int n = tree.ranks();
  ProgramBuilder b;
  const int next = (p + 1) % n, previous = (p + n - 1) % n;
  if (n == 1) b.copy(b.output(kWholeVector), b.input(kWholeVector), true);
  for (int k = 0; k + 1 < n; k++) {
    const auto out = share(uint64_t((p + n - k) % n), uint64_t(n)),
               in = share(uint64_t((p + 2 * n - k - 1) % n), uint64_t(n));
    b.send(next, k == 0 ? b.input(out) : b.output(out), tree.crossing_tier(p, next));
    const Operand slot = b.scratch(in);
    b.recv(previous, slot, tree.crossing_tier(p, previous));
    const std::vector<Operand> terms = {slot, b.input(in)};
    b.reduce(b.output(in), terms, k + 2 == n);
  }
  for (int k = 0; k + 1 < n; k++) {
    const auto out = share(uint64_t((p + n + 1 - k) % n), uint64_t(n)),
               in = share(uint64_t((p + n - k) % n), uint64_t(n));
    b.send(next, b.output(out), tree.crossing_tier(p, next));
    b.recv(previous, b.output(in), tree.crossing_tier(p, previous));
  }
  return b.finish();
}

// Everybody sends everything to everybody and adds up in order of position.
inline Program whole_all_reduce(const TierTree& tree, int p) {
  const int n = tree.ranks();
  ProgramBuilder b;
  std::vector<Operand> terms;
  for (int q = 0; q < n; q++)
    if (q != p) b.send(q, b.input(kWholeVector), tree.crossing_tier(p, q));
  for (int q = 0; q < n; q++) {
    terms.push_back(q == p ? b.input(kWholeVector) : b.scratch(kWholeVector));
    if (q != p) b.recv(q, terms.back(), tree.crossing_tier(p, q));
  }
  b.reduce(b.output(kWholeVector), terms, true);
  return b.finish();
}

// Everybody sends everybody else that rank's block and adds up its own in order of position.
inline Program direct_reduce_scatter(const TierTree& tree, int p) {
  const int n = tree.ranks();
  ProgramBuilder b;
  std::vector<Operand> terms;
  for (int q = 0; q < n; q++)
    if (q != p) b.send(q, b.input(block(uint64_t(q))), tree.crossing_tier(p, q));
  for (int q = 0; q < n; q++) {
    terms.push_back(q == p ? b.input(block(uint64_t(p))) : b.scratch(block(uint64_t(p))));
    if (q != p) b.recv(q, terms.back(), tree.crossing_tier(p, q));
  }
  b.reduce(b.output(block(uint64_t(p))), terms, true);
  return b.finish();
}

// Everybody sends to the next position its own block first, then what came from the one before.
inline Program ring_all_gather(const TierTree& tree, int p, bool in_place) {
  const int n = tree.ranks();
  ProgramBuilder b;
  if (!in_place) b.copy(b.output(block(uint64_t(p))), b.input(block(uint64_t(p))));
  const int next = (p + 1) % n, previous = (p + n - 1) % n;
  for (int k = 0; k + 1 < n; k++) {
    const auto out = block(uint64_t((p + n - k) % n)),
               in = block(uint64_t((p + 2 * n - k - 1) % n));
    b.send(next, k == 0 ? b.input(out) : b.output(out), tree.crossing_tier(p, next));
    b.recv(previous, b.output(in), tree.crossing_tier(p, previous));
  }
  return b.finish();
}

// Through position 0: collects all blocks i*n + j in one slot and hands them out.
inline Program relayed_all_to_all(const TierTree& tree, int p) {
  const uint64_t n = uint64_t(tree.ranks());
  ProgramBuilder b;
  if (p != 0) {
    b.send(0, b.input(blocks(0, n)), tree.crossing_tier(p, 0));
    b.recv(0, b.output(blocks(0, n)), tree.crossing_tier(p, 0));
    return b.finish();
  }
  const Operand all = b.scratch(blocks(0, n * n));
  b.copy(b.part(all, blocks(0, n)), b.input(blocks(0, n)));
  for (uint64_t q = 1; q < n; q++)
    b.recv(int(q), b.part(all, blocks(q * n, n)), tree.crossing_tier(0, int(q)));
  for (uint64_t q = 0; q < n; q++) {
    std::vector<Range> column;
    for (uint64_t i = 0; i < n; i++) column.push_back({i * n + q, 0, kUnits});
    if (q == 0)
      b.copy(b.output(blocks(0, n)), b.part(all, column));
    else
      b.send(int(q), b.part(all, column), tree.crossing_tier(0, int(q)));
  }
  return b.finish();
}

// Round k goes to the position 2^k further on. Too few `rounds` make it no barrier; those that it
// does not need it leaves out.
inline Program dissemination_barrier(const TierTree& tree, int p, int rounds) {
  const int n = tree.ranks();
  ProgramBuilder b;
  for (int k = 0, distance = 1; k < rounds && distance < n; k++, distance *= 2) {
    const int to = (p + distance) % n, from = (p + n - distance) % n;
    b.send(to, b.output({}), tree.crossing_tier(p, to), true);
    b.recv(from, b.output({}), tree.crossing_tier(p, from), true);
  }
  // no memory orders the rounds: a send waits for all receives before it
  Program program = b.finish();
  for (uint32_t i = 2; i < program.steps.size(); i += 2) {
    program.steps[i].first_dep = uint32_t(program.deps.size());
    program.steps[i].deps = i / 2;
    for (uint32_t receive = 1; receive < i; receive += 2) program.deps.push_back(receive);
  }
  return program;
}

}  // namespace sennit
