// request.cpp: names of collectives, types and operations, and sizes of requests.
#include "schedule/request.hpp"

#include <array>

#include <fmt/core.h>

#include "base/arithmetic.hpp"

namespace sennit {
namespace {

constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "gather",     "scatter",        "all_to_all", "barrier",   "send_recv"};

struct TypeEntry {
  std::string_view name, alias;
  size_t bytes;
};
// Aliases are the names that nccl-tests' -d takes.
constexpr std::array<TypeEntry, SENNIT_TYPE_COUNT> kTypes = {{{"int8", "int8", 1},
                                                              {"uint8", "uint8", 1},
                                                              {"int32", "int32", 4},
                                                              {"uint32", "uint32", 4},
                                                              {"int64", "int64", 8},
                                                              {"uint64", "uint64", 8},
                                                              {"float16", "half", 2},
                                                              {"bfloat16", "bf16", 2},
                                                              {"float32", "float", 4},
                                                              {"float64", "double", 8},
                                                              {"float8_e4m3", "f8e4m3", 1},
                                                              {"float8_e5m2", "f8e5m2", 1}}};
constexpr std::array<std::string_view, kOps> kOpNames = {"sum",  "prod", "min",  "max",       "avg",
                                                         "band", "bor",  "bxor", "premul_sum"};

std::string list(auto&& names) {
  std::string text;
  for (auto&& n : names) text += (text.empty() ? "" : ", ") + std::string(n);
  return text;
}

}  // namespace

size_t type_bytes(DataType type) { return kTypes[static_cast<size_t>(type)].bytes; }
bool applies(Op op, DataType type) {
  return (op != Op::band && op != Op::bor && op != Op::bxor) || type <= DataType::uint64;
}
bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}
std::string_view name(Collective collective) {
  return kCollectiveNames[static_cast<size_t>(collective)];
}
std::string_view name(DataType type) { return kTypes[static_cast<size_t>(type)].name; }
std::string_view name(Op op) { return kOpNames[static_cast<size_t>(op)]; }

Result<Collective> parse_collective(std::string_view text) {
  for (size_t i = 0; i < kCollectiveNames.size(); i++)
    if (kCollectiveNames[i] == text) return static_cast<Collective>(i);
  return invalid("collective '" + std::string(text) + "': expected one of " +
                 list(kCollectiveNames));
}

Result<DataType> parse_type(std::string_view text) {
  std::array<std::string_view, kTypes.size()> names;
  for (size_t i = 0; i < kTypes.size(); i++) {
    if (kTypes[i].name == text || kTypes[i].alias == text) return static_cast<DataType>(i);
    names[i] = kTypes[i].name;
  }
  return invalid("type '" + std::string(text) + "': expected one of " + list(names));
}

Result<Op> parse_op(std::string_view text) {
  if (text == "mulsum") return Op::premul_sum;
  for (size_t i = 0; i < kOpNames.size(); i++)
    if (kOpNames[i] == text) return static_cast<Op>(i);
  return invalid("op '" + std::string(text) + "': expected one of " + list(kOpNames));
}

Status check_size(const Request& request, int ranks) {
  constexpr Wide kMostBytes = Wide{1} << 60;
  const auto n = static_cast<Wide>(ranks);
  const bool one =
      request.collective == Collective::all_reduce || request.collective == Collective::broadcast ||
      request.collective == Collective::reduce || request.collective == Collective::send_recv;
  Wide elements =
      request.collective == Collective::barrier ? 0 : request.count * (one ? Wide{1} : n);
  if (!request.counts.empty()) elements = 0;
  for (const uint64_t count : request.counts) elements += count;
  // 2^64 elements of 8 bytes in each of 2^31 blocks on as many ranks: dividing keeps that from
  // wrapping as well.
  const Wide most = kMostBytes / (n * type_bytes(request.type));
  if (elements <= most) return {};
  return invalid(
      fmt::format("{} of {} elements of {} bytes on each of {} ranks is too large: at most {}",
                  name(request.collective), elements, type_bytes(request.type), ranks, most));
}

double payload_bytes(const Request& request, int ranks) {
  const double element = static_cast<double>(type_bytes(request.type));
  const double count = static_cast<double>(request.count);
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return count * element;
    case Collective::barrier:
      return 0;
    case Collective::all_to_all:
      return count * element * (ranks - 1);
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
      break;
  }
  if (request.counts.empty()) return count * element * ranks;
  double sum = 0;
  for (const uint64_t c : request.counts) sum += static_cast<double>(c);
  return sum * element;
}

}  // namespace sennit
