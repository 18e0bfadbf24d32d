// api_collectives.cpp: collectives and messages, which name the rank's own memory, and groups of
// them.
#include <algorithm>
#include <climits>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "nccl/device_memory.hpp"
#include "nccl/exported.hpp"
#include "nccl/group.hpp"
#include "nccl/numbers.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

namespace {

// What most calls name besides their memory. What is not of NCCL's numbers is refused by name.
struct Arguments {
  std::shared_ptr<CommunicatorState> state;
  sennit_type_t type;
  sennit_op_t op = SENNIT_SUM;
  std::optional<PremultipliedSum> premultiplied;  // in place of op
};

Outcome no_op(ncclRedOp_t op) {
  const std::string number = "op " + std::to_string(static_cast<int>(op));
  if (op < 0) return {ncclInvalidArgument, number + ": no ncclRedOp_t"};
  return {ncclInvalidArgument, number + " was not created on this communicator, or was destroyed"};
}

Outcome read_arguments(ncclComm_t comm, ncclDataType_t type, ncclRedOp_t op, Arguments* arguments) {
  Outcome why;
  arguments->state = state_of(comm, &why);
  if (!arguments->state) return why;
  const std::optional<sennit_type_t> known_type = type_of(type);
  if (!known_type)
    return {ncclInvalidArgument,
            "datatype " + std::to_string(static_cast<int>(type)) + ": no ncclDataType_t"};
  arguments->type = *known_type;
  if (const std::optional<sennit_op_t> known_op = op_of(op)) {
    arguments->op = *known_op;
    return {};
  }
  arguments->premultiplied = arguments->state->find_op(op);
  if (!arguments->premultiplied) return no_op(op);
  if (arguments->premultiplied->type == arguments->type) return {};
  return {ncclInvalidArgument, "op " + std::to_string(static_cast<int>(op)) +
                                   " was created for another datatype than " +
                                   std::to_string(static_cast<int>(type)) + ", the call's"};
}

// The operation is sennit's for as long as the call is prepared, which is when the input is
// multiplied; and it is made where the call is, since a communicator's operations are one thread's.
// `for_host`: the stream has come to the call, and where the scalar lies the host reads it now.
template <typename F>
sennit_status_t make_with_op(const Arguments& arguments, bool for_host, const F& make) {
  if (!arguments.premultiplied) return make(arguments);
  Arguments with_op = arguments;
  const PremultipliedSum& op = *arguments.premultiplied;
  const sennit_comm_t comm = arguments.state->comm();
  const bool copies = for_host || !op.in_stream;
  const auto create = copies ? sennit_op_create_premul_sum : sennit_op_create_premul_sum_in_stream;
  const void* const scalar = op.in_stream ? op.in_stream : op.scalar.data();
  if (const sennit_status_t off = create(&with_op.op, scalar, op.type, comm); off != SENNIT_OK)
    return off;
  const sennit_status_t status = make(with_op);
  sennit_op_destroy(with_op.op, comm);
  return status;
}

// What a call is on: its memory, and in which stream's order.
struct CallPlace {
  Owner owner;
  cudaStream_t stream;
  DeviceContext device;  // current meanwhile: the thread that makes the call may have none
};

// A default stream is that of the communicator's device, whichever is current when the call is
// made. Where that was not known when the communicator was made, the memory tells.
CallPlace place_of(const Arguments& arguments, std::initializer_list<const void*> memory,
                   cudaStream_t stream) {
  const auto& sum = arguments.premultiplied;
  const void* const scalar = sum ? sum->in_stream : nullptr;
  CallPlace place{owner_of(memory.begin(), static_cast<int>(memory.size())), stream,
                  arguments.state->device()};
  if (scalar) place.owner = std::min(place.owner, owner_of(&scalar, 1));
  for (const void* const at : memory)
    if (place.owner != Owner::host && !place.device.context) place.device = device_of(at);
  return place;
}

// Calls of the communicator go into the stream from now on.
sennit_status_t set_stream(CommunicatorState& state, const CallPlace& place) {
  const sennit_status_t set = sennit_comm_set_stream(state.comm(), place.stream);
  if (set == SENNIT_OK) state.got_stream();
  return set;
}

// Whether pinned memory has to be taken for the host's as well, where this build has nothing for
// the device. Then the stream has come to the call.
bool is_for_host(CommunicatorState& state, const CallPlace& place) {
  if (place.owner != Owner::pinned) return false;
  const OnDevice here(place.device);
  return set_stream(state, place) == SENNIT_UNSUPPORTED && await_stream(place.stream).ok();
}

// `make` takes the Arguments and returns sennit's status.
template <typename F>
sennit_status_t make_in_place(const Arguments& arguments, const CallPlace& place, bool for_host,
                              const F& make) {
  const OnDevice here(place.device);
  CommunicatorState& state = *arguments.state;
  const bool on_host = place.owner == Owner::host;
  // A call on the host's memory, whose stream was awaited, would be made in the order of that which
  // an earlier one went into.
  const bool needs_stream =
      on_host ? state.has_stream() && (!is_unnamed(place.stream) || place.device.context != nullptr)
              : !for_host;
  if (needs_stream)
    if (const sennit_status_t off = set_stream(state, place); off != SENNIT_OK) return off;
  return make_with_op(arguments, for_host, make);
}

// Makes the call at once, or as a batch.
template <typename F>
Outcome make_call(const Arguments& arguments, std::initializer_list<const void*> memory,
                  cudaStream_t stream, F make) {
  const std::shared_ptr<CommunicatorState>& state = arguments.state;
  // What its jobs end with is no error of the communicator's any more. Of a group the end says it:
  // where other ranks have not revoked it yet, they make the group's other calls.
  if (!state->blocking() && state->revoked() && !in_group())
    return {ncclRemoteError, "the communicator was revoked: destroy, split or shrink it"};
  const CallPlace place = place_of(arguments, memory, stream);
  const OnDevice here(place.device);
  // Of other calls the library sees it by itself.
  const bool matters = place.owner == Owner::host || !state->blocking();
  uint64_t capture = 0;
  Outcome off;
  if (matters) off = find_capture(stream, &capture);
  if (!off.ok()) return off;
  const bool captured = capture != 0;
  if (captured && place.owner == Owner::host)
    return {ncclInvalidUsage,
            "the stream is being captured into a graph, and the call is on the host's memory: a "
            "graph has calls on memory of the device"};
  if (place.owner == Owner::host) off = await_stream(stream);
  if (!off.ok()) return off;
  // A call that is made later would be no part of the graph, and another thread has another stream
  // of its own.
  const bool only_now = captured || (place.owner != Owner::host && is_of_thread(stream));
  if (!in_group() && (only_now || state->blocking())) {
    if (off = state->await_made(); !off.ok()) return off;
    const sennit_status_t status =
        make_in_place(arguments, place, is_for_host(*state, place), make);
    if (status == SENNIT_OK) return {};
    return {result_of(status), sennit_last_error()};
  }
  CallBatch batch;
  batch.communicators.push_back(state);
  batch.blocking = state->blocking();
  batch.now = only_now;
  BatchedCall call{state, {}, place.device, {}, {}};
  if (place.owner != Owner::host) call.stream = stream;
  if (place.owner == Owner::pinned)
    call.is_for_host = [state, place] { return is_for_host(*state, place); };
  call.make = [arguments, place, make](bool for_host, std::optional<cudaStream_t> instead) {
    CallPlace there = place;
    there.stream = instead.value_or(place.stream);
    return make_in_place(arguments, there, for_host, make);
  };
  batch.calls.push_back(std::move(call));
  return submit(std::move(batch));
}

constexpr int kNobody = INT_MIN;

// `rank`: a call's root or its peer, or kNobody.
Outcome check_rank(const CommunicatorState& state, int rank) {
  if (rank == kNobody) return {};
  int size = INT_MAX;  // of one that is still being made it is not known
  if (const sennit_comm_t comm = state.comm()) sennit_comm_size(comm, &size);
  if (rank >= 0 && rank < size) return {};
  return {ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size)};
}

