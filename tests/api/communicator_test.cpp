// The public interface on real transports, ranks as threads: every collective, type and operation
// against a plain reference, in and out of place, at odd counts and alignments. Works, groups and
// splits: tests/api/works_test.cpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "reduce/reduce.hpp"
#include "tests/support/ranks.hpp"

using sennit::DataType;
using sennit::Op;
using sennit_test::Ranks;

namespace {

using Bytes = std::vector<unsigned char>;

// Element i of rank r's input (of block b): small integers, so that sums of every type are exact up
// to 16 ranks.
double value(int rank, size_t block, size_t i) {
  return static_cast<double>((rank * 7 + static_cast<int>(block) * 3 + static_cast<int>(i % 11)) %
                             3);
}

void put(DataType type, Bytes& buffer, size_t i, double v) {
  sennit::from_double(type, v, buffer.data() + i * sennit::type_bytes(type));
}
double get(DataType type, const Bytes& buffer, size_t i) {
  return sennit::to_double(type, buffer.data() + i * sennit::type_bytes(type));
}

double combine(Op op, double a, double b) {
  switch (op) {
    case Op::prod:
      return a * b;
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// The expected value of element i of block b over n ranks.
double reduced(Op op, DataType type, int n, size_t block, size_t i) {
  double x = value(0, block, i);
  for (int r = 1; r < n; r++) x = combine(op, x, value(r, block, i));
  if (op != Op::avg) return x;
  const bool integer = type <= DataType::uint64;
  return integer ? std::trunc(x / n) : x / n;
}

sennit_type_t c_type(DataType t) { return static_cast<sennit_type_t>(t); }
sennit_op_t c_op(Op o) { return static_cast<sennit_op_t>(o); }

double tolerance(DataType type) {
  switch (type) {
    case DataType::float8_e4m3:
      return 0.07;
    case DataType::float8_e5m2:
      return 0.13;
    case DataType::bfloat16:
      return 0.005;
    case DataType::float16:
      return 0.001;
    case DataType::float32:
      return 1e-6;
    default:
      return 1e-12;
  }
}

void expect_near(DataType type, const Bytes& buffer, size_t i, double want, const char* what) {
  const double got = get(type, buffer, i);
  if (std::abs(got - want) > tolerance(type) * std::max(1.0, std::abs(want)))
    ADD_FAILURE() << what << " element " << i << " of " << sennit::name(type) << ": " << got
                  << ", expected " << want;
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, ReduceEveryTypeAndOp) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    for (int t = 0; t < SENNIT_TYPE_COUNT; t++) {
      for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg}) {
        const auto type = static_cast<DataType>(t);
        const size_t count = 37 + static_cast<size_t>(t);
        Bytes send(count * sennit::type_bytes(type) * static_cast<size_t>(n)), recv(send.size());
        for (size_t i = 0; i < count; i++) put(type, send, i, value(rank, 0, i));
        ASSERT_EQ(sennit_all_reduce(send.data(), recv.data(), count, c_type(type), c_op(op), comm),
                  SENNIT_OK)
            << sennit_last_error();
        for (size_t i = 0; i < count; i++)
          expect_near(type, recv, i, reduced(op, type, n, 0, i), "all_reduce");
        ASSERT_EQ(sennit_all_reduce(send.data(), send.data(), count, c_type(type), c_op(op), comm),
                  SENNIT_OK)
            << sennit_last_error();
        EXPECT_EQ(std::memcmp(send.data(), recv.data(), count * sennit::type_bytes(type)), 0)
            << "in place differs";

        for (size_t b = 0; b < static_cast<size_t>(n); b++)
          for (size_t i = 0; i < count; i++) put(type, send, b * count + i, value(rank, b, i));
        ASSERT_EQ(
            sennit_reduce_scatter(send.data(), recv.data(), count, c_type(type), c_op(op), comm),
            SENNIT_OK)
            << sennit_last_error();
        for (size_t i = 0; i < count; i++)
          expect_near(type, recv, i, reduced(op, type, n, static_cast<size_t>(rank), i),
                      "reduce_scatter");
        const int root = (t + 1) % n;
        ASSERT_EQ(
            sennit_reduce(send.data(), recv.data(), count, c_type(type), c_op(op), root, comm),
            SENNIT_OK)
            << sennit_last_error();
        if (rank == root)
          for (size_t i = 0; i < count; i++)
            expect_near(type, recv, i, reduced(op, type, n, 0, i), "reduce");
      }
    }
  });
}

