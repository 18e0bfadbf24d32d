// communication.hpp: what the trainer asks of a communication library, and what its time is counted
// as.
//
// All groups of a rank share one Traffic: it keeps the first error, after which every call does
// nothing, so that a step need only look once, before it changes weights. A rank that has an error
// aborts all of its groups, for it takes no more part in them: so it goes on from group to group
// until all ranks know, also those that share no group with a rank that died. And Traffic keeps the
// two times that a step line shows:
//   comm     with at least one transfer under way, from its start until it was seen to be complete
//   exposed  that the rank spent in wait(), where nothing was computed
// poll() looks which transfers are complete, and whether the job has failed; the model calls it
// between operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {

// The elements that are sent, and how many bytes one takes.
enum class Element : uint8_t { f32, bf16, f64, byte };
constexpr Element element_of(Type type) { return type == Type::f32 ? Element::f32 : Element::bf16; }
constexpr size_t bytes_of(Element element) {
  return element == Element::f64    ? 8
         : element == Element::f32  ? 4
         : element == Element::bf16 ? 2
                                    : 1;
}
enum class Reduction : uint8_t { sum, max };

// One call of the library under way.
class Work {
 public:
  virtual ~Work() = default;
  virtual Result<bool> test() = 0;  // whether it is complete
  virtual Status wait() = 0;        // until it is, or has failed
};

class Communicator;

// What is under way in all groups of a rank, the first error, and the two times. It lives longer
// than its groups.
class Traffic {
 public:
  Traffic() = default;
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  // For Communicator and Transfer: a transfer began; it is waited for, unless it is over.
  void started(const std::shared_ptr<Work>& work, uint64_t bytes);
  void wait(const std::shared_ptr<Work>& work);
  void poll();  // never blocks
  bool under_way(const std::shared_ptr<Work>& work) const;
  void finish();  // waits for all: before memory of theirs goes
  // Keeps the first error and aborts all groups; ok and later ones change nothing.
  void fail(const Status& status);
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }
  // Without overlap what all ranks of a group call is waited for at once.
  void set_overlap(bool overlap) { overlap_ = overlap; }
  bool overlap() const { return overlap_; }
  // Muted: what is started is not sent and counts as complete, so that computing alone can be
  // timed.
  void set_muted(bool muted) { muted_ = muted; }
  bool silent() const { return muted_ || failed(); }
  // Whose memory is sent and received, until it is set to null.
  void set_device(Device* device) { device_ = device; }
  Device* device() const { return device_; }

  struct Times {
    double comm_s = 0, exposed_s = 0;
    uint64_t bytes = 0;  // handed to the library by this rank
  };
  Times take();  // since the last take()

 private:
  friend class Communicator;
  using Clock = std::chrono::steady_clock;
  void forget(size_t i);

  std::vector<Communicator*> groups_;
  std::vector<std::shared_ptr<Work>> under_way_;
  Clock::time_point since_;  // when under_way_ was last empty
  Times times_;
  Status status_;
  Device* device_ = nullptr;
  bool overlap_ = true, muted_ = false;
};

// A transfer under way, or none. Its destructor does not wait; the buffers must outlive it.
class Transfer {
 public:
  Transfer() = default;
  Transfer(std::shared_ptr<Work> work, Traffic* traffic)
      : work_(std::move(work)), traffic_(traffic) {}
  // as poll() has last seen it
  bool under_way() const { return work_ && traffic_->under_way(work_); }
  void wait() {
    if (work_) traffic_->wait(work_);
    work_.reset();
  }

 private:
  std::shared_ptr<Work> work_;
  Traffic* traffic_ = nullptr;
};

// Connects the ranks of one group. Every call starts a transfer; until wait() has returned, nobody
// else writes what is sent, nor reads or writes what is received. One thread makes all calls of one
// rank, but for those that say otherwise. Ranks of a group make the same calls in the same order;
// sends and receives between two ranks pair up in order.
//
// With the device in order (trainer/device/device.hpp): a transfer, of whatever buffers, starts
// after all that the device was asked before it; what the device is asked after wait() comes after
// the transfer. Callers need do nothing.
class Communicator {
 public:
  virtual ~Communicator() { std::erase(traffic_->groups_, this); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  Traffic& traffic() const { return *traffic_; }
  // Position of this rank in an order in which neighbours are near in the network.
  virtual Result<int> fabric_position() = 0;
  // Collective: ranks of the same color, ordered by key.
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key) = 0;
  // Any thread: ends what is under way on all ranks with an error.
  virtual void abort() = 0;
  // Any thread: ok, or what the job failed with, also where this group has none of the ranks that
  // died. Ok where a library cannot say it.
  virtual Status job_status() const { return {}; }

  // Counts are in elements. In place: the same pointers, as in NCCL.
  Transfer all_reduce(void* data, size_t count, Element element,
                      Reduction reduction = Reduction::sum);
  // count: received
  Transfer reduce_scatter(const void* send, void* receive, size_t count, Element element);
  // count: sent
  Transfer all_gather(const void* send, void* receive, size_t count, Element element);
  Transfer broadcast(void* data, size_t bytes, int root);
  Transfer send(const void* data, size_t count, Element element, int peer);
  Transfer receive(void* data, size_t count, Element element, int peer);

 protected:
  Communicator(int rank, int size, Traffic* traffic) : rank_(rank), size_(size), traffic_(traffic) {
    traffic_->groups_.push_back(this);
  }
  using Started = Result<std::shared_ptr<Work>>;
  virtual Started start_all_reduce(void* data, size_t count, Element element,
                                   Reduction reduction) = 0;
  virtual Started start_reduce_scatter(const void* send, void* receive, size_t count,
                                       Element element) = 0;
  virtual Started start_all_gather(const void* send, void* receive, size_t count,
                                   Element element) = 0;
  virtual Started start_broadcast(void* data, size_t bytes, int root) = 0;
  virtual Started start_send(const void* data, size_t count, Element element, int peer) = 0;
  virtual Started start_receive(void* data, size_t count, Element element, int peer) = 0;

 private:
  template <typename Start>
  Transfer begin(uint64_t bytes, Start start);
  Transfer wait_unless_overlap(Transfer transfer) const;

  int rank_, size_;
  Traffic* traffic_;
};

// sennit: as the launcher's environment says, alone where there is none.
Result<std::unique_ptr<Communicator>> open_sennit(Traffic* traffic);
// Takes the handle over: of sennit_comm_init_local, for ranks that are threads of one process.
Result<std::unique_ptr<Communicator>> adopt_sennit(sennit_comm_t handle, Traffic* traffic);
// Open MPI's collectives, from libsennit_trainer_mpi.so beside the executable or in its ../lib.
Result<std::unique_ptr<Communicator>> open_mpi(Traffic* traffic);

}  // namespace sennit::trainer
