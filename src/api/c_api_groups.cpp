// c_api_groups.cpp: how a call of the C interface begins: at once, or with the others of its group.
#include "api/c_api.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace sennit {
namespace {

// The thread's calls between sennit_group_start and the sennit_group_end that starts them.
struct PendingGroup {
  int depth = 0;
  std::vector<std::shared_ptr<Work>> works;
  Status error;  // of the first call that was off
  Origin origin;

  void leave_inherited() {
    if (!origin.forked()) return;
    for (std::shared_ptr<Work>& work : works) leave_to_parent(std::move(work));
    works.clear();
    error = {};
    depth = 0;
    origin = {};
  }
  // Of a call that was off. Nothing of its group may be started, since other ranks wait for that
  // call; but where its communicator has failed they know, and wait for the group's other calls.
  Status note(const Status& off) {
    const sennit_status_t kind = off.kind();
    const bool of_communicator = kind >= SENNIT_MISMATCH && kind <= SENNIT_ABORTED;
    if (depth > 0 && error.ok() && !of_communicator) error = off;
    return off;
  }
  ~PendingGroup() { leave_inherited(); }
};
thread_local PendingGroup t_group;

// This thread's; a forked child begins with an empty one.
PendingGroup& group() {
  t_group.leave_inherited();
  return t_group;
}

// A group's calls, which are not made on this rank.
void give_up(const std::vector<std::shared_ptr<Work>>& works, const Status& why) {
  for (const auto& work : works) {
    if (!work->is_message()) work->shared_communicator()->refuses(why);
    work->give_up(why);
  }
}

}  // namespace

sennit_status_t submit(sennit_comm_t comm, const Call& call, sennit_work_t* handle) {
  return guarded(comm, [&]() -> Status {
    PendingGroup& open = group();
    if (!comm) return open.note(invalid("the communicator is NULL"));
    if (!handle && open.depth == 0) return comm->communicator->run(call);
    if (handle) *handle = nullptr;
    Call grouped = call;
    grouped.as_planned = open.depth > 0;
    Result<std::unique_ptr<Work>> prepared = comm->communicator->prepare(grouped);
    if (!prepared) return open.note(prepared.status());
    std::shared_ptr<Work> work = *std::move(prepared);
    if (handle && work->target().in_graph)
      return open.note({SENNIT_UNSUPPORTED,
                        "the stream is being captured: a call in a graph has no work to wait for"});
    if (handle) work->has_handle();
    if (open.depth > 0) {
      open.works.push_back(work);
    } else {
      StreamCalls calls;
      if (work->target().accelerator) SENNIT_RETURN_IF_ERROR(work->take_place(calls));
      work->start(true);
      SENNIT_RETURN_IF_ERROR(calls.enqueue());
    }
    if (handle) *handle = new sennit_work{std::move(work)};
    return {};
  });
}

bool in_group() { return group().depth > 0; }

Status noted_in_group(const Status& off) { return group().note(off); }

}  // namespace sennit

using namespace sennit;  // NOLINT: the functions below are the library's

extern "C" {

sennit_status_t sennit_group_start(void) {
  group().depth++;
  return SENNIT_OK;
}

sennit_status_t sennit_group_end(void) {
  return guarded([&]() -> Status {
    PendingGroup& open = group();
    if (open.depth == 0) return invalid("sennit_group_end without sennit_group_start");
    if (--open.depth > 0) return {};
    const std::vector<std::shared_ptr<Work>> works = std::exchange(open.works, {});
    if (Status off = std::exchange(open.error, {}); !off.ok()) {
      off = off.with_context("none of the group's calls was made");
      give_up(works, off);
      return off;
    }
    // Ranks of one job, all this thread's: while it waits for one of them the others have to go on.
    const bool several = std::any_of(works.begin(), works.end(), [&](const auto& work) {
      return &work->context() != &works.front()->context();
    });
    StreamCalls calls;
    for (const auto& work : works)
      if (work->target().accelerator)
        if (const Status off = work->take_place(calls); !off.ok()) {
          give_up(works, off);
          return off;
        }
    for (const auto& work : works) work->start(several || work->target().accelerator);
    Status first = calls.enqueue();
    for (const auto& work : works) {
      if (work->target().accelerator && !work->lacks_other_half()) {
        if (!work->is_handled()) work->shared_communicator()->keep(work);
        continue;
      }
      work->wait(-1);
      const Status status = work->finish();
      if (first.ok()) first = status;
    }
    return first;
  });
}

sennit_status_t sennit_group_predict(uint64_t* nanoseconds) {
  return guarded([&]() -> Status {
    PendingGroup& open = group();
    if (open.depth == 0) return invalid("sennit_group_predict without sennit_group_start");
    if (--open.depth > 0) return open.note(invalid("sennit_group_predict: within another group"));
    const std::vector<std::shared_ptr<Work>> works = std::exchange(open.works, {});
    const Status off = std::exchange(open.error, {});
    std::map<const Communicator*, uint64_t> by_communicator;
    for (const auto& work : works) {
      if (off.ok()) by_communicator[&work->communicator()] += work->predicted_ns();
      work->give_up(off.ok() ? Status(SENNIT_UNSUPPORTED, "the group was only predicted") : off);
    }
    if (!off.ok()) return off;
    if (!nanoseconds) return invalid("nanoseconds is NULL");
    *nanoseconds = 0;
    for (const auto& [communicator, ns] : by_communicator)
      *nanoseconds = std::max(*nanoseconds, ns);
    return {};
  });
}

}  // extern "C"
