// calls.cpp: see tests/random/calls.hpp: which function of the library an event calls.
#include "tests/random/calls.hpp"

namespace random_programs {

// `blocking` or, with a work, `blocking`_start; the arguments are the same but for that one.
#define SENNIT_EITHER(blocking, ...) \
  return a.work ? blocking##_start(__VA_ARGS__, a.comm, a.work) : blocking(__VA_ARGS__, a.comm)

sennit_status_t call_collective(const Event& event, const Contents& contents, const Arguments& a) {
  const auto type = static_cast<sennit_type_t>(event.type);
  const auto count = static_cast<size_t>(event.count);
  const size_t* const counts = contents.counts.data();
  const auto optional = [](const std::vector<size_t>& list) {
    return list.empty() ? nullptr : list.data();
  };
  const size_t* const displacements = optional(contents.displacements);
  switch (static_cast<Collective>(event.what)) {
    case Collective::all_reduce:
      SENNIT_EITHER(sennit_all_reduce, a.send, a.recv, count, type, a.op);
    case Collective::reduce_scatter:
      SENNIT_EITHER(sennit_reduce_scatter, a.send, a.recv, count, type, a.op);
    case Collective::all_gather:
      SENNIT_EITHER(sennit_all_gather, a.send, a.recv, count, type);
    case Collective::broadcast:
      SENNIT_EITHER(sennit_broadcast, a.send, a.recv, count, type, a.root);
    case Collective::reduce:
      SENNIT_EITHER(sennit_reduce, a.send, a.recv, count, type, a.op, a.root);
    case Collective::gather:
      SENNIT_EITHER(sennit_gather, a.send, a.recv, count, type, a.root);
    case Collective::scatter:
      SENNIT_EITHER(sennit_scatter, a.send, a.recv, count, type, a.root);
    case Collective::all_to_all:
      SENNIT_EITHER(sennit_all_to_all, a.send, a.recv, count, type);
    case Collective::barrier:
      return a.work ? sennit_barrier_start(a.comm, a.work) : sennit_barrier(a.comm);
    case Collective::all_gather_v:
      SENNIT_EITHER(sennit_all_gather_v, a.send, a.recv, counts, displacements, type);
    case Collective::reduce_scatter_v:
      SENNIT_EITHER(sennit_reduce_scatter_v, a.send, a.recv, counts, type, a.op);
    case Collective::gather_v:
      SENNIT_EITHER(sennit_gather_v, a.send, a.recv, counts, displacements, type, a.root);
    case Collective::scatter_v:
      SENNIT_EITHER(sennit_scatter_v, a.send, a.recv, counts, displacements, type, a.root);
    case Collective::all_to_all_v:
      SENNIT_EITHER(sennit_all_to_all_v, a.send, counts, displacements, a.recv,
                    contents.recv_counts.data(), optional(contents.recv_displacements), type);
  }
  return SENNIT_INTERNAL;
}

sennit_status_t call_message(const Event& event, bool sender, const Arguments& a) {
  const auto type = static_cast<sennit_type_t>(event.type);
  const auto count = static_cast<size_t>(event.count);
  const bool plain = event.tag == 0 && !event.any && !a.source;
  if (sender && plain) SENNIT_EITHER(sennit_send, a.send, count, type, a.root);
  if (plain) SENNIT_EITHER(sennit_recv, a.recv, count, type, a.root);
  if (sender) SENNIT_EITHER(sennit_send_tagged, a.send, count, type, a.root, event.tag);
  const int from = event.any ? SENNIT_ANY_SOURCE : a.root;
  return a.work ? sennit_recv_tagged_start(a.recv, count, type, from, event.tag, a.comm, a.work)
                : sennit_recv_tagged(a.recv, count, type, from, event.tag, a.comm, a.source);
}

#undef SENNIT_EITHER

}  // namespace random_programs
