// call.cpp: see api/call/call.hpp.
#include "api/call/call.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include <fmt/core.h>

#include "base/process/process_numbers.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMostElements = uint64_t{1} << 56;

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

std::string name_of(const Call& call) {
  if (call.collective == Collective::send_recv) return call.receiving ? "recv" : "send";
  return std::string(name(call.collective));
}

Status check_op(const Call& call, const CustomOps& ops) {
  if (!reduces(call.collective)) return {};
  if (call.op < SENNIT_OP_CUSTOM_BASE) {
    if (call.op < 0 || call.op > SENNIT_BXOR)
      return invalid(fmt::format("{}: op {}: expected SENNIT_SUM..SENNIT_BXOR or a created one",
                                 name_of(call), call.op));
    if (applies(static_cast<Op>(call.op), call.type)) return {};
    return invalid(fmt::format("{}: {} of {}: bitwise operations are of integer types",
                               name_of(call), name(static_cast<Op>(call.op)), name(call.type)));
  }
  const CustomOps::CustomOp* const found = ops.find(call.op);
  if (!found)
    return invalid(
        fmt::format("{}: op {} was not created on this communicator", name_of(call), call.op));
  if (found->type != call.type)
    return invalid(fmt::format("{}: op {} was created for {}, the call is for {}", name_of(call),
                               call.op, name(found->type), name(call.type)));
  if (found->kind == MemoryKind::device && !call.on_device)
    return invalid(
        fmt::format("{}: op {} has its scalar at {}, in a device's memory, and the call "
                    "is on the host's: give the scalar in the host's memory",
                    name_of(call), call.op, found->in_stream));
  return {};
}

// What this rank uses of a v-variant's arrays: sums of these stay far below 2^64 bytes.
Status check_counts(const Call& call, int rank, int ranks) {
  if (!call.counts || (call.collective == Collective::all_to_all && !call.recv_counts))
    return invalid(name_of(call) + "_v: counts is NULL");
  const bool rooted =
      call.collective == Collective::gather || call.collective == Collective::scatter;
  for (int r = 0; r < ranks; r++) {
    if (rooted && rank != call.root && r != rank) continue;
    for (const size_t* values :
         {call.counts, call.displacements, call.recv_counts, call.recv_displacements})
      if (values && values[r] > kMostElements / static_cast<size_t>(ranks))
        return invalid(fmt::format("{}_v: rank {}'s count or displacement is {}: too large",
                                   name(call.collective), r, values[r]));
  }
  if (call.recv_counts && call.counts[rank] != call.recv_counts[rank])
    return invalid(
        fmt::format("{}_v: rank {} sends {} elements to itself and expects {} of them: "
                    "make the counts the same",
                    name_of(call), rank, call.counts[rank], call.recv_counts[rank]));
  return {};
}

// Whether this rank's call reads its send buffer, and writes its receive buffer.
bool sends(const Call& call, int rank) {
  if (call.collective == Collective::scatter || call.collective == Collective::broadcast)
    return call.root == rank;
  return call.collective == Collective::send_recv ? !call.receiving : true;
}
bool receives(const Call& call, int rank) {
  if (call.collective == Collective::gather || call.collective == Collective::reduce)
    return call.root == rank;
  return call.collective == Collective::send_recv ? call.receiving : true;
}

// Whether a v-variant's buffer on this rank has any element: of its own block, or of those of all.
bool has_elements(const size_t* counts, bool of_all, int rank, int ranks) {
  if (!of_all) return counts[rank] > 0;
  return std::any_of(counts, counts + ranks, [](size_t count) { return count > 0; });
}
bool reads_elements(const Call& call, int rank, int ranks) {
  if (!sends(call, rank)) return false;
  if (!call.vector_variant) return call.count > 0;
  const bool of_all = call.collective == Collective::reduce_scatter ||
                      call.collective == Collective::scatter ||
                      call.collective == Collective::all_to_all;
  return has_elements(call.counts, of_all, rank, ranks);
}
bool writes_elements(const Call& call, int rank, int ranks) {
  if (!receives(call, rank)) return false;
  if (!call.vector_variant) return call.count > 0;
  if (call.collective == Collective::all_to_all)
    return has_elements(call.recv_counts, true, rank, ranks);
  const bool of_all =
      call.collective == Collective::all_gather || call.collective == Collective::gather;
  return has_elements(call.counts, of_all, rank, ranks);
}

