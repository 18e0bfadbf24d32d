// collectives.cpp: MPI's collectives, each by sennit where it can, else by MPI itself.
//
// Every function has a twin that does not block, and MPI 4 has both with large counts as well. All
// are described once, by a function that fills an Operation and says whether sennit takes the call;
// see pmpi/types.hpp for which it takes. Other ranks may make the same call by another of them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>

#include "pmpi/device_memory.hpp"
#include "pmpi/operation.hpp"
#include "pmpi/report.hpp"
#include "pmpi/types.hpp"

namespace sennit::pmpi {
namespace {

// Whether sennit has the communicator; then the operation is on it.
bool on(Operation* o, const char* name, MPI_Comm comm, bool blocks) {
  look_for_devices();
  o->name = name;
  o->mpi = comm;
  o->held = held_of(comm, blocks);
  return o->held != nullptr;
}

size_t bytes_of(ptrdiff_t count, const Elements& elements) {
  return static_cast<size_t>(count) * elements.size();
}
std::byte* at(void* memory, ptrdiff_t bytes) { return static_cast<std::byte*>(memory) + bytes; }
const std::byte* at(const void* memory, ptrdiff_t bytes) {
  return static_cast<const std::byte*>(memory) + bytes;
}

// The caller's elements as bytes: where they are, or packed into `storage`.
const std::byte* flat(const void* memory, ptrdiff_t count, const Elements& elements,
                      std::vector<std::byte>* storage) {
  if (elements.flat_at(memory)) return static_cast<const std::byte*>(memory);
  storage->resize(bytes_of(count, elements));
  elements.pack(memory, count, storage->data());
  return storage->data();
}

// Whether arguments are such; MPI itself says what is wrong with others.
template <typename Count>
bool are_counts(const Count counts[], int n) {
  return counts && std::all_of(counts, counts + n, [](Count count) { return count >= 0; });
}
template <typename Count, typename Displacement>
bool are_blocks(const Count counts[], const Displacement displacements[], int n) {
  return displacements && are_counts(counts, n);
}
bool are_elements(const void* memory, MPI_Count count, MPI_Datatype type) {
  return memory != MPI_IN_PLACE && count >= 0 && type != MPI_DATATYPE_NULL;
}
bool are_sent(const void* send, MPI_Count count, MPI_Datatype type) {
  return send == MPI_IN_PLACE || are_elements(send, count, type);
}
bool is_root(int root, const Held& held) { return root >= 0 && root < held.size; }

// ---- reductions ----

// Of the elements of a reduction, which are predefined: where the operation reads them, and where
// it leaves them, until it has completed.
const void* read_from(Operation* o, const void* memory, MPI_Count count, MPI_Datatype type) {
  return is_on_device(memory) ? flat(memory, count, Elements(type), &o->input) : memory;
}
void* left_in(Operation* o, void* memory, MPI_Count count, MPI_Datatype type) {
  if (!is_on_device(memory)) return memory;
  const Elements elements(type);
  o->output.resize(bytes_of(count, elements));
  o->after = [=] { elements.unpack(o->output.data(), memory, count); };
  return o->output.data();
}

bool all_reduce(Operation* o, bool blocks, const void* send, void* recv, MPI_Count count,
                MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const std::optional<Reduction> r = reduction_of(type, op);
  if (!r || !are_elements(recv, count, type) || !on(o, "Allreduce", comm, blocks)) return false;
  const void* const in = read_from(o, send == MPI_IN_PLACE ? recv : send, count, type);
  void* const out = left_in(o, recv, count, type);
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_all_reduce_start(in, out, static_cast<size_t>(count) * r->per, r->type, r->op,
                                   sennits, work);
  };
  return true;
}

bool reduce(Operation* o, bool blocks, const void* send, void* recv, MPI_Count count,
            MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  const std::optional<Reduction> r = reduction_of(type, op);
  if (!r || count < 0 || !on(o, "Reduce", comm, blocks) || !is_root(root, *o->held)) return false;
  // Only the root may reduce in place, and no other rank has to say where the result goes.
  const bool is_at_root = o->held->rank == root;
  if ((is_at_root ? recv : send) == MPI_IN_PLACE) return false;
  const void* const in = read_from(o, send == MPI_IN_PLACE ? recv : send, count, type);
  void* const out = is_at_root ? left_in(o, recv, count, type) : recv;
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_reduce_start(in, out, static_cast<size_t>(count) * r->per, r->type, r->op, root,
                               sennits, work);
  };
  return true;
}