// A call without elements: as NCCL has it, nothing happens, in no stream and on no rank.
Outcome make_nothing(const CommunicatorState& state) {
  Outcome status = state.status();
  return status.result == ncclInProgress ? Outcome{} : status;
}

// What a call is about besides its memory.
struct CallShape {
  size_t count;
  int rank = kNobody;  // its root or its peer
  bool message = false;
};

template <typename F>
ncclResult_t call(ncclComm_t comm, ncclDataType_t type, ncclRedOp_t op, const CallShape& shape,
                  std::initializer_list<const void*> memory, cudaStream_t stream, F make) {
  return guarded([&] {
    Arguments arguments;
    Outcome outcome = read_arguments(comm, type, op, &arguments);
    if (outcome.ok()) outcome = check_rank(*arguments.state, shape.rank);
    if (outcome.ok() && shape.count == 0)
      outcome = make_nothing(*arguments.state);
    else if (outcome.ok())
      outcome = make_call(arguments, memory, stream, std::move(make));
    if (!outcome.ok() && outcome.result != ncclInProgress) {
      // Nobody who is in a collective waits for a message.
      if (arguments.state && !shape.message) arguments.state->refuses(outcome);
      fail_group(outcome);
    }
    return outcome;
  });
}

// A config of one call tunes what NCCL's kernels do; it has to be one, and nothing in it changes
// what the call means.
ncclResult_t check(const ncclCollConfig_t* config, ncclComm_t comm) {
  if (!config || config->magic == NCCL_CONFIG_MAGIC) return ncclSuccess;
  const Outcome off{ncclInvalidArgument,
                    "the ncclCollConfig_t was not initialised: start from "
                    "NCCL_COLLCONFIG_INITIALIZER"};
  Outcome why;
  if (const std::shared_ptr<CommunicatorState> state = state_of(comm, &why)) state->refuses(off);
  fail_group(off);
  return report(off);
}

}  // namespace

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, op, {count}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_all_reduce(send, recv, count, a.type, a.op, a.state->comm());
  });
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count, root}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_broadcast(send, recv, count, a.type, root, a.state->comm());
  });
}

