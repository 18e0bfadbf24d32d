// c_api.cpp: communicators, works, memory and errors of the C interface.
#include "api/c_api.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "api/presence.hpp"
#include "api/start/launch.hpp"
#include "api/start/steps.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/run_together.hpp"

namespace sennit {
namespace {

constexpr size_t kErrorBytes = 4096;
// No destructor, so that it can be used until the very end of the thread.
thread_local char t_last_error[kErrorBytes];

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kMostMs = INT64_MAX / kNsPerMs;  // 292 years

// Of a program that was compiled before the later fields were there.
constexpr size_t kLeastConfigBytes = offsetof(sennit_config_t, concurrency);

// With what the caller's has not, as SENNIT_CONFIG_INIT has it.
sennit_config_t whole_config(const sennit_config_t* config) {
  sennit_config_t whole = SENNIT_CONFIG_INIT;
  if (config) std::memcpy(&whole, config, std::min(config->size, sizeof whole));
  return whole;
}

// Of a start that waits: whether its caller, who lives no longer than this, wants it no more.
class Asking {
 public:
  explicit Asking(const sennit_config_t* config) {
    const sennit_config_t given = whole_config(config);
    if (given.interrupted)
      interruption_ = Interruption(
          [ask = given.interrupted, user = given.interrupted_user] { return ask(user) != 0; });
  }
  ~Asking() { interruption_.end(); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  const Interruption& interruption() const { return interruption_; }

 private:
  Interruption interruption_;
};

Status checked_config(const sennit_config_t* config) {
  if (config && (config->size < kLeastConfigBytes || config->version != 1))
    return invalid(
        "sennit_config_t: start from SENNIT_CONFIG_INIT, which sets its size and version");
  if (config && config->arrival_timeout_ms < 0)
    return invalid(fmt::format("sennit_config_t: arrival_timeout_ms {}: expected 0 or more",
                               config->arrival_timeout_ms));
  return {};
}

int64_t arrival_timeout_ms(const sennit_config_t* config) {
  const int32_t given = config ? config->arrival_timeout_ms : 0;
  const bool gives_way = given == INT32_MAX && option_is_set("SENNIT_ARRIVAL_TIMEOUT");
  return given > 0 && !gives_way ? given : option_integer("SENNIT_ARRIVAL_TIMEOUT");
}

Status check_started(sennit_work_t work) {
  if (!work) return invalid("work is NULL");
  if (!work->work->started())
    return invalid("the work's group is still open: sennit_group_end starts its calls");
  return {};
}

Status give(const Result<std::vector<std::byte>>& made, sennit_unique_id_t* id) {
  if (!made) return made.status();
  SENNIT_CHECK(made->size() == sizeof id->internal);
  std::memcpy(id->internal, made->data(), sizeof id->internal);
  return {};
}

// The handle itself is freed in any case.
template <typename Handle, typename Behind>
Status give_back(Handle* handle, Behind Handle::*behind) {
  if (handle && handle->origin.forked()) leave_to_parent(std::move(handle->*behind));
  delete handle;
  return {};
}

Status check_premul_sum(const sennit_op_t* op, const void* scalar, sennit_type_t type,
                        sennit_comm_t comm) {
  if (!op || !scalar || !comm) return invalid("op, scalar or comm is NULL");
  if (type < 0 || type >= SENNIT_TYPE_COUNT)
    return invalid(fmt::format("type {}: not a sennit_type_t", static_cast<int>(type)));
  return {};
}

}  // namespace

sennit_status_t report(const Status& status) {
  if (status.ok() || status.kind() == SENNIT_IN_PROGRESS) return status.kind();
  static constexpr std::string_view kCut = " ...";
  const std::string& text = status.text();
  const bool fits = text.size() < kErrorBytes;
  const size_t bytes = fits ? text.size() : kErrorBytes - 1 - kCut.size();
  std::memcpy(t_last_error, text.data(), bytes);
  if (!fits) std::memcpy(t_last_error + bytes, kCut.data(), kCut.size());
  t_last_error[fits ? bytes : kErrorBytes - 1] = '\0';
  return status.kind();
}

Result<sennit_comm_t> start_job(BootstrapOptions bootstrap, const sennit_config_t* config) {
  SENNIT_RETURN_IF_ERROR(checked_config(config));
  bootstrap.arrival_timeout_ms = arrival_timeout_ms(config);
  bootstrap.heartbeat_timeout_ms = option_integer("SENNIT_HEARTBEAT_TIMEOUT");
  bootstrap.stall_ms = option_integer("SENNIT_STALL");
  set_log_rank(bootstrap.rank);
  const sennit_config_t chosen = whole_config(config);
  const auto text = [](const char* given) { return std::string(given ? given : ""); };
  const JobSettings settings{text(chosen.fabric), text(chosen.algorithm), text(chosen.concurrency),
                             bootstrap.arrival_timeout_ms};
  Result<Presence> presence = join_job(std::move(bootstrap), settings);
  if (!presence) return presence.status();
  Result<std::shared_ptr<Communicator>> communicator =
      Communicator::create(presence->context, std::move(presence->members), presence->number);
  if (!communicator) return communicator.status();
  return new sennit_comm{*std::move(communicator)};
}

}  // namespace sennit

using namespace sennit;  // NOLINT: the functions below are the library's

extern "C" {

sennit_status_t sennit_get_unique_id(sennit_unique_id_t* id) {
  return guarded([&]() -> Status {
    if (!id) return invalid("id is NULL");
    // A rank that could not take part says so before others wait for it.
    SENNIT_RETURN_IF_ERROR(check_environment());
    return give(make_unique_id(), id);
  });
}

sennit_status_t sennit_get_unique_id_at(const char* address, sennit_unique_id_t* id) {
  return guarded([&]() -> Status {
    if (!address || !id) return invalid("address or id is NULL");
    return give(make_unique_id_at(address), id);
  });
}

sennit_status_t sennit_forget_unique_id(const sennit_unique_id_t* id) {
  return guarded([&]() -> Status {
    if (!id) return invalid("id is NULL");
    return forget_unique_id(
        {reinterpret_cast<const std::byte*>(id->internal), sizeof id->internal});
  });
}

sennit_status_t sennit_comm_init_rank(sennit_comm_t* comm, int size, const sennit_unique_id_t* id,
                                      int rank, const sennit_config_t* config) {
  return guarded([&]() -> Status {
    if (!comm || !id) return invalid("comm or id is NULL");
    SENNIT_RETURN_IF_ERROR(checked_config(config));  // an id starts one job only
    const Asking asking(config);
    const auto* bytes = reinterpret_cast<const std::byte*>(id->internal);
    Result<BootstrapOptions> bootstrap =
        options_from_unique_id({bytes, sizeof id->internal}, rank, size, asking.interruption());
    if (!bootstrap) return bootstrap.status();
    Result<sennit_comm_t> made = start_job(*std::move(bootstrap), config);
    if (!made) return made.status();
    *comm = *made;
    return {};
  });
}

sennit_status_t sennit_comm_init_env(sennit_comm_t* comm, const sennit_config_t* config) {
  return guarded([&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    SENNIT_RETURN_IF_ERROR(checked_config(config));
    const Asking asking(config);
    // Starts of one process look alike to the others: threads that start jobs do so one after the
    // other.
    const MutexLock one_at_a_time(start_mutex());
    Result<Launch> launch = launch_from_environment(asking.interruption());
    if (!launch) return launch.status();
    Result<sennit_comm_t> made = start_job(launch->bootstrap, config);
    if (!made) return made.status();
    *comm = *made;
    return {};
  });
}

sennit_status_t sennit_comm_init_local(sennit_comm_t* comms, int size,
                                       const sennit_config_t* config) {
  return guarded([&]() -> Status {
    if (!comms || size < 1) return invalid("comms is NULL or size < 1");
    SENNIT_RETURN_IF_ERROR(checked_config(config));
    SENNIT_RETURN_IF_ERROR(check_environment());
    sennit_unique_id_t id;
    if (sennit_get_unique_id(&id) != SENNIT_OK) return {SENNIT_OUT_OF_RESOURCES, t_last_error};
    sennit_config_t of_threads = whole_config(config);
    of_threads.size = sizeof of_threads;
    of_threads.interrupted = nullptr;  // it is for the calling thread
    std::vector<Status> results(static_cast<size_t>(size));
    std::vector<sennit_comm_t> made(static_cast<size_t>(size), nullptr);
    try {
      run_together(made.size(), [&](size_t i) {
        const sennit_status_t kind =
            sennit_comm_init_rank(&made[i], size, &id, static_cast<int>(i), &of_threads);
        if (kind != SENNIT_OK) results[i] = Status(kind, sennit_last_error());
      });
    } catch (const std::exception& error) {
      sennit_forget_unique_id(&id);
      return {
          SENNIT_OUT_OF_RESOURCES,
          fmt::format("the system has no thread left for one of {} ranks: {}", size, error.what())};
    }
    for (const Status& result : results) {
      if (result.ok()) continue;
      for (const sennit_comm_t c : made)
        if (c) sennit_comm_destroy(c);
      return result;
    }
    std::copy(made.begin(), made.end(), comms);
    return {};
  });
}

sennit_status_t sennit_comm_split(sennit_comm_t comm, int color, int key, sennit_comm_t* result) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    if (!result) {
      Status off = invalid("split: result is NULL");
      comm->communicator->refuses(off);
      return off;
    }
    std::shared_ptr<Communicator> part;
    SENNIT_RETURN_IF_ERROR(comm->communicator->split(color, key, &part));
    *result = part ? new sennit_comm{std::move(part)} : nullptr;
    return {};
  });
}

