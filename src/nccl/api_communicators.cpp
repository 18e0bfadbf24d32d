// api_communicators.cpp: making, splitting and ending communicators, and what they are.
#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "nccl/config.hpp"
#include "nccl/device.hpp"
#include "nccl/environment.hpp"
#include "nccl/exported.hpp"
#include "nccl/group.hpp"
#include "nccl/numbers.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(sennit_unique_id_t));

// A late rank is no error to NCCL's programs: they wait.
sennit_config_t patient() {
  sennit_config_t config = SENNIT_CONFIG_INIT;
  config.arrival_timeout_ms = INT_MAX;
  return config;
}

Outcome outcome_of(sennit_status_t status) {
  if (status == SENNIT_OK) return {};
  return {result_of(status), sennit_last_error()};
}

// Has make(state, &comm) fill the new communicator, at once or at the end of the group, and gives
// its handle to the caller. It is of its parent's device, or of that which is current. Where the
// calls of `parent`, or without one those of the new communicator, do not block, the caller has
// gone on by then: it gets the handle at once, if `expected` says that there will be a
// communicator. Else only where it was made.
template <typename F>
Outcome create(ncclComm_t* result, bool blocking, bool expected, CallBatch batch,
               const std::shared_ptr<CommunicatorState>& parent, F make) {
  const DeviceContext device = parent ? parent->device() : current_device();
  auto state = std::make_shared<CommunicatorState>(blocking, device);
  batch.blocking = parent ? parent->blocking() : blocking;
  *result = nullptr;
  const bool at_once = !batch.blocking;
  if (at_once && expected) *result = make_handle(state);
  batch.communicators.push_back(state);
  if (parent) batch.communicators.push_back(parent);
  const auto make_it = [state, result, at_once, make] {
    sennit_comm_t made = nullptr;
    const Outcome outcome = outcome_of(make(*state, &made));
    if (made) state->made(made);
    if (made && !at_once) *result = make_handle(state);
    return outcome;
  };
  batch.creations.push_back({parent, make_it});
  return submit(std::move(batch));
}

sennit_unique_id_t own(const ncclUniqueId& id) {
  sennit_unique_id_t made;
  std::memcpy(made.internal, id.internal, sizeof made.internal);
  return made;
}

Outcome init_rank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* given) {
  if (!comm) return {ncclInvalidArgument, "comm is NULL"};
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return {ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                     " ranks: expected a rank from 0 to nranks - 1"};
  if (Outcome off = read_environment(); !off.ok()) return off;
  Settings settings;
  if (Outcome off = read_config(given, {}, &settings); !off.ok()) return off;
  const auto start = [=](CommunicatorState& state, sennit_comm_t* made) {
    sennit_config_t config = patient();
    if (!state.blocking()) {  // else nobody has it who could abort it
      config.interrupted = [](void* user) {
        return static_cast<int>(static_cast<CommunicatorState*>(user)->given_up());
      };
      config.interrupted_user = &state;
    }
    const sennit_unique_id_t own_id = own(id);
    return sennit_comm_init_rank(made, ranks, &own_id, rank, &config);
  };
  return create(comm, settings.blocking, true, {}, nullptr, start);
}

// Null, with the reason, where there is none yet; of one that blocks it is waited for, since it may
// be the child of one that does not.
sennit_comm_t made_of(CommunicatorState& state, Outcome* off) {
  if (state.blocking()) {
    *off = state.await_made();
  } else if (!state.comm()) {
    *off = {ncclInvalidArgument, "the communicator is still being made"};
  }
  return off->ok() ? state.comm() : nullptr;
}

template <typename F>
Outcome apply(ncclComm_t comm, F&& f) {
  Outcome why;
  const std::shared_ptr<CommunicatorState> state = state_of(comm, &why);
  return state ? f(state) : why;
}

// A function that asks or tells one communicator something, at once.
template <typename F>
ncclResult_t with(ncclComm_t comm, F&& f) {
  return guarded([&] { return apply(comm, f); });
}

