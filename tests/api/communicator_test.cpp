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
    case Op::band:
      return static_cast<double>(static_cast<int64_t>(a) & static_cast<int64_t>(b));
    case Op::bor:
      return static_cast<double>(static_cast<int64_t>(a) | static_cast<int64_t>(b));
    case Op::bxor:
      return static_cast<double>(static_cast<int64_t>(a) ^ static_cast<int64_t>(b));
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
      for (const Op op :
           {Op::sum, Op::prod, Op::min, Op::max, Op::avg, Op::band, Op::bor, Op::bxor}) {
        const auto type = static_cast<DataType>(t);
        if (!sennit::applies(op, type)) continue;
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

// One rank's collectives that move blocks of int32 and do not reduce; every element is looked at.
class Moves {
 public:
  Moves(sennit_comm_t comm, int rank, int n, size_t count, bool in_place)
      : comm_(comm),
        rank_(rank),
        mine_(static_cast<size_t>(rank)),
        blocks_(static_cast<size_t>(n)),
        count_(count),
        block_bytes_(count * 4),
        in_place_(in_place),
        all_(block_bytes_ * blocks_) {}

  void all_gather() {
    Bytes one = block(mine_);
    if (in_place_) std::copy(one.begin(), one.end(), my_part(all_));
    ASSERT_EQ(sennit_all_gather(in_place_ ? my_part(all_) : one.data(), all_.data(), count_,
                                SENNIT_INT32, comm_),
              SENNIT_OK)
        << sennit_last_error();
    for (size_t r = 0; r < blocks_; r++) expect(all_, r, static_cast<int>(r), r, "all_gather");
  }

  void broadcast(int root) {
    Bytes data = rank_ == root ? block(5) : Bytes(block_bytes_);
    ASSERT_EQ(sennit_broadcast(in_place_ || rank_ == root ? data.data() : nullptr, data.data(),
                               count_, SENNIT_INT32, root, comm_),
              SENNIT_OK)
        << sennit_last_error();
    expect(data, 0, root, 5, "broadcast");
  }

  void gather(int root) {
    Bytes one = block(mine_), gathered(block_bytes_ * blocks_);
    const bool here = in_place_ && rank_ == root;
    if (here) std::copy(one.begin(), one.end(), my_part(gathered));
    ASSERT_EQ(
        sennit_gather(here ? my_part(gathered) : one.data(),
                      rank_ == root ? gathered.data() : nullptr, count_, SENNIT_INT32, root, comm_),
        SENNIT_OK)
        << sennit_last_error();
    if (rank_ != root) return;
    for (size_t r = 0; r < blocks_; r++) expect(gathered, r, static_cast<int>(r), r, "gather");
  }

  void scatter(int root) {
    Bytes parts(block_bytes_ * blocks_), part(block_bytes_);
    const bool here = in_place_ && rank_ == root;
    if (rank_ == root)
      for (size_t r = 0; r < blocks_; r++) fill(parts, r, r);
    ASSERT_EQ(
        sennit_scatter(rank_ == root ? parts.data() : nullptr, here ? my_part(parts) : part.data(),
                       count_, SENNIT_INT32, root, comm_),
        SENNIT_OK)
        << sennit_last_error();
    if (here) std::copy_n(my_part(parts), part.size(), part.data());
    expect(part, 0, root, mine_, "scatter");
  }

  void all_to_all() {
    Bytes out(block_bytes_ * blocks_);
    for (size_t r = 0; r < blocks_; r++) fill(all_, r, r);
    Bytes& target = in_place_ ? all_ : out;
    ASSERT_EQ(sennit_all_to_all(all_.data(), target.data(), count_, SENNIT_INT32, comm_), SENNIT_OK)
        << sennit_last_error();
    for (size_t r = 0; r < blocks_; r++)
      expect(target, r, static_cast<int>(r), mine_, "all_to_all");
  }

 private:
  static constexpr DataType kType = DataType::int32;
  static double element(int from, size_t block, size_t i) {
    return 1000 * from + static_cast<double>(block) + static_cast<double>(i) * 7;
  }
  unsigned char* my_part(Bytes& buffer) const { return buffer.data() + mine_ * block_bytes_; }
  void fill(Bytes& buffer, size_t at, size_t block) const {
    for (size_t i = 0; i < count_; i++)
      put(kType, buffer, at * count_ + i, element(rank_, block, i));
  }
  Bytes block(size_t number) const {
    Bytes made(block_bytes_);
    fill(made, 0, number);
    return made;
  }
  void expect(const Bytes& buffer, size_t at, int from, size_t block, const char* what) const {
    for (size_t i = 0; i < count_; i++) {
      if (get(kType, buffer, at * count_ + i) == element(from, block, i)) continue;
      ADD_FAILURE() << what << " count " << count_ << " in place " << in_place_ << " rank " << rank_
                    << " block " << at << " element " << i;
      return;
    }
  }

  const sennit_comm_t comm_;
  const int rank_;
  const size_t mine_;
  const size_t blocks_, count_, block_bytes_;
  const bool in_place_;
  Bytes all_;
};

TEST_P(Collectives, MoveData) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    for (const size_t count : std::initializer_list<size_t>{0, 1, 2, 3, 1000, 40001}) {
      for (const bool in_place : {false, true}) {
        Moves moves(comm, rank, n, count, in_place);
        moves.all_gather();
        for (int root = 0; root < n; root += 2) {
          moves.broadcast(root);
          moves.gather(root);
          moves.scatter(root);
        }
        moves.all_to_all();
        ASSERT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
      }
    }
  });
}