sennit_status_t sennit_comm_create_group(sennit_comm_t comm, const int ranks[], int count, int tag,
                                         sennit_comm_t* result) {
  return guarded(comm, [&]() -> Status {
    Status off;
    if (count < 1)
      off = invalid(fmt::format("create_group: {} ranks: expected 1 or more", count));
    else if (!comm || !result || !ranks)
      off = invalid("comm, ranks or result is NULL");
    if (comm && !off.ok()) comm->communicator->refuses_group(off);
    SENNIT_RETURN_IF_ERROR(off);
    std::shared_ptr<Communicator> made;
    SENNIT_RETURN_IF_ERROR(comm->communicator->create_group({ranks, ranks + count}, tag, &made));
    *result = new sennit_comm{std::move(made)};
    return {};
  });
}

sennit_status_t sennit_comm_dup(sennit_comm_t comm, sennit_comm_t* result) {
  return sennit_comm_split(comm, 0, comm ? comm->communicator->rank() : 0, result);
}

sennit_status_t sennit_comm_finalize(sennit_comm_t comm) {
  return guarded(comm,
                 [&] { return comm ? comm->communicator->finalize() : invalid("comm is NULL"); });
}

sennit_status_t sennit_comm_destroy(sennit_comm_t comm) {
  return guarded([&] {
    if (comm && !comm->origin.forked() && comm->listener != 0)
      comm->communicator->context().watch().unlisten(comm->listener);
    if (comm && !comm->origin.forked()) comm->communicator->settle();
    return give_back(comm, &sennit_comm::communicator);
  });
}