// Whether the blocks of an all_to_all_v lie alike on its two sides.
bool same_blocks(const Call& call, int ranks) {
  size_t before = 0;
  for (int r = 0; r < ranks; r++) {
    const size_t count = call.counts[r];
    if (count != call.recv_counts[r]) return false;
    const size_t from = call.displacements ? call.displacements[r] : before;
    const size_t to = call.recv_displacements ? call.recv_displacements[r] : before;
    if (count > 0 && from != to) return false;
    before += count;
  }
  return true;
}

Status check_buffers(const Call& call, int rank, int ranks) {
  const auto refused = [&](std::string_view why) {
    return invalid(fmt::format("{}{}: {}", name_of(call), call.vector_variant ? "_v" : "", why));
  };
  const bool reads = reads_elements(call, rank, ranks);
  const bool writes = writes_elements(call, rank, ranks);
  if (reads && !call.send) return refused("the send buffer is NULL");
  if (writes && !call.recv) return refused("the receive buffer is NULL");
  // In place a block that comes takes the place of one whose copy is sent.
  const bool exchanges =
      call.vector_variant && call.collective == Collective::all_to_all && reads && writes;
  if (exchanges && call.send == call.recv && !same_blocks(call, ranks))
    return refused(
        "send and recv are one buffer, and the counts or displacements of its two sides differ: "
        "make them the same, or give it two buffers");
  return {};
}

// Bytes before this rank's block in the buffer that has one for each rank.
size_t bytes_before(const Call& call, int rank) {
  const auto r = static_cast<size_t>(rank);
  if (!call.vector_variant) return r * call.count * type_bytes(call.type);
  uint64_t elements = 0;
  if (call.displacements && call.collective != Collective::reduce_scatter)
    elements = call.displacements[r];
  else
    for (size_t i = 0; i < r; i++) elements += call.counts[i];
  return elements * type_bytes(call.type);
}

}  // namespace

CallMemory memory_of(const Call& call, int rank) {
  if (call.collective == Collective::barrier) return {};
  return {sends(call, rank) ? call.send : nullptr, receives(call, rank) ? call.recv : nullptr};
}

// ---- custom ops ----

int CustomOps::create(const void* scalar, DataType type) {
  CustomOp op{type};
  std::memcpy(op.scalar.data(), scalar, type_bytes(type));
  return add(op);
}

int CustomOps::create_in_stream(const void* scalar, MemoryKind kind, DataType type) {
  CustomOp op{type};
  op.in_stream = scalar;
  op.kind = kind;
  return add(op);
}

int CustomOps::add(const CustomOp& op) {
  static ProcessNumbers numbers(SENNIT_OP_CUSTOM_BASE, INT_MAX);
  return numbers.add(op, &ops_);
}

Status CustomOps::destroy(int op) {
  if (ops_.erase(op) == 0)
    return invalid(fmt::format("op {}: not created on this communicator", op));
  return {};
}

const CustomOps::CustomOp* CustomOps::find(int op) const {
  const auto found = ops_.find(op);
  return found == ops_.end() ? nullptr : &found->second;
}

// ---- checks, request ----

Status check_call(const Call& call, const CustomOps& ops, int rank, int ranks) {
  const bool message = call.collective == Collective::send_recv;
  const bool from_any = message && call.receiving && call.root == SENNIT_ANY_SOURCE;
  if ((has_root(call.collective) || message) && !from_any && (call.root < 0 || call.root >= ranks))
    return invalid(fmt::format("{}: {} {}: expected 0 <= it < {}", name_of(call),
                               message ? "peer" : "root", call.root, ranks));
  if (from_any && ranks == 1)
    return invalid("recv from any source: the communicator has no other rank");
  if (call.tag < 0)
    return invalid(fmt::format("{}: tag {}: expected 0 or more", name_of(call), call.tag));
  SENNIT_RETURN_IF_ERROR(check_op(call, ops));
  if (call.collective == Collective::barrier) return {};
  if (call.vector_variant) SENNIT_RETURN_IF_ERROR(check_counts(call, rank, ranks));
  SENNIT_RETURN_IF_ERROR(check_buffers(call, rank, ranks));
  if (call.vector_variant) return {};
  Request size;
  size.collective = call.collective;
  size.type = call.type;
  size.count = call.count;
  return check_size(size, ranks);
}