// One rank's v-variants: blocks of all sizes, also none, with gaps between them.
class VectorMoves {
 public:
  VectorMoves(sennit_comm_t comm, int rank, int n)
      : comm_(comm), rank_(rank), mine_(static_cast<size_t>(rank)), n_(n) {
    const auto blocks = static_cast<size_t>(n);
    size_t end = 0;
    for (size_t r = 0; r < blocks; r++) {
      counts_.push_back(r % 3 == 1 ? 0 : 100 * r + 3);
      gaps_.push_back(end + 2);
      end = gaps_[r] + counts_[r];
    }
    all_.assign(end, -1);
    for (size_t i = 0; i < counts_[mine_]; i++) one_.push_back(cell(rank, 0, i));
  }

  void all_gather() {
    ASSERT_EQ(sennit_all_gather_v(one_.data(), all_.data(), counts_.data(), gaps_.data(),
                                  SENNIT_INT64, comm_),
              SENNIT_OK)
        << sennit_last_error();
    expect_all("all_gather_v");
    EXPECT_EQ(all_[0], -1) << "a gap was written";
  }

  void reduce_scatter() {
    const size_t total = std::accumulate(counts_.begin(), counts_.end(), size_t{0});
    std::vector<int64_t> input(total), part(counts_[mine_]);
    for (size_t i = 0; i < total; i++) input[i] = static_cast<int64_t>(i) * (rank_ + 1);
    ASSERT_EQ(sennit_reduce_scatter_v(input.data(), part.data(), counts_.data(), SENNIT_INT64,
                                      SENNIT_SUM, comm_),
              SENNIT_OK)
        << sennit_last_error();
    const size_t offset = std::accumulate(counts_.begin(), counts_.begin() + rank_, size_t{0});
    for (size_t i = 0; i < part.size(); i++)
      ASSERT_EQ(part[i], static_cast<int64_t>(offset + i) * n_ * (n_ + 1) / 2)
          << "reduce_scatter_v";
  }