sennit_status_t sennit_comm_on_verdict(sennit_comm_t comm, sennit_verdict_function_t told,
                                       void* user) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    watch::Watch& watch = comm->communicator->context().watch();
    if (comm->listener != 0) watch.unlisten(std::exchange(comm->listener, 0));
    if (!told) return {};
    comm->listener = watch.listen([told, user](const watch::LiveVerdict& verdict) {
      told(watch::json_of(verdict).c_str(), user);
    });
    return {};
  });
}

sennit_status_t sennit_comm_abort(sennit_comm_t comm) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    comm->communicator->abort();
    return {};
  });
}

sennit_status_t sennit_comm_refuse(sennit_comm_t comm, const char* why) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !why) return invalid("comm or why is NULL");
    const Status off = invalid(why);
    comm->communicator->refuses(off);
    comm->communicator->refuses_group(off);
    return {};
  });
}

sennit_status_t sennit_comm_get_async_error(sennit_comm_t comm) {
  return guarded(comm,
                 [&] { return comm ? comm->communicator->status() : invalid("comm is NULL"); });
}

sennit_status_t sennit_comm_failed_ranks(sennit_comm_t comm, int* ranks, int capacity, int* count) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !count || (capacity > 0 && !ranks)) return invalid("comm, ranks or count is NULL");
    const std::vector<int> failed = comm->communicator->failed_ranks();
    for (int i = 0; i < capacity && i < static_cast<int>(failed.size()); i++)
      ranks[i] = failed[static_cast<size_t>(i)];
    *count = static_cast<int>(failed.size());
    return {};
  });
}

sennit_status_t sennit_comm_rank(sennit_comm_t comm, int* rank) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !rank) return invalid("comm or rank is NULL");
    *rank = comm->communicator->rank();
    return {};
  });
}

sennit_status_t sennit_comm_size(sennit_comm_t comm, int* size) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !size) return invalid("comm or size is NULL");
    *size = comm->communicator->size();
    return {};
  });
}

sennit_status_t sennit_comm_fabric_position(sennit_comm_t comm, int* position) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !position) return invalid("comm or position is NULL");
    *position = comm->communicator->position();
    return {};
  });
}

sennit_status_t sennit_comm_set_stream(sennit_comm_t comm, void* stream) {
  return guarded(comm, [&]() -> Status {
    const Status set = comm ? comm->communicator->set_stream(stream) : invalid("comm is NULL");
    return set.ok() ? set : noted_in_group(set);  // its calls would be made elsewhere
  });
}