bool is_in_place(const Call& call, int rank) {
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  switch (call.collective) {
    case Collective::all_gather:
      return send == recv + bytes_before(call, rank);
    case Collective::gather:
      return call.root == rank && send == recv + bytes_before(call, rank);
    case Collective::reduce_scatter:
      return recv == send + bytes_before(call, rank);
    case Collective::scatter:
      return call.root == rank && recv == send + bytes_before(call, rank);
    default:
      return send == recv;
  }
}

Request request_of(const Call& call, const TierTree& tree, int rank) {
  Request request;
  request.collective = call.collective;
  request.type = call.type;
  request.count = call.count;
  request.vector_variant = call.vector_variant;
  if (has_root(call.collective) || call.collective == Collective::send_recv)
    request.root = call.root == SENNIT_ANY_SOURCE
                       ? SENNIT_ANY_SOURCE
                       : tree.position_of_rank[static_cast<size_t>(call.root)];
  if (request.reduces())
    request.op = call.op >= SENNIT_OP_CUSTOM_BASE ? Op::premul_sum : static_cast<Op>(call.op);
  // gather and scatter: only the root knows all counts, so the program must not depend on them.
  const bool counts_agreed =
      call.collective == Collective::all_gather || call.collective == Collective::reduce_scatter;
  if (call.vector_variant && counts_agreed)
    for (const int32_t r : tree.rank_of_position) request.counts.push_back(call.counts[r]);
  request.in_place = is_in_place(call, rank);
  // The scaled copy of the input is what the program reads.
  if (request.reduces() && request.op == Op::premul_sum) request.in_place = false;
  return request;
}

std::string describe_request(const Request& request, const TierTree& tree) {
  std::string text(name(request.collective));
  if (request.collective == Collective::barrier) return text;
  if (request.vector_variant) text += "_v";
  if (!request.vector_variant)
    text += fmt::format(" count {}", request.count);
  else if (!request.counts.empty())
    text += fmt::format(" counts {}..{}", request.counts.front(), request.counts.back());
  text += fmt::format(" {}", name(request.type));
  if (request.reduces()) text += fmt::format(" {}", name(request.op));
  if (has_root(request.collective))
    text += fmt::format(" root {}", tree.rank_of_position[static_cast<size_t>(request.root)]);
  return text;
}

std::string describe_message(const Request& request, bool receiving, const TierTree& tree) {
  const std::string what =
      fmt::format("{} count {} {}", receiving ? "recv" : "send", request.count, name(request.type));
  if (request.root == SENNIT_ANY_SOURCE) return what + " from any rank";
  return fmt::format("{} {} rank {}", what, receiving ? "from" : "to",
                     tree.rank_of_position[static_cast<size_t>(request.root)]);
}

// ---- buffers ----