  // To the root and back.
  void gather_and_scatter(int root) {
    std::vector<size_t> known(counts_.size(), 0);  // others than the root know their own count only
    known[mine_] = counts_[mine_];
    const size_t* const counts = rank_ == root ? counts_.data() : known.data();
    std::fill(all_.begin(), all_.end(), -1);
    ASSERT_EQ(
        sennit_gather_v(one_.data(), all_.data(), counts, gaps_.data(), SENNIT_INT64, root, comm_),
        SENNIT_OK)
        << sennit_last_error();
    if (rank_ == root) expect_all("gather_v");
    std::vector<int64_t> got(counts_[mine_], -1);
    ASSERT_EQ(sennit_scatter_v(rank_ == root ? all_.data() : nullptr, got.data(), counts,
                               gaps_.data(), SENNIT_INT64, root, comm_),
              SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(got, one_) << "scatter_v";
  }

  // Rank i sends (i + 2j) % 5 elements to rank j.
  void all_to_all() {
    const size_t blocks = counts_.size();
    const auto amount = [](size_t i, size_t j) { return (i + 2 * j) % 5; };
    std::vector<size_t> to(blocks), from(blocks);
    std::vector<int64_t> out;
    for (size_t j = 0; j < blocks; j++) {
      to[j] = amount(mine_, j);
      from[j] = amount(j, mine_);
      for (size_t k = 0; k < to[j]; k++) out.push_back(cell(rank_, j, k));
    }
    std::vector<int64_t> in(std::accumulate(from.begin(), from.end(), size_t{0}), -1);
    ASSERT_EQ(sennit_all_to_all_v(out.data(), to.data(), nullptr, in.data(), from.data(), nullptr,
                                  SENNIT_INT64, comm_),
              SENNIT_OK)
        << sennit_last_error();
    size_t at = 0;
    for (size_t j = 0; j < blocks; j++)
      for (size_t k = 0; k < from[j]; k++)
        ASSERT_EQ(in[at++], cell(static_cast<int>(j), mine_, k)) << "all_to_all_v from " << j;
  }

  // Ranks i and j exchange (i + j) % 5 elements, each in the memory of what it sends.
  void all_to_all_in_place() {
    const size_t blocks = counts_.size();
    std::vector<size_t> amounts(blocks), gaps(blocks);
    size_t end = 0;
    for (size_t j = 0; j < blocks; j++) {
      amounts[j] = (mine_ + j) % 5;
      gaps[j] = end + 1;
      end = gaps[j] + amounts[j];
    }
    std::vector<int64_t> data(end, -1);
    for (size_t j = 0; j < blocks; j++)
      for (size_t k = 0; k < amounts[j]; k++) data[gaps[j] + k] = cell(rank_, j, k);
    ASSERT_EQ(sennit_all_to_all_v(data.data(), amounts.data(), gaps.data(), data.data(),
                                  amounts.data(), gaps.data(), SENNIT_INT64, comm_),
              SENNIT_OK)
        << sennit_last_error();
    for (size_t j = 0; j < blocks; j++) {
      EXPECT_EQ(data[gaps[j] - 1], -1) << "a gap was written";
      for (size_t k = 0; k < amounts[j]; k++)
        ASSERT_EQ(data[gaps[j] + k], cell(static_cast<int>(j), mine_, k)) << "from " << j;
    }
  }

 private:
  static int64_t cell(int from, size_t to, size_t i) {
    return static_cast<int64_t>(from * 1'000'000 + static_cast<int>(to) * 10'000 +
                                static_cast<int>(i));
  }
  void expect_all(const char* what) const {
    for (size_t r = 0; r < counts_.size(); r++)
      for (size_t i = 0; i < counts_[r]; i++)
        ASSERT_EQ(all_[gaps_[r] + i], cell(static_cast<int>(r), 0, i)) << what << " block " << r;
  }

  const sennit_comm_t comm_;
  const int rank_;
  const size_t mine_;
  const int n_;
  std::vector<size_t> counts_, gaps_;  // by rank
  std::vector<int64_t> one_, all_;
};

TEST_P(Collectives, VectorVariants) {
  Ranks ranks(GetParam());
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    VectorMoves moves(comm, rank, n);
    moves.all_gather();
    moves.reduce_scatter();
    moves.gather_and_scatter(n - 1);
    moves.all_to_all();
    moves.all_to_all_in_place();
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