sennit_status_t sennit_op_create_premul_sum(sennit_op_t* op, const void* scalar, sennit_type_t type,
                                            sennit_comm_t comm) {
  return guarded(comm, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_premul_sum(op, scalar, type, comm));
    const int made = comm->communicator->create_op(scalar, static_cast<DataType>(type));
    *op = static_cast<sennit_op_t>(made);
    return {};
  });
}

sennit_status_t sennit_op_create_premul_sum_in_stream(sennit_op_t* op, const void* scalar,
                                                      sennit_type_t type, sennit_comm_t comm) {
  return guarded(comm, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_premul_sum(op, scalar, type, comm));
    const Result<int> made =
        comm->communicator->create_op_in_stream(scalar, static_cast<DataType>(type));
    if (!made) return noted_in_group(made.status());  // its calls are not made
    *op = static_cast<sennit_op_t>(*made);
    return {};
  });
}

sennit_status_t sennit_op_destroy(sennit_op_t op, sennit_comm_t comm) {
  return guarded(comm, [&] {
    return comm ? comm->communicator->destroy_op(static_cast<int>(op)) : invalid("comm is NULL");
  });
}

sennit_status_t sennit_mem_alloc(sennit_comm_t comm, size_t bytes, void** memory) {
  return guarded(comm, [&]() -> Status {
    if (!comm || !memory) return invalid("comm or memory is NULL");
    const Result<void*> got = comm->communicator->context().engine().allocate_user(bytes);
    if (!got) return got.status();
    *memory = *got;
    return {};
  });
}

sennit_status_t sennit_mem_free(sennit_comm_t comm, void* memory) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    if (memory && !comm->communicator->context().engine().free_user(memory))
      return invalid("this memory did not come from sennit_mem_alloc on this job");
    return {};
  });
}

sennit_status_t sennit_mem_register(sennit_comm_t comm, void* memory, size_t bytes) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    if (!memory)
      return bytes ? invalid(fmt::format("memory is NULL, with {} bytes", bytes)) : Status();
    return comm->communicator->context().engine().register_user(memory, bytes);
  });
}

sennit_status_t sennit_mem_deregister(sennit_comm_t comm, void* memory) {
  return guarded(comm, [&]() -> Status {
    if (!comm) return invalid("comm is NULL");
    return memory ? comm->communicator->context().engine().deregister_user(memory) : Status();
  });
}

sennit_status_t sennit_work_test(sennit_work_t work) {
  return guarded(work, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_started(work));
    return work->work->test() ? work->work->finish() : Status(SENNIT_IN_PROGRESS, "");
  });
}

sennit_status_t sennit_work_wait(sennit_work_t work, int64_t timeout_ms) {
  return guarded(work, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_started(work));
    const bool done =
        work->work->wait(timeout_ms < 0 ? -1 : std::min(timeout_ms, kMostMs) * kNsPerMs);
    return done ? work->work->finish() : Status(SENNIT_IN_PROGRESS, "");
  });
}

sennit_status_t sennit_work_expire(sennit_work_t work, int64_t waited_ms) {
  return guarded(work, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_started(work));
    if (waited_ms < 0)
      return invalid(fmt::format("work_expire: waited {} ms: expected 0 or more", waited_ms));
    work->work->expire(std::min(waited_ms, kMostMs));
    return {};
  });
}

sennit_status_t sennit_work_source(sennit_work_t work, int* source) {
  return guarded(work, [&]() -> Status {
    SENNIT_RETURN_IF_ERROR(check_started(work));
    if (!source) return invalid("source is NULL");
    if (!work->work->receives()) return invalid("the work is no receive");
    if (!work->work->done()) return {SENNIT_IN_PROGRESS, ""};
    SENNIT_RETURN_IF_ERROR(work->work->finish());
    *source = work->work->source();
    return {};
  });
}

sennit_status_t sennit_work_free(sennit_work_t work) {
  return guarded([&] {
    if (work && !work->origin.forked() && !work->work->started()) work->work->loses_handle();
    return give_back(work, &sennit_work::work);
  });
}

const char* sennit_last_error(void) { return t_last_error; }

const char* sennit_status_name(sennit_status_t status) {
  static constexpr const char* kNames[] = {
      "ok",          "in progress", "invalid argument", "mismatch",         "link failed",
      "peer failed", "timed out",   "aborted",          "out of resources", "not found",
      "unsupported", "refused",     "internal error"};
  const auto index = static_cast<size_t>(status);
  return index < std::size(kNames) ? kNames[index] : "unknown status";
}

size_t sennit_type_bytes(sennit_type_t type) {
  return type >= 0 && type < SENNIT_TYPE_COUNT ? type_bytes(static_cast<DataType>(type)) : 0;
}

const char* sennit_version(void) { return "0.1.0"; }

}  // extern "C"