// MPI's result in place begins at the buffer's own begin, sennit's lies at this rank's block.
bool reduce_scatter(Operation* o, bool blocks, const char* name, const void* send, void* recv,
                    const std::vector<MPI_Count>& counts, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm) {
  const std::optional<Reduction> r = reduction_of(type, op);
  if (!r || recv == MPI_IN_PLACE || counts.empty() ||
      !are_counts(counts.data(), static_cast<int>(counts.size())) || !on(o, name, comm, blocks))
    return false;
  for (const MPI_Count count : counts) o->counts.push_back(static_cast<size_t>(count) * r->per);
  const bool in_place = send == MPI_IN_PLACE;
  const auto self = static_cast<size_t>(o->held->rank);
  const MPI_Count all = std::accumulate(counts.begin(), counts.end(), MPI_Count{0});
  const void* const in = read_from(o, in_place ? recv : send, all, type);
  void* out = left_in(o, recv, counts[self], type);
  if (in_place && out == recv) {
    o->output.resize(o->counts[self] * sennit_type_bytes(r->type));
    o->after = [o, recv] { std::memcpy(recv, o->output.data(), o->output.size()); };
    out = o->output.data();
  }
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_reduce_scatter_v_start(in, out, o->counts.data(), r->type, r->op, sennits, work);
  };
  return true;
}

size_t size_of(MPI_Comm comm) {
  int size = 0;
  if (comm != MPI_COMM_NULL) PMPI_Comm_size(comm, &size);
  return static_cast<size_t>(size);
}
// recvcounts has an entry for each rank.
template <typename Count>
std::vector<MPI_Count> listed(const Count counts[], MPI_Comm comm) {
  if (!counts) return {};
  return {counts, counts + size_of(comm)};
}
std::vector<MPI_Count> equal(MPI_Count count, MPI_Comm comm) {
  return std::vector<MPI_Count>(size_of(comm), count);
}

// ---- what moves ----

bool broadcast(Operation* o, bool blocks, void* buffer, MPI_Count count, MPI_Datatype type,
               int root, MPI_Comm comm) {
  if (!are_elements(buffer, count, type) || !on(o, "Bcast", comm, blocks) ||
      !is_root(root, *o->held))
    return false;
  const Elements elements(type);
  const size_t bytes = bytes_of(count, elements);
  void* memory = buffer;
  if (!elements.flat_at(buffer)) {
    o->input.resize(bytes);
    memory = o->input.data();
    if (o->held->rank == root)
      elements.pack(buffer, count, o->input.data());
    else
      o->after = [=] { elements.unpack(o->input.data(), buffer, count); };
  }
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_broadcast_start(memory, memory, bytes, SENNIT_UINT8, root, sennits, work);
  };
  return true;
}

bool all_gather(Operation* o, bool blocks, const void* send, MPI_Count send_count,
                MPI_Datatype send_type, void* recv, MPI_Count recv_count, MPI_Datatype recv_type,
                MPI_Comm comm) {
  if (!are_elements(recv, recv_count, recv_type) || !are_sent(send, send_count, send_type) ||
      !on(o, "Allgather", comm, blocks))
    return false;
  const Elements to(recv_type);
  const size_t block = bytes_of(recv_count, to);
  const ptrdiff_t stride = recv_count * to.extent();
  const int size = o->held->size;
  void* const own = at(recv, o->held->rank * stride);
  const void* const in = send == MPI_IN_PLACE
                             ? flat(own, recv_count, to, &o->input)
                             : flat(send, send_count, Elements(send_type), &o->input);
  void* out = recv;
  if (!to.flat_at(recv)) {
    o->output.resize(block * static_cast<size_t>(size));
    out = o->output.data();
    o->after = [=] {
      for (int r = 0; r < size; r++)
        to.unpack(o->output.data() + static_cast<size_t>(r) * block, at(recv, r * stride),
                  recv_count);
    };
  }
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_all_gather_start(in, out, block, SENNIT_UINT8, sennits, work);
  };
  return true;
}

