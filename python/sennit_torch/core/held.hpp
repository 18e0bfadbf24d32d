// held.hpp: communicators of sennit's that process groups and works hold together.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/completions.hpp"
#include "sennit/sennit.h"

namespace sennit_torch {

// A communicator, destroyed when no process group and no work needs it any more.
struct HeldCommunicator {
  HeldCommunicator(sennit_comm_t made, bool with_devices) : comm(made), has_devices(with_devices) {}
  HeldCommunicator(const HeldCommunicator&) = delete;
  HeldCommunicator& operator=(const HeldCommunicator&) = delete;
  ~HeldCommunicator();

  const sennit_comm_t comm;
  const bool has_devices;  // all ranks of the job have a CUDA device
  std::mutex calls;        // several threads may use one process group: their calls have an order
  Completions completions;
};

// The group of all the job's ranks, which this process's other groups are made out of, as long as
// somebody holds it.
class WholeJob {
 public:
  static WholeJob& instance();
  // `name`: what the job's keys in a store begin with.
  void hold(const std::shared_ptr<HeldCommunicator>& comm, const std::string& name);
  std::shared_ptr<HeldCommunicator> held();  // null: nobody holds it any more
  std::string name();

 private:
  std::mutex mutex_;
  std::weak_ptr<HeldCommunicator> comm_;
  std::string name_;
};

}  // namespace sennit_torch
