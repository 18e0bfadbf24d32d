// collectives.cpp: the calls of a Communicator. sennit takes pointers and one count, Python's
// objects know how many elements they have: here it is held that the two agree.
#include <fmt/core.h>

#include "core/communicator.hpp"
#include "core/errors.hpp"

namespace sennit_python {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw_error(SENNIT_INVALID_ARGUMENT, text); }

void same_type(const char* call, const Array& send, const Array& recv) {
  if (send.type() != recv.type())
    refuse(fmt::format("{}: send has {} and recv {}; they must have one type", call, send.text(),
                       recv.text()));
}

// blocks: how many times the elements of `one` must lie in `all`.
void blocks_of(const char* call, const char* name_one, const Array& one, const char* name_all,
               const Array& all, int blocks) {
  same_type(call, one, all);
  if (all.count() != one.count() * static_cast<size_t>(blocks))
    refuse(fmt::format("{}: {} has {} and {} {}; of {} ranks it must have {} elements", call,
                       name_one, one.text(), name_all, all.text(), blocks,
                       one.count() * static_cast<size_t>(blocks)));
}

void one_a_rank(const char* call, const char* what, const std::vector<size_t>& list, int size) {
  if (list.size() != static_cast<size_t>(size))
    refuse(fmt::format("{}: {} has {} entries; give one for each of the {} ranks", call, what,
                       list.size(), size));
}

// sennit reads all entries of both lists, on ranks that have no such array as well.
void lists_of_ranks(const char* call, const std::vector<size_t>& counts,
                    const Counts& displacements, int size) {
  one_a_rank(call, "counts", counts, size);
  if (displacements) one_a_rank(call, "displacements", *displacements, size);
}

// That an array holds the blocks of all ranks.
void holds(const char* call, const char* what, const Array& array,
           const std::vector<size_t>& counts, const Counts& displacements, int size) {
  lists_of_ranks(call, counts, displacements, size);
  size_t end = 0, next = 0;
  for (size_t i = 0; i < counts.size(); i++) {
    const size_t begin = displacements ? (*displacements)[i] : next;
    if (begin > array.count() || counts[i] > array.count() - begin)
      refuse(fmt::format("{}: {} has {}; the block of rank {} is {} elements from {} on", call,
                         what, array.text(), i, counts[i], begin));
    next = begin + counts[i];
    end = std::max(end, next);
  }
  if (!displacements && end != array.count())
    refuse(fmt::format("{}: {} has {}; counts add up to {}", call, what, array.text(), end));
}

void own_block(const char* call, const char* what, const Array& array,
               const std::vector<size_t>& counts, int rank) {
  if (array.count() != counts[static_cast<size_t>(rank)])
    refuse(fmt::format("{}: {} has {}; counts says {} of rank {}", call, what, array.text(),
                       counts[static_cast<size_t>(rank)], rank));
}

const size_t* or_null(const Counts& list) { return list ? list->data() : nullptr; }

}  // namespace

PyCommunicator::Made PyCommunicator::call(Array first, Array second, PyWork::Start start) const {
  return std::make_shared<PyWork>(handle(), PyWork::Arrays{std::move(first), std::move(second)},
                                  std::move(start));
}

PyCommunicator::Made PyCommunicator::all_reduce(const py::object& send, const py::object& recv,
                                                const Op& op) {
  const bool in_place = recv.is_none();
  Array in = Array::of(send, "all_reduce: send", in_place);
  Array out = in_place ? in : Array::of(recv, "all_reduce: recv", true);
  same_type("all_reduce", in, out);
  if (in.count() != out.count())
    refuse(fmt::format("all_reduce: send has {} and recv {}", in.text(), out.text()));
  return call(in, out, [=, comm = comm(), op = op.value_on(handle())](sennit_work_t* work) {
    return sennit_all_reduce_start(in.data(), out.data(), in.count(), in.type(), op, comm, work);
  });
}