// Blocks of `elements` at `displacements` of a buffer, as bytes: their sizes, and where they begin.
// Returns the buffer from which these count; they are not negative. An empty block is nowhere.
template <typename Memory, typename Count, typename Displacement>
Memory* blocks_of(Memory* memory, const Count counts[], const Displacement displacements[],
                  int size, const Elements& elements, std::vector<size_t>* bytes,
                  std::vector<size_t>* begins) {
  std::optional<ptrdiff_t> lowest;
  for (int r = 0; r < size; r++)
    if (counts[r] > 0 && (!lowest || displacements[r] < *lowest)) lowest = displacements[r];
  const ptrdiff_t least = lowest.value_or(0);
  for (int r = 0; r < size; r++) {
    bytes->push_back(bytes_of(counts[r], elements));
    begins->push_back(counts[r] > 0 ? static_cast<size_t>(displacements[r] - least) *
                                          static_cast<size_t>(elements.extent())
                                    : 0);
  }
  return at(memory, least * elements.extent());
}

// The same blocks packed one after the other. Returns the bytes of all.
template <typename Count>
size_t packed_blocks(const Count counts[], int size, const Elements& elements,
                     std::vector<size_t>* bytes, std::vector<size_t>* begins) {
  size_t all = 0;
  for (int r = 0; r < size; r++) {
    bytes->push_back(bytes_of(counts[r], elements));
    begins->push_back(all);
    all += bytes->back();
  }
  return all;
}

// Where the operation receives blocks of `to` at `displacements` of `recv`: there, or packed in its
// output until it has completed.
template <typename Count, typename Displacement>
void* receive_blocks(Operation* o, void* recv, const Count counts[],
                     const Displacement displacements[], const Elements& to,
                     std::vector<size_t>* bytes, std::vector<size_t>* begins) {
  const int size = o->held->size;
  if (to.flat_at(recv))
    return blocks_of(static_cast<std::byte*>(recv), counts, displacements, size, to, bytes, begins);
  o->output.resize(packed_blocks(counts, size, to, bytes, begins));
  const std::vector<Count> n(counts, counts + size);
  const std::vector<Displacement> d(displacements, displacements + size);
  o->after = [=] {
    for (size_t r = 0; r < n.size(); r++)
      to.unpack(o->output.data() + (*begins)[r], at(recv, d[r] * to.extent()), n[r]);
  };
  return o->output.data();
}

template <typename Count, typename Displacement>
bool all_gather_v(Operation* o, bool blocks, const void* send, Count send_count,
                  MPI_Datatype send_type, void* recv, const Count counts[],
                  const Displacement displacements[], MPI_Datatype recv_type, MPI_Comm comm) {
  if (!are_elements(recv, 0, recv_type) || !are_sent(send, send_count, send_type) ||
      !on(o, "Allgatherv", comm, blocks) || !are_blocks(counts, displacements, o->held->size))
    return false;
  const Elements to(recv_type);
  const int self = o->held->rank;
  void* const own = at(recv, displacements[self] * to.extent());
  const void* const in = send == MPI_IN_PLACE
                             ? flat(own, counts[self], to, &o->input)
                             : flat(send, send_count, Elements(send_type), &o->input);
  void* const out =
      receive_blocks(o, recv, counts, displacements, to, &o->counts, &o->displacements);
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_all_gather_v_start(in, out, o->counts.data(), o->displacements.data(),
                                     SENNIT_UINT8, sennits, work);
  };
  return true;
}

