// request.hpp: what is asked of the library: a collective with its count, type, operation and root.
//
// Pure data; comparable, hashable. Everything that must agree between ranks is in it, so its hash
// is the signature that every message carries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "sennit/sennit.h"

namespace sennit {

// What ranks do together; send_recv is between two.
enum class Collective : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  send_recv
};
inline constexpr int kCollectives = 10;

// Of elements.
enum class DataType : uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3,
  float8_e5m2
};
// In the order of sennit_op_t; premul_sum is any that was created.
enum class Op : uint8_t { sum, prod, min, max, avg, band, bor, bxor, premul_sum };
inline constexpr int kOps = 9;

// Of one element.
size_t type_bytes(DataType type);
bool applies(Op op, DataType type);            // bitwise operations are of integers
bool has_root(Collective collective);          // broadcast, reduce, gather, scatter
std::string_view name(Collective collective);  // "all_reduce", ...
std::string_view name(DataType type);          // "float32", ...
std::string_view name(Op op);                  // "sum", ...
// The names above, and those that nccl-tests takes: "float", "half", "mulsum", ... The error lists
// what is expected.
Result<Collective> parse_collective(std::string_view text);
Result<DataType> parse_type(std::string_view text);
Result<Op> parse_op(std::string_view text);

// Ranks and blocks are in fabric order.
struct Request {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  Op op = Op::sum;
  bool in_place = false;
  int root = 0;  // position in fabric order (planner and algorithms), not the user's rank
  // elements per block: the vector (all-reduce, broadcast, reduce) or one rank's block
  uint64_t count = 0;
  // v-variants: elements per block in fabric order, one per rank; empty otherwise. For all-to-all
  // it stays empty and `vector_variant` is set, because no rank knows the others' counts.
  std::vector<uint64_t> counts;
  bool vector_variant = false;

  uint64_t count_of(int block) const {
    return counts.empty() ? count : counts[static_cast<size_t>(block)];
  }
  bool reduces() const {
    return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
           collective == Collective::reduce;
  }
  bool operator==(const Request&) const = default;
};

// The buffers of all ranks together stay below 1 EiB: so no sum of bytes, over whatever messages
// there are, wraps around in 64 bits. The error says how much was asked for.
Status check_size(const Request& request, int ranks);

// Payload M in bytes as the bounds define it: the full vector (all-reduce, broadcast, reduce, and
// the sum of all blocks for all-gather, reduce-scatter, gather, scatter), or, for all-to-all, what
// a rank sends to the others.
double payload_bytes(const Request& request, int ranks);

}  // namespace sennit
