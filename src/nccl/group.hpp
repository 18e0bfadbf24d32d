// group.hpp: calls that are made together: ncclGroupStart to ncclGroupEnd, and the batches that
// calls become on communicators that do not block.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// A call that is made within a group of sennit's.
struct BatchedCall {
  // The communicator and the stream, where it goes into one.
  std::shared_ptr<CommunicatorState> communicator;
  std::optional<cudaStream_t> stream;
  DeviceContext device;
  // Before all calls of the group: whether the memory has to be taken for the host's, since this
  // build has nothing for the device.
  std::function<bool()> is_for_host;
  // `instead`: the stream that it goes into, where it goes into one, in place of its own.
  std::function<sennit_status_t(bool for_host, std::optional<cudaStream_t> instead)> make;
};

// A communicator that is made within a group.
struct Creation {
  std::shared_ptr<CommunicatorState> parent;  // whose ranks make it; null: it begins a job
  std::function<Outcome()> make;
};

// The communicators that one call, or one group of calls, makes, and then the calls themselves.
struct CallBatch {
  // They are made side by side, since each waits for other ranks, which may be creations of the
  // same group; those of one parent one after the other, since their ranks tell them apart by their
  // order.
  std::vector<Creation> creations;
  std::vector<BatchedCall> calls;
  // Whom it is about. New ones count too.
  std::vector<std::shared_ptr<CommunicatorState>> communicators;
  // Those that are aborted first of all: what is under way on them would keep the batch waiting.
  std::vector<std::shared_ptr<CommunicatorState>> aborted;
  // Of those that were there before: whether their user waits until the batch is over. Only
  // batches that agree can be in one group.
  bool blocking = true;
  // It is run to its end all the same, and so is a group with it: a call in a stream that is
  // captured, or that only this thread reaches.
  bool now = false;
};

// Within an open group of this thread: the batch joins it, ncclSuccess; or fails it, where one of
// the two blocks and the other does not. Else runs it to its end, or where it does not block begins
// it and returns ncclInProgress.
Outcome submit(CallBatch batch);

// Whether this thread has a group open. Then a call that could be made at once has to be a batch.
bool in_group();

// Opens a group on this thread, or one within the group that is open. Each needs an end_group().
void start_group();
// Of the outermost group: what became of all that was collected; inner ones are ncclSuccess. Where
// it does not block and has a call on a communicator that was revoked, ncclRemoteError at once, and
// the others are made. On a thread without an open group: ncclInvalidUsage.
Outcome end_group();
// In place of end_group(): nothing is made, and the planner says what it would take; nothing where
// an inner group ends.
Outcome predict_group(std::optional<double>* microseconds);
// A call of the open group was off: the end of the group makes none of them and returns this.
void fail_group(const Outcome& outcome);
// The same for one that makes or ends a communicator. What its ranks were to do together is lost
// with it: all communicators of the group fail with this, and `of`, where there is one; so their
// other ranks do not wait for this one.
void break_group(const Outcome& outcome, const std::shared_ptr<CommunicatorState>& of);
// A call of the open group was for nothing, which is none of the others' business: the end makes
// them, and returns this where it has nothing worse to say.
void note_in_group(const Outcome& outcome);

}  // namespace sennit::nccl
