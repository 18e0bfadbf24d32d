// `sennit bench -c` passes right results in every type and op, and notices wrong ones: it must be
// able to fail.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
#include <cstring>

#include <gtest/gtest.h>

#include "command/bench/bench.hpp"
#include "reduce/reduce.hpp"

namespace sennit::bench {
namespace {

using Bytes = std::vector<std::byte>;
constexpr uint64_t kCount = 301, kSeed = 5;

Case make(Collective collective, DataType type, Op op, int rank, int ranks) {
  Options options;
  options.collective = collective;
  const uint64_t blocks = has_blocks(collective) ? static_cast<uint64_t>(ranks) : 1;
  return make_case(options, type, op, ranks / 2, rank, ranks, kCount * blocks * type_bytes(type));
}

Bytes input(const Case& c) {
  Bytes send(std::max<uint64_t>(c.send_elements(), 1) * type_bytes(c.type));
  fill_input(c, kSeed, send.data());
  return send;
}

// The sum of these ranks' inputs, in two halves and then together, as a tree would.
Bytes reduced(DataType type, Op op, int ranks, int left_out) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; r++) {
    if (r == left_out) continue;
    inputs.push_back(input(make(Collective::all_reduce, type, op, r, ranks)));
    if (op != Op::premul_sum) continue;
    std::byte scalar[8];
    premul_scalar(type, r, scalar);
    scale(type, inputs.back().data(), inputs.back().data(), scalar, kCount);
  }
  std::vector<const void*> terms;
  for (const Bytes& bytes : inputs) terms.push_back(bytes.data());
  const size_t half = (terms.size() + 1) / 2;
  Bytes out(kCount * type_bytes(type)), first = out, second = out;
  reduce(type, op, first.data(), std::span(terms).first(half), kCount);
  std::vector<const void*> parts = {first.data()};
  if (half < terms.size()) {
    reduce(type, op, second.data(), std::span(terms).subspan(half), kCount);
    parts.push_back(second.data());
  }
  reduce(type, op, out.data(), parts, kCount, static_cast<uint64_t>(ranks));
  return out;
}

TEST(BenchCheck, SumsOfEveryTypeAndOp) {
  for (const int ranks : {1, 2, 3, 8, 64, 200})
    for (int t = 0; t < SENNIT_TYPE_COUNT; t++)
      for (int o = 0; o <= static_cast<int>(Op::premul_sum); o++) {
        const DataType type = static_cast<DataType>(t);
        const Op op = static_cast<Op>(o);
        if (!applies(op, type)) continue;
        SCOPED_TRACE(std::string(name(type)) + " " + std::string(name(op)) + " " +
                     std::to_string(ranks));
        const Case c = make(Collective::all_reduce, type, op, 0, ranks);
        Bytes out = reduced(type, op, ranks, -1);
        const Checked right = check_output(c, kSeed, out.data());
        EXPECT_EQ(right.wrong, 0u) << right.first;
        std::memset(out.data() + 7 * type_bytes(type), 0x77, type_bytes(type));
        const Checked one = check_output(c, kSeed, out.data());
        EXPECT_EQ(one.wrong, 1u);
        EXPECT_EQ(one.first.find("element 7 is "), 0u) << one.first;
        // A contribution that is missing; an average of 8-bit integers over 200 ranks is always 0.
        const bool blind =
            op == Op::min || op == Op::max || op == Op::band || op == Op::bor || ranks == 1 ||
            (op == Op::avg && ranks == 200 && t <= static_cast<int>(DataType::uint8));
        if (blind) continue;
        out = reduced(type, op, ranks, ranks / 2);
        EXPECT_GT(check_output(c, kSeed, out.data()).wrong, 0u);
      }
}

// What each collective must deliver, written down a second time.
TEST(BenchCheck, MovedDataIsComparedWithItsOrigin) {
  const int ranks = 4, root = 2;
  const DataType type = DataType::int32;
  const size_t block = kCount * 4;
  for (const Collective collective :
       {Collective::all_gather, Collective::gather, Collective::broadcast, Collective::scatter,
        Collective::all_to_all, Collective::send_recv})
    for (int me = 0; me < ranks; me++) {
      SCOPED_TRACE(std::string(name(collective)) + " at rank " + std::to_string(me));
      const Case c = make(collective, type, Op::sum, me, ranks);
      const auto of = [&](int rank) { return input(make(collective, type, Op::sum, rank, ranks)); };
      Bytes out;
      const auto append = [&](const Bytes& from, size_t index) {
        out.insert(out.end(), from.begin() + ptrdiff_t(index * block),
                   from.begin() + ptrdiff_t((index + 1) * block));
      };
      if (collective == Collective::broadcast) append(of(root), 0);
      if (collective == Collective::scatter) append(of(root), size_t(me));
      if (collective == Collective::send_recv) append(of((me + 3) % 4), 0);
      for (int r = 0; r < ranks; r++) {
        if (collective == Collective::all_gather ||
            (collective == Collective::gather && me == root))
          append(of(r), 0);
        if (collective == Collective::all_to_all) append(of(r), size_t(me));
      }
      ASSERT_EQ(out.size(), c.recv_elements() * 4);
      const Checked right = check_output(c, kSeed, out.data());
      EXPECT_EQ(right.wrong, 0u) << right.first;
      if (out.empty()) continue;
      std::swap_ranges(out.begin(), out.begin() + 4, out.begin() + 4);  // neighbours changed places
      EXPECT_EQ(check_output(c, kSeed, out.data()).wrong, 2u);
    }
}

TEST(BenchCheck, InputMustStayAsItWas) {
  const Case c = make(Collective::all_reduce, DataType::bfloat16, Op::sum, 1, 3);
  Bytes send = input(c);
  EXPECT_EQ(check_input(c, kSeed, send.data()).wrong, 0u);
  send[100] ^= std::byte{1};
  EXPECT_EQ(check_input(c, kSeed, send.data()).wrong, 1u);
}

}  // namespace
}  // namespace sennit::bench
