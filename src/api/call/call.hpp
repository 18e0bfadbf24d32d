// call.hpp: a call as the user made it, its checks, and what becomes of it: a Request in fabric
// order and the Buffers of an Execution.
//
// Pure: nothing here knows a communicator, only its tree and this rank's number in it. Cost: O(1),
// and O(ranks) for v-variants and for the collectives whose buffers have a block for each rank.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "base/status.hpp"
#include "engine/execution.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// A call as the user made it; ranks are the communicator's.
struct Call {
  Collective collective = Collective::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  DataType type = DataType::uint8;
  int op = SENNIT_SUM;  // sennit_op_t, or a custom op
  int root = 0;         // also the peer of send and recv, which for recv may be SENNIT_ANY_SOURCE
  int tag = 0;          // of send and recv
  bool vector_variant = false;
  const size_t* counts = nullptr;  // v-variants
  const size_t* displacements = nullptr;
  const size_t* recv_counts = nullptr;  // all_to_all_v: `counts` are the send side's
  const size_t* recv_displacements = nullptr;
  bool receiving = false;   // send_recv: which of the two
  bool as_planned = false;  // no part in tuning: of a group, or the library's own
  bool internal = false;    // the library's own, on the host's memory and in no stream
  // Its memory is a device's, or such as one reaches, and it goes into this stream.
  bool on_device = false;
  void* stream = nullptr;
  bool in_graph = false;  // and the stream is being captured into one
};

// Of ops that users made: sums of what was multiplied with a scalar first. All of it is behind
// Preparation's lock.
class CustomOps {
 public:
  using Scalar = std::array<std::byte, 8>;  // one element of the type, and room
  struct CustomOp {
    DataType type;
    Scalar scalar = {};
    // Where it is not null the scalar is what lies here when a call runs.
    const void* in_stream = nullptr;
    MemoryKind kind = MemoryKind::plain;  // of that memory, which a device reaches
  };
  // `scalar` points at one element of `type`. Returns the op's number, which no communicator of
  // this process has given before, so that another's is none of this one's.
  int create(const void* scalar, DataType type);
  int create_in_stream(const void* scalar, MemoryKind kind, DataType type);
  Status destroy(int op);
  const CustomOp* find(int op) const;  // null: there is none

 private:
  int add(const CustomOp& op);

  std::map<int, CustomOp> ops_;
};

// Whether the arguments make sense on this rank of `ranks`.
Status check_call(const Call& call, const CustomOps& ops, int rank, int ranks);

// The memory that this rank of `ranks` reads and writes; null where there is none.
struct CallMemory {
  const void* read = nullptr;
  const void* written = nullptr;
};
CallMemory memory_of(const Call& call, int rank);

// Whether input and output are the same memory, as far as this rank's own block goes.
bool is_in_place(const Call& call, int rank);

// What the ranks must agree on, and in_place.
Request request_of(const Call& call, const TierTree& tree, int rank);

// "broadcast count 1024 float32 root 3", with the user's rank; for send_recv see
// describe_message().
std::string describe_request(const Request& request, const TierTree& tree);
std::string describe_message(const Request& request, bool receiving, const TierTree& tree);

// Where the data of this rank's call lies. `scaled` gets the scaled input of a custom op, and must
// live as long as the buffers are used.
void fill_buffers(const Call& call, const Request& request, const TierTree& tree, int rank,
                  const CustomOps& ops, std::vector<std::byte>* scaled, Buffers* buffers);

}  // namespace sennit
