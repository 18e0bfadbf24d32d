// stream_calls.cpp: see api/call/stream_calls.hpp.
#include "api/call/stream_calls.hpp"

namespace sennit {

Result<std::shared_ptr<StreamPlace>> StreamCalls::place(Engine& engine, const StreamOwner& owner,
                                                        const StreamTarget& target) {
  for (const Used& used : used_)
    if (used.engine == &engine && used.target.accelerator == target.accelerator &&
        used.target.stream == target.stream && used.target.in_graph == target.in_graph)
      return used.place;
  const Result<bool> captured = target.accelerator->is_captured(target.stream);
  if (!captured) return captured.status();
  if (*captured != target.in_graph)
    return invalid(
        "a capture of the stream has begun or ended within a group of calls: keep the "
        "whole group, from sennit_group_start to sennit_group_end, inside or outside");
  Result<std::unique_ptr<StreamWorker>> worker =
      target.accelerator->make_worker(owner, target.in_graph);
  if (!worker) return worker.status();
  used_.push_back(
      {&engine, target, std::make_shared<StreamPlace>(*std::move(worker), target.in_graph)});
  return used_.back().place;
}

void StreamCalls::add_bytes(const StreamPlace& place, uint64_t bytes) {
  for (Used& used : used_)
    if (used.place.get() == &place) used.bytes += bytes;
}

Status StreamCalls::enqueue() {
  Status first;
  for (Used& used : used_) {
    if (!used.engine->watch(used.place)) continue;
    const Status put = used.place->worker().enqueue(used.target.stream, used.bytes);
    if (put.ok()) continue;
    used.engine->fail_place(*used.place, put);
    if (first.ok()) first = put;
  }
  return first;
}

}  // namespace sennit
