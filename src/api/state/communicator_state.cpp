// communicator_state.cpp: see api/state/communicator_state.hpp.
#include "api/state/communicator_state.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "record/notes.hpp"

namespace sennit {
namespace {

int index_of(const std::vector<int>& members, int world_rank) {
  const auto found = std::find(members.begin(), members.end(), world_rank);
  SENNIT_CHECK(found != members.end());
  return static_cast<int>(found - members.begin());
}

}  // namespace

CommunicatorState::CommunicatorState(uint32_t id, std::vector<int> members, int self,
                                     Engine& engine, Control& control)
    : id_(id),
      members_(std::move(members)),
      rank_(index_of(members_, self)),
      engine_(engine),
      control_(control) {}

bool CommunicatorState::has(int world_rank) const {
  return std::find(members_.begin(), members_.end(), world_rank) != members_.end();
}

std::vector<int> CommunicatorState::others() const {
  std::vector<int> others = members_;
  others.erase(others.begin() + rank_);
  return others;
}

int CommunicatorState::rank_of(int world_rank) const { return index_of(members_, world_rank); }

Status CommunicatorState::status() const {
  if (!failed()) return {};
  const MutexLock lock(mutex_);
  return status_;
}

bool CommunicatorState::fail(const Status& status) {
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return false;
    status_ = status;
    failed_.store(true, std::memory_order_release);
  }
  calls_.goes_on();  // what a call was refused for is no reason why a group fails that comes after
  engine_.recording().note(encode(FailureNote{id_, now_ns(), status.text()}));
  engine_.recording().trouble();
  engine_.fail_communicator(id_, status);
  return true;
}

void CommunicatorState::fail_and_tell(const Status& status) {
  if (failed()) return;
  if (status.kind() == SENNIT_MISMATCH || status.kind() == SENNIT_TIMED_OUT)
    control_.fail(id_, status);
  else
    control_.abort(id_, status.text());
  fail(status);
}

void CommunicatorState::abort() {
  const Status aborted(
      SENNIT_ABORTED,
      fmt::format("communicator {} was aborted by rank {}, this one", id_, world_rank(rank_)));
  // Of any other failure the other members know already.
  if (fail(aborted)) control_.abort(id_, "");
}

void CommunicatorState::peers_failed(const std::vector<int>& world_ranks, const Status& status) {
  std::vector<int> mine;
  for (int r = 0; r < size(); r++)
    if (std::binary_search(world_ranks.begin(), world_ranks.end(), world_rank(r)))
      mine.push_back(r);
  if (mine.empty()) return;
  {
    const MutexLock lock(mutex_);
    failed_ranks_ = mine;
  }
  fail(status);
}

std::vector<int> CommunicatorState::failed_ranks() const {
  const MutexLock lock(mutex_);
  return failed_ranks_;
}

bool CommunicatorState::describe(uint32_t seq, CallDescriptor* out) const {
  out->comm = id_;
  return calls_.describe(seq, out);
}

}  // namespace sennit