// A function that makes or ends a communicator, maybe in a group, which breaks where this is off.
template <typename F>
ncclResult_t grouped(F&& f, const std::shared_ptr<CommunicatorState>& of = nullptr) {
  return guarded([&] {
    Outcome outcome = contain(f);
    if (outcome.ok() || outcome.result == ncclInProgress) return outcome;
    if (of) of->refuses(outcome);
    break_group(outcome, of);
    return outcome;
  });
}
template <typename F>
ncclResult_t grouped_with(ncclComm_t comm, F&& f) {
  Outcome why;
  const std::shared_ptr<CommunicatorState> state = state_of(comm, &why);
  return grouped([&] { return state ? f(state) : why; }, state);
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&]() -> Outcome {
    if (!id) return {ncclInvalidArgument, "uniqueId is NULL"};
    if (Outcome off = read_environment(); !off.ok()) return off;
    sennit_unique_id_t made;
    const std::string& address = asked_job_address();
    if (Outcome off = outcome_of(address.empty() ? sennit_get_unique_id(&made)
                                                 : sennit_get_unique_id_at(address.c_str(), &made));
        !off.ok())
      return off;
    std::memcpy(id->internal, made.internal, sizeof id->internal);
    return {};
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return grouped([&] { return init_rank(comm, ranks, id, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return grouped([&] { return init_rank(comm, ranks, id, rank, config); });
}

// Several ids spread the work of the start over several roots. sennit's start is a tree of its own:
// the first id counts, and who made another one need not wait for its ranks.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                      ncclUniqueId* ids, ncclConfig_t* config) {
  return grouped([&]() -> Outcome {
    if (!ids || id_count < 1 || id_count > ranks)
      return {ncclInvalidArgument, std::to_string(id_count) + " unique ids for " +
                                       std::to_string(ranks) + " ranks: expected 1 to that many"};
    for (const ncclUniqueId& spare : std::span(ids, static_cast<size_t>(id_count)).subspan(1)) {
      const sennit_unique_id_t own_id = own(spare);
      sennit_forget_unique_id(&own_id);
    }
    return init_rank(comm, ranks, ids[0], rank, config);
  });
}

// `numbers`: of the ranks' devices; NULL: 0, 1 and so on. A process that uses no CUDA has none.
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* numbers) {
  return guarded([&]() -> Outcome {
    if (!comms || devices < 1) return {ncclInvalidArgument, "comms is NULL or ndev < 1"};
    if (Outcome off = read_environment(); !off.ok()) return off;
    std::vector<sennit_comm_t> made(static_cast<size_t>(devices));
    const sennit_config_t config = patient();
    if (Outcome off = outcome_of(sennit_comm_init_local(made.data(), devices, &config)); !off.ok())
      return off;
    for (int rank = 0; rank < devices; rank++) {
      auto state = std::make_shared<CommunicatorState>(
          true, numbered_device(numbers ? numbers[rank] : rank));
      state->made(made[static_cast<size_t>(rank)]);
      comms[rank] = make_handle(std::move(state));
    }
    return {};
  });
}

namespace {

// One that was revoked works for groups alone: its ranks make another one in its place, and split
// that.
sennit_status_t split(const CommunicatorState& parent, int color, int key, sennit_comm_t* made) {
  const sennit_comm_t comm = parent.comm();
  if (!parent.revoked()) return sennit_comm_split(comm, color, key, made);
  int size = 0;
  sennit_comm_size(comm, &size);
  std::vector<int> everyone(static_cast<size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  sennit_comm_t twin = nullptr;
  if (const sennit_status_t off = sennit_comm_create_group(comm, everyone.data(), size, 0, &twin);
      off != SENNIT_OK)
    return off;
  const sennit_status_t status = sennit_comm_split(twin, color, key, made);
  sennit_comm_destroy(twin);
  return status;
}

}  // namespace

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result,
                           ncclConfig_t* config) {
  return grouped_with(comm, [&](const std::shared_ptr<CommunicatorState>& parent) -> Outcome {
    if (!result) return {ncclInvalidArgument, "newcomm is NULL"};
    if (color < 0 && color != kNcclNoColor)
      return {ncclInvalidArgument,
              "color " + std::to_string(color) + ": expected 0 or more, or NCCL_SPLIT_NOCOLOR"};
    Settings settings;
    if (Outcome off = read_config(config, {parent->blocking()}, &settings); !off.ok()) return off;
    const bool member = color != kNcclNoColor;
    const auto make = [=](const CommunicatorState&, sennit_comm_t* made) {
      return split(*parent, member ? color : SENNIT_NO_COLOR, key, made);
    };
    return create(result, settings.blocking, member, {}, parent, make);
  });
}

// Who is excluded does not call it. NCCL_SHRINK_ABORT ends what is under way on the parent first.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* result,
                            ncclConfig_t* config, int flags) {
  return grouped_with(comm, [&](const std::shared_ptr<CommunicatorState>& parent) -> Outcome {
    if (!result) return {ncclInvalidArgument, "newcomm is NULL"};
    if (excluded_count < 1 || !excluded)
      return {ncclInvalidArgument, "excludeRanksList: expected one rank or more"};
    if (flags != kNcclShrinkDefault && flags != kNcclShrinkAbort)
      return {ncclInvalidArgument, "shrinkFlags " + std::to_string(flags) +
                                       ": expected NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT"};
    Outcome off;
    const sennit_comm_t made = made_of(*parent, &off);
    if (!made) return off;
    int size = 0, rank = 0;
    sennit_comm_size(made, &size);
    sennit_comm_rank(made, &rank);
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (int i = 0; i < excluded_count; i++) {
      if (excluded[i] < 0 || excluded[i] >= size || excluded[i] == rank)
        return {ncclInvalidArgument,
                "excludeRanksList: rank " + std::to_string(excluded[i]) +
                    (excluded[i] == rank ? " calls ncclCommShrink itself" : " is no rank")};
      std::erase(ranks, excluded[i]);
    }
    Settings settings;
    if (off = read_config(config, {parent->blocking()}, &settings); !off.ok()) return off;
    CallBatch batch;
    if (flags == kNcclShrinkAbort) batch.aborted.push_back(parent);
    const auto make = [=](const CommunicatorState&, sennit_comm_t* smaller) {
      return sennit_comm_create_group(parent->comm(), ranks.data(), static_cast<int>(ranks.size()),
                                      0, smaller);
    };
    return create(result, settings.blocking, true, std::move(batch), parent, make);
  });
}

