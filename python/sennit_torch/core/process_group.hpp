// process_group.hpp: torch.distributed's backend "sennit", on tensors in host memory and on CUDA
// devices.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/device.hpp"
#include "core/tensors.hpp"
#include "core/work.hpp"

namespace sennit_torch {

using MadeWork = c10::intrusive_ptr<c10d::Work>;

class ProcessGroupSennit : public c10d::Backend {
 public:
  // Collective over the group's ranks. The first group of a process, that of all its job's ranks,
  // is a job of sennit's, whose ranks meet through the store; later ones are made out of it by
  // their `members`, ranks of the first; that list is empty for the first. name: as PyTorch knows
  // the backend; group: as it knows the group. has_device: whether this process has a CUDA device;
  // where all of the job's have one, calls on tensors there are possible.
  ProcessGroupSennit(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                     Milliseconds timeout, std::string name, const std::string& group,
                     const std::vector<int>& members, bool has_device);
  // Without a communicator yet.
  ProcessGroupSennit(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                     Milliseconds timeout, std::string name);
  ~ProcessGroupSennit() override;

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override { timeout_ = timeout; }
  c10d::ErrorType getError() override;
  void enableCollectivesTiming() override {}  // every Work on host memory has its duration
  bool supportsSplitting() const override { return true; }
  // Called by the members alone: `ranks` of this group, in the new one's order.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }  // of collectives
  void abort() override;
  void shutdown() override;
  // Of calls on devices, which become one; others are made at once.
  bool supportsCoalescing() const override { return device_calls_.load() != nullptr; }
#ifdef SENNIT_TORCH_HAS_COMPLETION_HOOKS
  // Where no call is on a device: what is over there nobody sees on the host.
  bool supportsCompletionHooks() const override { return device_calls_.load() == nullptr; }
  void registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t hook_id) override;
#endif
  void startCoalescing() override;
  MadeWork endCoalescing() override;

  MadeWork broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  MadeWork allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  MadeWork allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override;
  MadeWork allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override;
  MadeWork reduce(Tensors&, const c10d::ReduceOptions&) override;
  MadeWork allgather(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override;
  MadeWork _allgather_base(Tensor&, Tensor&, const c10d::AllgatherOptions&) override;
  MadeWork allgather_coalesced(std::vector<Tensors>&, Tensors&,
                               const c10d::AllgatherOptions&) override;
  MadeWork allgather_into_tensor_coalesced(Tensors&, Tensors&,
                                           const c10d::AllgatherOptions&) override;
  MadeWork gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override;
  MadeWork scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override;
  MadeWork reduce_scatter(Tensors&, std::vector<Tensors>&,
                          const c10d::ReduceScatterOptions&) override;
  MadeWork _reduce_scatter_base(Tensor&, Tensor&, const c10d::ReduceScatterOptions&) override;
  MadeWork reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                           const c10d::ReduceScatterOptions&) override;
  MadeWork alltoall_base(Tensor&, Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                         const c10d::AllToAllOptions&) override;
  MadeWork alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  MadeWork send(Tensors&, int peer, int tag) override;
  MadeWork recv(Tensors&, int peer, int tag) override;
  MadeWork recvAnysource(Tensors&, int tag) override;
  MadeWork barrier(const c10d::BarrierOptions&) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_for_all) override;

 private:
  using Start = std::function<sennit_status_t(sennit_comm_t, sennit_work_t*)>;

  std::shared_ptr<HeldCommunicator> held(const std::string& call) const;
  std::shared_ptr<HeldCommunicator> start_job(int rank, int size, bool has_device);
  std::shared_ptr<TorchCall> started(TorchCall::Parts parts, const Start& start) const;
  MadeWork made(c10d::OpType type, TorchCall::Parts parts, const Start& start);
  MadeWork barrier_on(c10::Device device, const c10d::BarrierOptions& options);
  MadeWork receive(c10d::OpType type, const char* name, Tensors& tensors, int peer, int tag);
  std::string late_ranks(const std::string& prefix, Milliseconds timeout, bool wait_for_all) const;
  Milliseconds or_default(Milliseconds timeout) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::string job_;  // what the keys of this job in it begin with
  std::atomic<std::shared_ptr<HeldCommunicator>> comm_;  // null: shut down, also by another thread
  std::atomic<std::shared_ptr<DeviceCalls>> device_calls_;  // null: there are none
  std::atomic<bool> collectives_on_device_{false};  // all ranks have made some; sends do not count
  std::atomic<Milliseconds> timeout_;
  const std::string name_;
  std::atomic<uint64_t> sequence_{0};
  uint64_t monitored_ = 0;
  std::vector<MadeWork> coalesced_;  // calls on host memory in an open batch, of its thread alone
};

}  // namespace sennit_torch