namespace {

// By position what `values` has by rank, kept in `out`.
const uint64_t* by_position(const size_t* values, const TierTree& tree,
                            std::vector<uint64_t>* out) {
  const auto n = static_cast<size_t>(tree.ranks());
  out->resize(n);
  for (size_t p = 0; p < n; p++) (*out)[p] = values[static_cast<size_t>(tree.rank_of_position[p])];
  return out->data();
}

// By position where each block begins: at its displacement, or behind those of the ranks before.
const uint64_t* offsets_by_position(const size_t* counts, const size_t* displacements,
                                    const TierTree& tree, std::vector<uint64_t>* out) {
  if (displacements) return by_position(displacements, tree, out);
  std::vector<size_t> sums(static_cast<size_t>(tree.ranks()), 0);
  for (size_t i = 1; i < sums.size(); i++) sums[i] = sums[i - 1] + counts[i - 1];
  return by_position(sums.data(), tree, out);
}

// all_to_all_v: blocks of its own sizes on either side. The slots are what goes out in place: of
// position p to position q block p * ranks + q.
void lay_out_exchange(const Call& call, const TierTree& tree, int rank, Buffers* b) {
  b->input_layout.counts = by_position(call.counts, tree, &b->input_counts);
  b->input_layout.offsets =
      offsets_by_position(call.counts, call.displacements, tree, &b->input_offsets);
  b->output_layout.counts = by_position(call.recv_counts, tree, &b->counts);
  b->output_layout.offsets =
      offsets_by_position(call.recv_counts, call.recv_displacements, tree, &b->output_offsets);
  b->wire_layout.counts = b->input_layout.counts;
  b->wire_layout.first_counted =
      static_cast<uint64_t>(tree.position_of_rank[static_cast<size_t>(rank)]) *
      static_cast<uint64_t>(tree.ranks());
}

// How many elements of the input are multiplied first.
uint64_t elements_to_scale(const Request& request, Collective collective, size_t ranks) {
  uint64_t elements = request.count * (collective == Collective::reduce_scatter ? ranks : 1);
  for (const uint64_t count : request.counts) elements += count;
  return elements;
}

// The input of a custom op is multiplied here, or by the device.
void scale_input(const Call& call, const Request& request, size_t ranks, const CustomOps& ops,
                 std::vector<std::byte>* scaled, Buffers* b) {
  const uint64_t elements = elements_to_scale(request, call.collective, ranks);
  const CustomOps::CustomOp* const op = ops.find(call.op);
  SENNIT_CHECK(op != nullptr);
  if (call.on_device) {
    b->factor = op->scalar;
    b->factor_in_stream = static_cast<const std::byte*>(op->in_stream);
    b->scaled_elements = elements;
    return;
  }
  // The stream has come to the call, and what lies in pinned memory is the host's as well.
  const void* const scalar = op->in_stream ? op->in_stream : op->scalar.data();
  scaled->resize(elements * type_bytes(request.type));
  scale(request.type, scaled->data(), call.send, scalar, elements);
  b->input = scaled->data();
}

}  // namespace

void fill_buffers(const Call& call, const Request& request, const TierTree& tree, int rank,
                  const CustomOps& ops, std::vector<std::byte>* scaled, Buffers* b) {
  const auto n = static_cast<size_t>(tree.ranks());
  b->input = static_cast<const std::byte*>(call.send);
  b->output = static_cast<std::byte*>(call.recv);
  if (b->input == nullptr) b->input = b->output;  // broadcast: recv alone serves
  b->scaled_elements = 0;
  b->divisor = request.op == Op::avg && request.reduces() ? n : 1;
  if (request.op == Op::premul_sum && request.reduces())
    scale_input(call, request, n, ops, scaled, b);

  // One block, or a rank's own: at the start of its buffer.
  Layout own;
  own.count = request.count;
  b->input_layout = own;
  b->output_layout = own;
  b->wire_layout = own;
  if (call.vector_variant && call.collective == Collective::all_to_all)
    return lay_out_exchange(call, tree, rank, b);
  Layout ranked = own;  // a block for each rank, in the order of the user's ranks
  ranked.places = tree.rank_of_position.data();
  if (call.vector_variant) {
    const uint64_t* const counts = by_position(call.counts, tree, &b->counts);
    own.counts = counts;
    ranked.counts = counts;
    b->wire_layout.counts = counts;
    const bool displaced = call.collective != Collective::reduce_scatter;
    ranked.places = nullptr;
    ranked.offsets = offsets_by_position(call.counts, displaced ? call.displacements : nullptr,
                                         tree, &b->input_offsets);
    b->output_offsets.assign(n, 0);
    own.offsets = b->output_offsets.data();
  }
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::gather:
      b->input_layout = own;
      b->output_layout = ranked;
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      b->input_layout = ranked;
      b->output_layout = own;
      break;
    case Collective::all_to_all:
      b->input_layout = ranked;
      b->output_layout = ranked;
      break;
    default:
      break;
  }
}

}  // namespace sennit