bool all_to_all(Operation* o, bool blocks, const void* send, MPI_Count send_count,
                MPI_Datatype send_type, void* recv, MPI_Count recv_count, MPI_Datatype recv_type,
                MPI_Comm comm) {
  if (!are_elements(recv, recv_count, recv_type) || !are_sent(send, send_count, send_type) ||
      !on(o, "Alltoall", comm, blocks))
    return false;
  const Elements to(recv_type);
  const size_t block = bytes_of(recv_count, to);
  const ptrdiff_t size = o->held->size;
  const ptrdiff_t all = recv_count * size;
  const void* const in = send == MPI_IN_PLACE
                             ? flat(recv, all, to, &o->input)
                             : flat(send, send_count * size, Elements(send_type), &o->input);
  void* out = recv;
  if (!to.flat_at(recv)) {
    o->output.resize(block * static_cast<size_t>(size));
    out = o->output.data();
    o->after = [=] { to.unpack(o->output.data(), recv, all); };
  }
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_all_to_all_start(in, out, block, SENNIT_UINT8, sennits, work);
  };
  return true;
}

// What goes to every rank, one after the other in `storage`.
template <typename Count, typename Displacement>
void pack_blocks(const void* memory, const Count counts[], const Displacement displacements[],
                 int size, const Elements& elements, std::vector<size_t>* bytes,
                 std::vector<size_t>* begins, std::vector<std::byte>* storage) {
  storage->resize(packed_blocks(counts, size, elements, bytes, begins));
  for (int r = 0; r < size; r++)
    elements.pack(at(memory, displacements[r] * elements.extent()), counts[r],
                  storage->data() + (*begins)[static_cast<size_t>(r)]);
}

template <typename Count, typename Displacement>
bool all_to_all_v(Operation* o, bool blocks, const void* send, const Count send_counts[],
                  const Displacement send_displacements[], MPI_Datatype send_type, void* recv,
                  const Count recv_counts[], const Displacement recv_displacements[],
                  MPI_Datatype recv_type, MPI_Comm comm) {
  const bool in_place = send == MPI_IN_PLACE;
  if (!are_elements(recv, 0, recv_type) || !are_sent(send, 0, send_type) ||
      !on(o, "Alltoallv", comm, blocks))
    return false;
  const int size = o->held->size;
  if (!are_blocks(recv_counts, recv_displacements, size) ||
      (!in_place && !are_blocks(send_counts, send_displacements, size)))
    return false;
  const Elements to(recv_type);
  const Elements from = in_place ? to : Elements(send_type);
  const void* in = send;
  if (in_place || !from.flat_at(send)) {
    pack_blocks(in_place ? recv : send, in_place ? recv_counts : send_counts,
                in_place ? recv_displacements : send_displacements, size, from, &o->counts,
                &o->displacements, &o->input);
    in = o->input.data();
  } else {
    in = blocks_of(static_cast<const std::byte*>(send), send_counts, send_displacements, size, from,
                   &o->counts, &o->displacements);
  }
  void* const out = receive_blocks(o, recv, recv_counts, recv_displacements, to, &o->recv_counts,
                                   &o->recv_displacements);
  o->start = [=](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_all_to_all_v_start(in, o->counts.data(), o->displacements.data(), out,
                                     o->recv_counts.data(), o->recv_displacements.data(),
                                     SENNIT_UINT8, sennits, work);
  };
  return true;
}

bool barrier(Operation* o, bool blocks, MPI_Comm comm) {
  if (!on(o, "Barrier", comm, blocks)) return false;
  o->start = [](sennit_comm_t sennits, sennit_work_t* work) {
    return sennit_barrier_start(sennits, work);
  };
  return true;
}

}  // namespace

// The types of what a function counts with.
namespace ints {
using Count = int;
using Displacement = int;
}  // namespace ints
namespace large {
using Count = MPI_Count;
using Displacement = MPI_Aint;
}  // namespace large