TEST_P(Collectives, MoveData) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  const auto type = DataType::int32;
  ranks.run([&](int rank, sennit_comm_t comm) {
    const auto blocks = static_cast<size_t>(n);
    for (const size_t count :
         {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{1000}, size_t{40001}}) {
      for (const bool in_place : {false, true}) {
        Bytes one(count * 4), all(count * 4 * blocks), out(count * 4 * blocks);
        const auto mine = static_cast<size_t>(rank);
        const auto fill = [&](Bytes& b, size_t block_at, size_t block) {
          for (size_t i = 0; i < count; i++)
            put(type, b, block_at * count + i,
                1000 * rank + static_cast<double>(block) + static_cast<double>(i) * 7);
        };
        const auto expect = [&](const Bytes& b, size_t block_at, int from, size_t block,
                                const char* what) {
          for (size_t i = 0; i < count; i++)
            if (get(type, b, block_at * count + i) !=
                1000 * from + static_cast<double>(block) + static_cast<double>(i) * 7) {
              ADD_FAILURE() << what << " count " << count << " in place " << in_place << " rank "
                            << rank << " block " << block_at << " element " << i;
              return;
            }
        };
        // all_gather
        fill(one, 0, mine);
        if (in_place) std::copy(one.begin(), one.end(), all.data() + mine * count * 4);
        ASSERT_EQ(sennit_all_gather(in_place ? all.data() + mine * count * 4 : one.data(),
                                    all.data(), count, SENNIT_INT32, comm),
                  SENNIT_OK)
            << sennit_last_error();
        for (int r = 0; r < n; r++)
          expect(all, static_cast<size_t>(r), r, static_cast<size_t>(r), "all_gather");
        for (int root = 0; root < n; root += 2) {
          // broadcast
          Bytes b(count * 4);
          if (rank == root) fill(b, 0, 5);
          ASSERT_EQ(sennit_broadcast(in_place || rank == root ? b.data() : nullptr, b.data(), count,
                                     SENNIT_INT32, root, comm),
                    SENNIT_OK)
              << sennit_last_error();
          expect(b, 0, root, 5, "broadcast");
          // gather
          fill(one, 0, mine);
          Bytes gathered(count * 4 * blocks);
          const bool here = in_place && rank == root;
          if (here) std::copy(one.begin(), one.end(), gathered.data() + mine * count * 4);
          ASSERT_EQ(sennit_gather(here ? gathered.data() + mine * count * 4 : one.data(),
                                  rank == root ? gathered.data() : nullptr, count, SENNIT_INT32,
                                  root, comm),
                    SENNIT_OK)
              << sennit_last_error();
          if (rank == root)
            for (int r = 0; r < n; r++)
              expect(gathered, static_cast<size_t>(r), r, static_cast<size_t>(r), "gather");
          // scatter
          Bytes parts(count * 4 * blocks), part(count * 4);
          if (rank == root)
            for (size_t r = 0; r < blocks; r++) fill(parts, r, r);
          ASSERT_EQ(sennit_scatter(rank == root ? parts.data() : nullptr,
                                   here ? parts.data() + mine * count * 4 : part.data(), count,
                                   SENNIT_INT32, root, comm),
                    SENNIT_OK)
              << sennit_last_error();
          if (here) std::copy_n(parts.data() + mine * count * 4, part.size(), part.data());
          expect(part, 0, root, mine, "scatter");
        }
        // all_to_all
        for (size_t r = 0; r < blocks; r++) fill(all, r, r);
        Bytes* target = in_place ? &all : &out;
        ASSERT_EQ(sennit_all_to_all(all.data(), target->data(), count, SENNIT_INT32, comm),
                  SENNIT_OK)
            << sennit_last_error();
        for (int r = 0; r < n; r++) expect(*target, static_cast<size_t>(r), r, mine, "all_to_all");
        ASSERT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
      }
    }
  });
}