PyCommunicator::Made PyCommunicator::reduce(const py::object& send, const py::object& recv,
                                            const Op& op, int root) {
  const bool is_root = rank() == root, in_place = is_root && recv.is_none();
  Array in = Array::of(send, "reduce: send", in_place);
  Array out = in_place || recv.is_none() ? in : Array::of(recv, "reduce: recv", true);
  same_type("reduce", in, out);
  if (is_root && in.count() != out.count())
    refuse(fmt::format("reduce: send has {} and recv {}", in.text(), out.text()));
  return call(in, out, [=, comm = comm(), op = op.value_on(handle())](sennit_work_t* work) {
    return sennit_reduce_start(in.data(), is_root ? out.data() : nullptr, in.count(), in.type(), op,
                               root, comm, work);
  });
}

PyCommunicator::Made PyCommunicator::broadcast(const py::object& buffer, int root) {
  Array array = Array::of(buffer, "broadcast: buffer", rank() != root);
  return call(array, {}, [=, comm = comm()](sennit_work_t* work) {
    return sennit_broadcast_start(array.data(), array.data(), array.count(), array.type(), root,
                                  comm, work);
  });
}

PyCommunicator::Made PyCommunicator::reduce_scatter(const py::object& send, const py::object& recv,
                                                    const Op& op, const Counts& counts) {
  Array in = Array::of(send, "reduce_scatter: send", false);
  Array out = Array::of(recv, "reduce_scatter: recv", true);
  same_type("reduce_scatter", in, out);
  if (!counts) {
    blocks_of("reduce_scatter", "recv", out, "send", in, size());
    return call(in, out, [=, comm = comm(), op = op.value_on(handle())](sennit_work_t* work) {
      return sennit_reduce_scatter_start(in.data(), out.data(), out.count(), in.type(), op, comm,
                                         work);
    });
  }
  holds("reduce_scatter", "send", in, *counts, std::nullopt, size());
  own_block("reduce_scatter", "recv", out, *counts, rank());
  return call(in, out, [=, comm = comm(), op = op.value_on(handle())](sennit_work_t* work) {
    return sennit_reduce_scatter_v_start(in.data(), out.data(), counts->data(), in.type(), op, comm,
                                         work);
  });
}

PyCommunicator::Made PyCommunicator::all_gather(const py::object& send, const py::object& recv,
                                                const Counts& counts, const Counts& displacements) {
  Array in = Array::of(send, "all_gather: send", false);
  Array out = Array::of(recv, "all_gather: recv", true);
  same_type("all_gather", in, out);
  if (!counts) {
    if (displacements) refuse("all_gather: displacements without counts");
    blocks_of("all_gather", "send", in, "recv", out, size());
    return call(in, out, [=, comm = comm()](sennit_work_t* work) {
      return sennit_all_gather_start(in.data(), out.data(), in.count(), in.type(), comm, work);
    });
  }
  holds("all_gather", "recv", out, *counts, displacements, size());
  own_block("all_gather", "send", in, *counts, rank());
  return call(in, out, [=, comm = comm()](sennit_work_t* work) {
    return sennit_all_gather_v_start(in.data(), out.data(), counts->data(), or_null(displacements),
                                     in.type(), comm, work);
  });
}

PyCommunicator::Made PyCommunicator::gather(const py::object& send, const py::object& recv,
                                            int root, const Counts& counts,
                                            const Counts& displacements) {
  const bool is_root = rank() == root;
  Array in = Array::of(send, "gather: send", false);
  Array out;
  if (is_root) {
    out = Array::of(recv, "gather: recv", true);
    same_type("gather", in, out);
  }
  if (!counts) {
    if (displacements) refuse("gather: displacements without counts");
    if (is_root) blocks_of("gather", "send", in, "recv", out, size());
    return call(in, out, [=, comm = comm()](sennit_work_t* work) {
      return sennit_gather_start(in.data(), out.data(), in.count(), in.type(), root, comm, work);
    });
  }
  lists_of_ranks("gather", *counts, displacements, size());
  if (is_root) holds("gather", "recv", out, *counts, displacements, size());
  own_block("gather", "send", in, *counts, rank());
  return call(in, out, [=, comm = comm()](sennit_work_t* work) {
    return sennit_gather_v_start(in.data(), out.data(), counts->data(), or_null(displacements),
                                 in.type(), root, comm, work);
  });
}

