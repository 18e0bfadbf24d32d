// communicators.cpp: see pmpi/communicators.hpp.
#include "pmpi/communicators.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "pmpi/operation.hpp"

namespace sennit::pmpi {
namespace {

// Of the process. Communicators may be used, made and freed by several threads.
struct All {
  Mutex mutex;
  // MPI_KEYVAL_INVALID: no communicator has the attribute.
  int keyval SENNIT_GUARDED_BY(mutex) = MPI_KEYVAL_INVALID;
  std::map<void*, std::shared_ptr<Held>> held SENNIT_GUARDED_BY(mutex);  // by the attribute
  // Left by MPI_Finalize. They stay, so that no other attribute gets their addresses.
  std::vector<std::shared_ptr<Held>> left SENNIT_GUARDED_BY(mutex);
  bool ended SENNIT_GUARDED_BY(mutex) = false;  // MPI_Finalize was called
  unsigned groups_made SENNIT_GUARDED_BY(mutex) = 0;
  static All& instance() {
    static auto* const all = new All;
    return *all;
  }
};

// The MPI communicator goes.
int forget(MPI_Comm, int, void* attribute, void*) {
  All& all = All::instance();
  std::shared_ptr<Held> held;  // ends after the lock
  const MutexLock lock(all.mutex);
  const auto found = all.held.find(attribute);
  if (found == all.held.end()) return MPI_SUCCESS;
  held = std::move(found->second);
  all.held.erase(found);
  held->freed = true;
  // MPI may end before the next one, if it has sessions only, and all its keyvals do with it.
  if (all.held.empty()) all.keyval = MPI_KEYVAL_INVALID;
  return MPI_SUCCESS;
}

void keep(MPI_Comm comm, const std::shared_ptr<Held>& held) {
  All& all = All::instance();
  int keyval = MPI_KEYVAL_INVALID;
  {
    const MutexLock lock(all.mutex);
    all.held[held.get()] = held;
    if (all.keyval == MPI_KEYVAL_INVALID)
      PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &all.keyval, nullptr);
    keyval = all.keyval;
  }
  PMPI_Comm_set_attr(comm, keyval, held.get());
}

int keyval_now() {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  return all.keyval;
}

std::shared_ptr<Held> find(MPI_Comm comm) {
  const int keyval = keyval_now();
  if (keyval == MPI_KEYVAL_INVALID) return nullptr;
  void* attribute = nullptr;
  int is_set = 0;
  PMPI_Comm_get_attr(comm, keyval, &attribute, &is_set);
  if (!is_set) return nullptr;
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  const auto found = all.held.find(attribute);
  return found == all.held.end() ? nullptr : found->second;
}

// Among the groups that a process makes at a time, each by a thread, no two have the same: what
// tells them apart is the rank that draws it, and then its own count.
int draw_tag(const Held& world) {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  const unsigned own = all.groups_made++ % static_cast<unsigned>(INT_MAX / world.size);
  return static_cast<int>(own) * world.size + world.rank;
}

// The ranks of a communicator's members among all processes; MPI_UNDEFINED: of another world, as
// those that were spawned are.
std::vector<int> ranks_in_world(MPI_Comm comm, int size) {
  MPI_Group members, everyone;
  PMPI_Comm_group(comm, &members);
  PMPI_Comm_group(MPI_COMM_WORLD, &everyone);
  std::vector<int> own(static_cast<size_t>(size)), ranks(own.size());
  std::iota(own.begin(), own.end(), 0);
  PMPI_Group_translate_ranks(members, size, own.data(), everyone, ranks.data());
  PMPI_Group_free(&members);
  PMPI_Group_free(&everyone);
  return ranks;
}

// What became of something, and why.
struct Made {
  sennit_status_t status = SENNIT_OK;
  std::string why;
};
Made made_by(const std::function<sennit_status_t()>& make) {
  const sennit_status_t status = make();
  return {status, status == SENNIT_OK ? "" : sennit_last_error()};
}

// Another rank may come to this one's call only after a message that MPI has not sent yet: so MPI
// makes progress meanwhile.
Made beside_mpi(const std::function<sennit_status_t()>& make) {
  std::promise<Made> promise;
  std::future<Made> made = promise.get_future();
  std::thread maker;
  try {
    maker = std::thread([&] { promise.set_value(made_by(make)); });
  } catch (const std::system_error&) {
    return made_by(make);
  }
  while (made.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
    let_mpi_progress();
  maker.join();
  return made.get();
}

// By its members alone, out of that of all processes: no new connections, and no new threads.
Made make_of_world(MPI_Comm comm, const std::vector<int>& ranks, Held& world, Held* held) {
  int tag = held->rank == 0 ? draw_tag(world) : 0;
  PMPI_Bcast(&tag, 1, MPI_INT, 0, comm);
  return beside_mpi([&] {
    return sennit_comm_create_group(world.comm, ranks.data(), held->size, tag, &held->comm);
  });
}

// A job of its own. Each rank makes an id, though only the first one's is used: what keeps a rank
// from that, such as an interface that is not there or an option that is wrong, would keep it from
// the job, and the others would wait. So they do where a rank has no thread left for the job.
Made make_anew(MPI_Comm comm, Held* held) {
  sennit_unique_id_t id = {};
  Made own = made_by([&] { return sennit_get_unique_id(&id); });
  int status = own.status;
  PMPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, comm);
  if (own.status == SENNIT_OK && (status != SENNIT_OK || held->rank != 0))
    sennit_forget_unique_id(&id);
  if (own.status != SENNIT_OK) return own;
  if (status != SENNIT_OK)
    return {static_cast<sennit_status_t>(status), "another rank cannot take part, and says why"};
  PMPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
  sennit_config_t config = SENNIT_CONFIG_INIT;
  config.arrival_timeout_ms = INT32_MAX;  // a late rank is no error to MPI's programs
  return beside_mpi(
      [&] { return sennit_comm_init_rank(&held->comm, held->size, &id, held->rank, &config); });
}

// Before and behind that MPI has sessions only.
bool between_init_and_finalize() {
  int has_begun = 0;
  PMPI_Initialized(&has_begun);
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  return has_begun && !all.ended;
}

// Collective. All ranks end with a communicator of sennit's, or none does.
void make(MPI_Comm comm, Held* held) {
  struct {
    int has_begun = 0, has_world = 0;
  } all;
  all.has_begun = between_init_and_finalize();
  const std::shared_ptr<Held> world = all.has_begun ? find(MPI_COMM_WORLD) : nullptr;
  std::vector<int> ranks;
  if (world && world->comm && comm != MPI_COMM_WORLD) {
    ranks = ranks_in_world(comm, held->size);
    all.has_world = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) == ranks.end();
  }
  PMPI_Allreduce(MPI_IN_PLACE, &all, 2, MPI_INT, MPI_MIN, comm);
  if (!all.has_begun) return;
  const Made made =
      all.has_world ? make_of_world(comm, ranks, *world, held) : make_anew(comm, held);
  int status = made.status;
  if (status != SENNIT_OK)
    std::fprintf(stderr, "sennit: %s; MPI itself does the collectives of this communicator\n",
                 made.why.c_str());
  PMPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, comm);
  if (status == SENNIT_OK) return;
  sennit_comm_destroy(held->comm);
  held->comm = nullptr;
}

}  // namespace

std::shared_ptr<Held> held_of(MPI_Comm comm, bool may_make) {
  if (comm == MPI_COMM_NULL) return nullptr;
  std::shared_ptr<Held> held = find(comm);
  if (!held) {
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter || !may_make) return nullptr;
    held = std::make_shared<Held>();
    PMPI_Comm_rank(comm, &held->rank);
    PMPI_Comm_size(comm, &held->size);
    if (held->size > 1) make(comm, held.get());
    keep(comm, held);
  }
  return held->comm ? held : nullptr;
}

void destroy_all() {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  all.ended = true;
  for (const auto& [attribute, held] : all.held) {
    const MutexLock turn(held->mutex);
    sennit_comm_destroy(held->comm);
    held->comm = nullptr;
  }
}

void forget_all() {
  All& all = All::instance();
  const MutexLock lock(all.mutex);
  for (const auto& [attribute, held] : all.held) all.left.push_back(held);
  all.held.clear();
  all.keyval = MPI_KEYVAL_INVALID;
}

}  // namespace sennit::pmpi