namespace {

enum class Filled { yes, no, no_memory };

// Whether sennit takes the call, or that there is no memory for what it packs.
template <typename Fill>
Filled filled_by(Fill fill) {
  try {
    return fill() ? Filled::yes : Filled::no;
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error of a vector
    return Filled::no_memory;
  }
}

int no_memory(MPI_Comm comm) {
  std::fprintf(stderr, "sennit: there is no memory for what a collective packs\n");
  PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
  return MPI_ERR_NO_MEM;
}

}  // namespace

// A function, and one that does not block: what fills the operation, the parameters, and the
// arguments, of the function itself and for what fills.
#define BLOCKING(name, fill, parameters, arguments, ...)                                  \
  extern "C" int sennit_pmpi_##name parameters {                                          \
    Operation operation;                                                                  \
    const Filled filled = filled_by([&] { return fill(&operation, true, __VA_ARGS__); }); \
    if (filled == Filled::no_memory) return no_memory(comm);                              \
    if (filled == Filled::no) return by_mpi(PMPI_##name arguments);                       \
    return by_sennit(run(operation));                                                     \
  }
#define NONBLOCKING(name, fill, parameters, arguments, ...)                                     \
  extern "C" int sennit_pmpi_##name parameters {                                                \
    auto operation = std::make_unique<Operation>();                                             \
    const Filled filled = filled_by([&] { return fill(operation.get(), false, __VA_ARGS__); }); \
    if (filled == Filled::no_memory) return no_memory(comm);                                    \
    if (filled == Filled::no) return by_mpi(PMPI_##name arguments);                             \
    return by_sennit(begin(std::move(operation), request));                                     \
  }
// Both with either count. An MPI before its version 4 has not those with large ones.
#define WITH_COUNTS(define, name, fill, parameters, arguments, ...) \
  namespace ints {                                                  \
  define(name, fill, parameters, arguments, __VA_ARGS__)            \
  }                                                                 \
  namespace large {                                                 \
  extern "C" [[gnu::weak]] int PMPI_##name##_c parameters;          \
  define(name##_c, fill, parameters, arguments, __VA_ARGS__)        \
  }

WITH_COUNTS(BLOCKING, Allreduce, all_reduce,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm),
            (send, recv, count, type, op, comm), send, recv, count, type, op, comm)
WITH_COUNTS(NONBLOCKING, Iallreduce, all_reduce,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
             MPI_Request* request),
            (send, recv, count, type, op, comm, request), send, recv, count, type, op, comm)
WITH_COUNTS(BLOCKING, Reduce, reduce,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op, int root,
             MPI_Comm comm),
            (send, recv, count, type, op, root, comm), send, recv, count, type, op, root, comm)
WITH_COUNTS(NONBLOCKING, Ireduce, reduce,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op, int root,
             MPI_Comm comm, MPI_Request* request),
            (send, recv, count, type, op, root, comm, request), send, recv, count, type, op, root,
            comm)
WITH_COUNTS(BLOCKING, Reduce_scatter, reduce_scatter,
            (const void* send, void* recv, const Count counts[], MPI_Datatype type, MPI_Op op,
             MPI_Comm comm),
            (send, recv, counts, type, op, comm), "Reduce_scatter", send, recv,
            listed(counts, comm), type, op, comm)
WITH_COUNTS(NONBLOCKING, Ireduce_scatter, reduce_scatter,
            (const void* send, void* recv, const Count counts[], MPI_Datatype type, MPI_Op op,
             MPI_Comm comm, MPI_Request* request),
            (send, recv, counts, type, op, comm, request), "Ireduce_scatter", send, recv,
            listed(counts, comm), type, op, comm)
WITH_COUNTS(BLOCKING, Reduce_scatter_block, reduce_scatter,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm),
            (send, recv, count, type, op, comm), "Reduce_scatter_block", send, recv,
            equal(count, comm), type, op, comm)