ncclResult_t ncclBcast(void* memory, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(memory, memory, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, op, {count, root}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_reduce(send, recv, count, a.type, a.op, root, a.state->comm());
  });
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_all_gather(send, recv, count, a.type, a.state->comm());
  });
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, op, {count}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_reduce_scatter(send, recv, count, a.type, a.op, a.state->comm());
  });
}

ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_all_to_all(send, recv, count, a.type, a.state->comm());
  });
}

ncclResult_t ncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count, root}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_gather(send, recv, count, a.type, root, a.state->comm());
  });
}

ncclResult_t ncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count, root}, {send, recv}, stream, [=](const Arguments& a) {
    return sennit_scatter(send, recv, count, a.type, root, a.state->comm());
  });
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, ncclSum, {count, peer, true}, {send}, stream, [=](const Arguments& a) {
    return sennit_send(send, count, a.type, peer, a.state->comm());
  });
}

ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, type, ncclSum, {count, peer, true}, {recv}, stream, [=](const Arguments& a) {
    return sennit_recv(recv, count, a.type, peer, a.state->comm());
  });
}

// Each collective once more, with a config of its own.
#define WITH_CONFIG(name, parameters, arguments)                                      \
  ncclResult_t name##Config parameters {                                              \
    if (const ncclResult_t off = check(config, comm); off != ncclSuccess) return off; \
    return name arguments;                                                            \
  }
WITH_CONFIG(ncclAllReduce,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, op, comm, stream))
WITH_CONFIG(ncclBroadcast,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, root, comm, stream))
WITH_CONFIG(ncclReduce,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, op, root, comm, stream))
WITH_CONFIG(ncclAllGather,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
             cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, comm, stream))
WITH_CONFIG(ncclReduceScatter,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, op, comm, stream))
WITH_CONFIG(ncclAlltoAll,
            (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
             cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, comm, stream))
WITH_CONFIG(ncclGather,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, root, comm, stream))
WITH_CONFIG(ncclScatter,
            (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
            (send, recv, count, type, root, comm, stream))
#undef WITH_CONFIG

ncclResult_t ncclGroupStart(void) {
  start_group();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  return guarded([] { return end_group(); });
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return guarded([&]() -> Outcome {
    std::optional<double> microseconds;
    if (Outcome outcome = predict_group(&microseconds); !outcome.ok()) return outcome;
    if (!info || !microseconds) return {};
    if (info->magic != NCCL_SIMULATION_MAGIC || info->size < sizeof *info)
      return {ncclInvalidArgument,
              "the ncclSimInfo_t was not initialised: start from NCCL_SIM_INFO_INITIALIZER"};
    info->estimatedTime = static_cast<float>(*microseconds);
    return {};
  });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&]() -> Outcome {
    Arguments arguments;
    if (Outcome off = read_arguments(comm, type, ncclSum, &arguments); !off.ok()) return off;
    if (!op || !scalar) return {ncclInvalidArgument, "op or scalar is NULL"};
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      return {ncclInvalidArgument, "residence: no ncclScalarResidence_t"};
    PremultipliedSum made{arguments.type};
    const void* const at = scalar;
    const Owner owner = owner_of(&at, 1);
    if (residence == ncclScalarHostImmediate && owner == Owner::device && !is_managed(at))
      return {ncclInvalidUsage,
              "the scalar is in a CUDA device's memory, and ncclScalarHostImmediate says that the "
              "host reads it now: say ncclScalarDevice"};
    // What no device reaches is the host's, whatever is said of it.
    if (residence == ncclScalarDevice && owner != Owner::host)
      made.in_stream = scalar;
    else
      std::memcpy(made.scalar.data(), scalar, bytes_of(type));
    *op = arguments.state->add_op(made);
    return {};
  });
}

// Calls that were made with it keep what they need of it, also those that have not begun.
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&]() -> Outcome {
    Outcome why;
    const std::shared_ptr<CommunicatorState> state = state_of(comm, &why);
    if (!state) return why;
    if (op >= 0 && op < ncclNumOps)
      return {ncclInvalidArgument, "op " + std::to_string(static_cast<int>(op)) +
                                       " is NCCL's own, and cannot be destroyed"};
    return state->remove_op(op) ? Outcome{} : no_op(op);
  });
}