TEST_P(Collectives, VectorVariants) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  const auto blocks = static_cast<size_t>(n);
  std::vector<size_t> counts(blocks), gaps(blocks);
  for (size_t r = 0; r < blocks; r++) counts[r] = r % 3 == 1 ? 0 : 100 * r + 3;
  size_t end = 0;
  for (size_t r = 0; r < blocks; r++) gaps[r] = end + 2, end = gaps[r] + counts[r];
  const auto cell = [](int from, size_t to, size_t i) {
    return static_cast<int64_t>(from * 1'000'000 + static_cast<int>(to) * 10'000 +
                                static_cast<int>(i));
  };
  ranks.run([&](int rank, sennit_comm_t comm) {
    const auto mine = static_cast<size_t>(rank);
    std::vector<int64_t> one(counts[mine]), all(end, -1);
    for (size_t i = 0; i < one.size(); i++) one[i] = cell(rank, 0, i);
    ASSERT_EQ(
        sennit_all_gather_v(one.data(), all.data(), counts.data(), gaps.data(), SENNIT_INT64, comm),
        SENNIT_OK)
        << sennit_last_error();
    for (size_t r = 0; r < blocks; r++)
      for (size_t i = 0; i < counts[r]; i++)
        ASSERT_EQ(all[gaps[r] + i], cell(static_cast<int>(r), 0, i)) << "all_gather_v block " << r;
    EXPECT_EQ(all[0], -1) << "a gap was written";

    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    std::vector<int64_t> input(total), part(counts[mine]);
    for (size_t i = 0; i < total; i++) input[i] = static_cast<int64_t>(i) * (rank + 1);
    ASSERT_EQ(sennit_reduce_scatter_v(input.data(), part.data(), counts.data(), SENNIT_INT64,
                                      SENNIT_SUM, comm),
              SENNIT_OK)
        << sennit_last_error();
    const size_t offset = std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
    for (size_t i = 0; i < part.size(); i++)
      ASSERT_EQ(part[i], static_cast<int64_t>(offset + i) * n * (n + 1) / 2) << "reduce_scatter_v";

    const int root = n - 1;
    std::vector<size_t> known(blocks, 0);  // ranks other than the root know their own count only
    known[mine] = counts[mine];
    std::fill(all.begin(), all.end(), -1);
    ASSERT_EQ(sennit_gather_v(one.data(), all.data(), rank == root ? counts.data() : known.data(),
                              gaps.data(), SENNIT_INT64, root, comm),
              SENNIT_OK)
        << sennit_last_error();
    for (size_t r = 0; rank == root && r < blocks; r++)
      for (size_t i = 0; i < counts[r]; i++)
        ASSERT_EQ(all[gaps[r] + i], cell(static_cast<int>(r), 0, i)) << "gather_v";
    std::vector<int64_t> got(counts[mine], -1);
    ASSERT_EQ(sennit_scatter_v(rank == root ? all.data() : nullptr, got.data(),
                               rank == root ? counts.data() : known.data(), gaps.data(),
                               SENNIT_INT64, root, comm),
              SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(got, one) << "scatter_v";

    // all_to_all_v: rank i sends (i + 2j) % 5 elements to rank j.
    const auto amount = [](size_t i, size_t j) { return (i + 2 * j) % 5; };
    std::vector<size_t> to(blocks), from(blocks);
    std::vector<int64_t> out, in;
    for (size_t j = 0; j < blocks; j++) {
      to[j] = amount(mine, j);
      from[j] = amount(j, mine);
      for (size_t k = 0; k < to[j]; k++) out.push_back(cell(rank, j, k));
    }
    in.assign(std::accumulate(from.begin(), from.end(), size_t{0}), -1);
    ASSERT_EQ(sennit_all_to_all_v(out.data(), to.data(), nullptr, in.data(), from.data(), nullptr,
                                  SENNIT_INT64, comm),
              SENNIT_OK)
        << sennit_last_error();
    size_t at = 0;
    for (size_t j = 0; j < blocks; j++)
      for (size_t k = 0; k < from[j]; k++)
        ASSERT_EQ(in[at++], cell(static_cast<int>(j), mine, k)) << "all_to_all_v from " << j;
  });
}

TEST_P(Collectives, MisalignedAndLarge) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    const size_t count = 1'000'003;
    std::vector<char> memory(count * 4 + 8);
    float* x = reinterpret_cast<float*>(memory.data() + 1);
    for (size_t i = 0; i < count; i++) {
      const auto v = static_cast<float>((i + static_cast<size_t>(rank)) % 64);
      std::memcpy(reinterpret_cast<char*>(x) + 4 * i, &v, 4);
    }
    ASSERT_EQ(sennit_all_reduce(x, x, count, SENNIT_FLOAT32, SENNIT_SUM, comm), SENNIT_OK)
        << sennit_last_error();
    for (size_t i = 0; i < count; i += 997) {
      float want = 0, v = 0;
      for (int r = 0; r < n; r++) want += static_cast<float>((i + static_cast<size_t>(r)) % 64);
      std::memcpy(&v, reinterpret_cast<char*>(x) + 4 * i, 4);
      ASSERT_EQ(v, want) << "element " << i;
    }
  });
}

TEST_P(Collectives, PremulSum) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    const double half = 0.5;
    sennit_op_t op;
    ASSERT_EQ(sennit_op_create_premul_sum(&op, &half, SENNIT_FLOAT64, comm), SENNIT_OK);
    std::vector<double> x(100, rank), y(100);
    ASSERT_EQ(sennit_all_reduce(x.data(), y.data(), x.size(), SENNIT_FLOAT64, op, comm), SENNIT_OK)
        << sennit_last_error();
    for (const double v : y) ASSERT_EQ(v, 0.25 * n * (n - 1));
    EXPECT_EQ(sennit_all_reduce(x.data(), y.data(), 1, SENNIT_FLOAT32, op, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_op_destroy(op, comm), SENNIT_OK);
    EXPECT_EQ(sennit_op_destroy(op, comm), SENNIT_INVALID_ARGUMENT);
  });
}

TEST_P(Collectives, BarrierWaitsForTheLast) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  for (int late = 0; late < ranks.size(); late++) {
    std::atomic<bool> arrived{false};
    ranks.run([&](int rank, sennit_comm_t comm) {
      if (rank == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        arrived = true;
      }
      ASSERT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
      EXPECT_TRUE(arrived) << "rank " << rank << " did not wait for rank " << late;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, testing::Values(1, 2, 3, 5, 8),
                         [](const auto& test) { return std::to_string(test.param) + "_ranks"; });

}  // namespace