PyCommunicator::Made PyCommunicator::scatter(const py::object& send, const py::object& recv,
                                             int root, const Counts& counts,
                                             const Counts& displacements) {
  const bool is_root = rank() == root;
  Array out = Array::of(recv, "scatter: recv", true);
  Array in;
  if (is_root) {
    in = Array::of(send, "scatter: send", false);
    same_type("scatter", in, out);
  }
  if (!counts) {
    if (displacements) refuse("scatter: displacements without counts");
    if (is_root) blocks_of("scatter", "recv", out, "send", in, size());
    return call(in, out, [=, comm = comm()](sennit_work_t* work) {
      return sennit_scatter_start(in.data(), out.data(), out.count(), out.type(), root, comm, work);
    });
  }
  lists_of_ranks("scatter", *counts, displacements, size());
  if (is_root) holds("scatter", "send", in, *counts, displacements, size());
  own_block("scatter", "recv", out, *counts, rank());
  return call(in, out, [=, comm = comm()](sennit_work_t* work) {
    return sennit_scatter_v_start(in.data(), out.data(), counts->data(), or_null(displacements),
                                  out.type(), root, comm, work);
  });
}

PyCommunicator::Made PyCommunicator::all_to_all(const py::object& send, const py::object& recv,
                                                const Counts& send_counts,
                                                const Counts& recv_counts,
                                                const Counts& send_displacements,
                                                const Counts& recv_displacements) {
  Array in = Array::of(send, "all_to_all: send", false);
  Array out = Array::of(recv, "all_to_all: recv", true);
  same_type("all_to_all", in, out);
  if (send_counts.has_value() != recv_counts.has_value())
    refuse("all_to_all: give both send_counts and recv_counts, or neither");
  if (!send_counts) {
    if (send_displacements || recv_displacements)
      refuse("all_to_all: displacements without counts");
    const size_t ranks = static_cast<size_t>(size());
    if (in.count() != out.count() || in.count() % ranks != 0)
      refuse(fmt::format("all_to_all: send has {} and recv {}; each must have {} equal blocks",
                         in.text(), out.text(), ranks));
    return call(in, out, [=, comm = comm()](sennit_work_t* work) {
      return sennit_all_to_all_start(in.data(), out.data(), in.count() / ranks, in.type(), comm,
                                     work);
    });
  }
  holds("all_to_all", "send", in, *send_counts, send_displacements, size());
  holds("all_to_all", "recv", out, *recv_counts, recv_displacements, size());
  return call(in, out, [=, comm = comm()](sennit_work_t* work) {
    return sennit_all_to_all_v_start(in.data(), send_counts->data(), or_null(send_displacements),
                                     out.data(), recv_counts->data(), or_null(recv_displacements),
                                     in.type(), comm, work);
  });
}

PyCommunicator::Made PyCommunicator::barrier() {
  return call({}, {},
              [comm = comm()](sennit_work_t* work) { return sennit_barrier_start(comm, work); });
}

PyCommunicator::Made PyCommunicator::send(const py::object& buffer, int peer, int tag) {
  Array array = Array::of(buffer, "send: buffer", false);
  Made made = call(array, {}, [=, comm = comm()](sennit_work_t* work) {
    return sennit_send_tagged_start(array.data(), array.count(), array.type(), peer, tag, comm,
                                    work);
  });
  if (peer == rank()) made->is_to_oneself();
  return made;
}

PyCommunicator::Made PyCommunicator::recv(const py::object& buffer, int peer, int tag) {
  Array array = Array::of(buffer, "recv: buffer", true);
  Made made = call(array, {}, [=, comm = comm()](sennit_work_t* work) {
    return sennit_recv_tagged_start(array.data(), array.count(), array.type(), peer, tag, comm,
                                    work);
  });
  made->keep_source();
  if (peer == rank()) made->is_to_oneself();
  return made;
}

}  // namespace sennit_python
