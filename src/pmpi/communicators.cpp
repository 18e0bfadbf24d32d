// communicators.cpp: see pmpi/communicators.hpp.
#include "pmpi/communicators.hpp"

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <set>
#include <vector>

namespace sennit::pmpi {
namespace {

// Of the process. Communicators may be used, made and freed by several threads.
struct All {
  Mutex mutex;
  int keyval SENNIT_GUARDED_BY(mutex) = MPI_KEYVAL_INVALID;
  std::set<Held*> held SENNIT_GUARDED_BY(mutex);
  int groups_made SENNIT_GUARDED_BY(mutex) = 0;
  static All& instance() {
    static auto* const all = new All;
    return *all;
  }
};

// The MPI communicator goes.
int forget(MPI_Comm, int, void* attribute, void*) {
  auto* const held = static_cast<Held*>(attribute);
  All& all = All::instance();
  {
    const MutexLock lock(all.mutex);
    all.held.erase(held);
  }
  sennit_comm_destroy(held->comm);
  delete held;
  return MPI_SUCCESS;
}

int keyval() {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  if (all.keyval == MPI_KEYVAL_INVALID)
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &all.keyval, nullptr);
  return all.keyval;
}

Held* find(MPI_Comm comm) {
  void* attribute = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(comm, keyval(), &attribute, &found);
  return found ? static_cast<Held*>(attribute) : nullptr;
}

// By its members alone, out of that of all processes: no new connections, and no new threads.
sennit_status_t make_of_world(MPI_Comm comm, Held& world, Held* held) {
  MPI_Group members, everyone;
  PMPI_Comm_group(comm, &members);
  PMPI_Comm_group(MPI_COMM_WORLD, &everyone);
  std::vector<int> own(static_cast<size_t>(held->size)), ranks(own.size());
  std::iota(own.begin(), own.end(), 0);
  PMPI_Group_translate_ranks(members, held->size, own.data(), everyone, ranks.data());
  PMPI_Group_free(&members);
  PMPI_Group_free(&everyone);
  int tag = 0;
  if (held->rank == 0) {
    All& all = All::instance();
    const MutexLock lock(all.mutex);
    tag = all.groups_made++;
  }
  PMPI_Bcast(&tag, 1, MPI_INT, 0, comm);
  return sennit_comm_create_group(world.comm, ranks.data(), held->size, tag, &held->comm);
}

// A job of its own.
sennit_status_t make_anew(MPI_Comm comm, Held* held) {
  struct {
    sennit_unique_id_t id;
    int status;
  } message = {};
  if (held->rank == 0) message.status = sennit_get_unique_id(&message.id);
  PMPI_Bcast(&message, sizeof message, MPI_BYTE, 0, comm);
  if (message.status != SENNIT_OK) return static_cast<sennit_status_t>(message.status);
  sennit_config_t config = SENNIT_CONFIG_INIT;
  config.arrival_timeout_ms = INT32_MAX;  // a late rank is no error to MPI's programs
  return sennit_comm_init_rank(&held->comm, held->size, &message.id, held->rank, &config);
}

// Collective. All ranks end with a communicator of sennit's, or none does.
void make(MPI_Comm comm, Held* held) {
  Held* const world = find(MPI_COMM_WORLD);
  int has_world = world && world->comm && comm != MPI_COMM_WORLD;
  PMPI_Allreduce(MPI_IN_PLACE, &has_world, 1, MPI_INT, MPI_MIN, comm);
  int status = has_world ? make_of_world(comm, *world, held) : make_anew(comm, held);
  if (status != SENNIT_OK)
    std::fprintf(stderr, "sennit: %s; MPI itself does the collectives of this communicator\n",
                 sennit_last_error());
  PMPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, comm);
  if (status == SENNIT_OK) return;
  sennit_comm_destroy(held->comm);
  held->comm = nullptr;
}

}  // namespace

Held* held_of(MPI_Comm comm, bool may_make) {
  if (comm == MPI_COMM_NULL) return nullptr;
  Held* held = find(comm);
  if (!held) {
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter || !may_make) return nullptr;
    held = new Held;
    PMPI_Comm_rank(comm, &held->rank);
    PMPI_Comm_size(comm, &held->size);
    if (held->size > 1) make(comm, held);
    PMPI_Comm_set_attr(comm, keyval(), held);
    All& all = All::instance();
    const MutexLock lock(all.mutex);
    all.held.insert(held);
  }
  return held->comm ? held : nullptr;
}

void destroy_all() {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  for (Held* const held : all.held) {
    sennit_comm_destroy(held->comm);
    held->comm = nullptr;
  }
}

}  // namespace sennit::pmpi