// What is under way on any rank ends with an error. When that is over its status is ncclSuccess
// again, and it can be split, shrunk or destroyed.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    if (flags != 0)
      return {ncclInvalidArgument, "revokeFlags " + std::to_string(flags) + ": expected 0"};
    Outcome off;
    return made_of(*state, &off) ? outcome_of(state->revoke()) : off;
  });
}

namespace {

Outcome finalize(const std::shared_ptr<CommunicatorState>& state) {
  CallBatch batch;
  batch.communicators.push_back(state);
  batch.blocking = state->blocking();
  const Outcome outcome = submit(std::move(batch));
  if (!outcome.ok() || in_group()) return outcome;
  return state->status();
}

}  // namespace

// Flushes what this rank has under way, and waits for no other rank: one thread may do so for
// several ranks in turn. Of what was revoked there is nothing to flush: where other ranks have not
// revoked it yet, they make the other calls of a group that it is in.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Outcome off;
  const std::shared_ptr<CommunicatorState> state = state_of(comm, &off);
  if (!state || !state->revoked()) return grouped_with(comm, finalize);
  off = {ncclInvalidUsage, "the communicator was revoked: destroy, split or shrink it"};
  note_in_group(off);
  return report(off);
}

// What a forked child has of its parent it leaves alone.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm || inherited(comm)) return ncclSuccess;
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    free_handle(comm);
    state->destroy();
    return {};
  });
}

// A batch that is still under way keeps the state, and gives the communicator back at its end: a
// start ends soon after this has returned.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm || inherited(comm)) return ncclSuccess;
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    state->give_up();
    free_handle(comm);
    return {};
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    if (!error) return {ncclInvalidArgument, "asyncError is NULL"};
    const Outcome status = state->status();
    report(status);  // so that ncclGetLastError has its text
    *error = status.result;
    return {};
  });
}

namespace {

// Asks sennit for a number of the communicator.
ncclResult_t ask(ncclComm_t comm, int* answer, sennit_status_t (*question)(sennit_comm_t, int*)) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    if (!answer) return {ncclInvalidArgument, "the place for the answer is NULL"};
    Outcome off;
    const sennit_comm_t made = made_of(*state, &off);
    return made ? outcome_of(question(made, answer)) : off;
  });
}

}  // namespace

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return ask(comm, count, sennit_comm_size);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return ask(comm, rank, sennit_comm_rank);
}

// -1 where the program uses no CUDA.
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    if (!device) return {ncclInvalidArgument, "device is NULL"};
    *device = state->device().number;
    return {};
  });
}

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>& state) -> Outcome {
    if (!properties || properties->magic != NCCL_CONFIG_MAGIC)
      return {ncclInvalidArgument,
              "the ncclCommProperties_t was not initialised: start from "
              "NCCL_COMM_PROPERTIES_INITIALIZER"};
    Outcome off;
    const sennit_comm_t made = made_of(*state, &off);
    if (!made) return off;
    ncclCommProperties_t all{};
    all.size = properties->size;
    all.magic = properties->magic;
    all.version = properties->version;
    all.cudaDev = state->device().number;
    all.nvmlDev = -1;  // not asked
    sennit_comm_rank(made, &all.rank);
    sennit_comm_size(made, &all.nRanks);
    all.nLsaTeams = all.nRanks;  // no rank reaches another one's memory from a kernel
    std::memcpy(properties, &all, std::min(properties->size, sizeof all));
    return {};
  });
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t, uint64_t* value) {
  return with(comm, [&](const std::shared_ptr<CommunicatorState>&) -> Outcome {
    if (!value) return {ncclInvalidArgument, "value is NULL"};
    *value = 0;  // no memory of a GPU
    return {};
  });
}