WITH_COUNTS(NONBLOCKING, Ireduce_scatter_block, reduce_scatter,
            (const void* send, void* recv, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
             MPI_Request* request),
            (send, recv, count, type, op, comm, request), "Ireduce_scatter_block", send, recv,
            equal(count, comm), type, op, comm)
WITH_COUNTS(BLOCKING, Bcast, broadcast,
            (void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm),
            (buffer, count, type, root, comm), buffer, count, type, root, comm)
WITH_COUNTS(NONBLOCKING, Ibcast, broadcast,
            (void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm,
             MPI_Request* request),
            (buffer, count, type, root, comm, request), buffer, count, type, root, comm)
WITH_COUNTS(BLOCKING, Allgather, all_gather,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             Count recv_count, MPI_Datatype recv_type, MPI_Comm comm),
            (send, send_count, send_type, recv, recv_count, recv_type, comm), send, send_count,
            send_type, recv, recv_count, recv_type, comm)
WITH_COUNTS(NONBLOCKING, Iallgather, all_gather,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             Count recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request* request),
            (send, send_count, send_type, recv, recv_count, recv_type, comm, request), send,
            send_count, send_type, recv, recv_count, recv_type, comm)
WITH_COUNTS(BLOCKING, Allgatherv, all_gather_v,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             const Count counts[], const Displacement displacements[], MPI_Datatype recv_type,
             MPI_Comm comm),
            (send, send_count, send_type, recv, counts, displacements, recv_type, comm), send,
            send_count, send_type, recv, counts, displacements, recv_type, comm)
WITH_COUNTS(NONBLOCKING, Iallgatherv, all_gather_v,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             const Count counts[], const Displacement displacements[], MPI_Datatype recv_type,
             MPI_Comm comm, MPI_Request* request),
            (send, send_count, send_type, recv, counts, displacements, recv_type, comm, request),
            send, send_count, send_type, recv, counts, displacements, recv_type, comm)
WITH_COUNTS(BLOCKING, Alltoall, all_to_all,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             Count recv_count, MPI_Datatype recv_type, MPI_Comm comm),
            (send, send_count, send_type, recv, recv_count, recv_type, comm), send, send_count,
            send_type, recv, recv_count, recv_type, comm)
WITH_COUNTS(NONBLOCKING, Ialltoall, all_to_all,
            (const void* send, Count send_count, MPI_Datatype send_type, void* recv,
             Count recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request* request),
            (send, send_count, send_type, recv, recv_count, recv_type, comm, request), send,
            send_count, send_type, recv, recv_count, recv_type, comm)
WITH_COUNTS(BLOCKING, Alltoallv, all_to_all_v,
            (const void* send, const Count send_counts[], const Displacement send_displacements[],
             MPI_Datatype send_type, void* recv, const Count recv_counts[],
             const Displacement recv_displacements[], MPI_Datatype recv_type, MPI_Comm comm),
            (send, send_counts, send_displacements, send_type, recv, recv_counts,
             recv_displacements, recv_type, comm),
            send, send_counts, send_displacements, send_type, recv, recv_counts, recv_displacements,
            recv_type, comm)
WITH_COUNTS(NONBLOCKING, Ialltoallv, all_to_all_v,
            (const void* send, const Count send_counts[], const Displacement send_displacements[],
             MPI_Datatype send_type, void* recv, const Count recv_counts[],
             const Displacement recv_displacements[], MPI_Datatype recv_type, MPI_Comm comm,
             MPI_Request* request),
            (send, send_counts, send_displacements, send_type, recv, recv_counts,
             recv_displacements, recv_type, comm, request),
            send, send_counts, send_displacements, send_type, recv, recv_counts, recv_displacements,
            recv_type, comm)
BLOCKING(Barrier, barrier, (MPI_Comm comm), (comm), comm)
NONBLOCKING(Ibarrier, barrier, (MPI_Comm comm, MPI_Request* request), (comm, request), comm)

}  // namespace sennit::pmpi
