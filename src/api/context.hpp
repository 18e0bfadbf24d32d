// context.hpp: one rank's presence in a job: control plane, data engine, and what all ranks agreed
// on about the fabric. Shared by the first communicator and everything that was split off it;
// leaves the job with the last of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "control/control_plane.hpp"
#include "engine/engine.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/table.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit {

class Communicator;

inline constexpr uint32_t kWholeJob = 1;  // the number of the first communicator

class Context {
 public:
  // Collective over all ranks of the job.
  static Result<std::shared_ptr<Context>> start(BootstrapOptions bootstrap,
                                                const std::string& fabric_file,
                                                const std::string& algorithm);
  ~Context();

  int rank() const { return control_->rank(); }
  int size() const { return control_->size(); }
  Control& control() { return *control_; }
  Engine& engine() { return *engine_; }
  const Fabric& fabric() const { return fabric_; }
  const Placement& placement(int rank) const { return placements_[static_cast<size_t>(rank)]; }
  const PlanOptions& plan_options() const { return plan_options_; }
  int local_ranks() const { return local_ranks_; }
  const Tuning& tuning() const { return tuning_; }  // what all ranks know from the start
  // Whether what was measured may decide: nobody forced a plan or the order of sums.
  bool may_tune() const;
  bool tunes() const { return tune_ != "0" && may_tune(); }  // in the calls that come

  void add(Communicator* communicator);
  void remove(Communicator* communicator);
  // While one of these lives, this rank is about to make a communicator. Others may have made it
  // already: what they send on it is kept, and a failure that they tell of is remembered for it.
  class Making {
   public:
    explicit Making(Context& context);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Context& context_;
    const uint64_t number_;
  };
  // A communicator's number out of those that are this rank's to hand out; never the same twice. 0:
  // none left.
  uint32_t draw_communicator_number();

 private:
  Context() = default;
  Status connect(const std::string& fabric_file, const std::string& algorithm);
  Status agree_on_options(const std::string& algorithm);
  Status exchange_addresses();
  Status agree_on_fabric(const std::string& fabric_file);
  void measure_messages();                                  // rank 0's part of it
  Status agree_on_fabric(const Result<Fabric>& of_rank_0);  // tells all what rank 0 has
  static Status probe_fabric(const std::shared_ptr<Context>& context);
  void peers_failed(const std::vector<int>& failed, const Status& status);
  void link_failed(int a, int b, const Status& status);
  void communicator_failed(uint32_t comm, int member, const Status& status);
  void made(uint64_t making);
  Control::Callbacks control_callbacks();
  Engine::Callbacks engine_callbacks();
  CallDescriptor describe(const Execution& execution);

  std::unique_ptr<Control> control_;
  std::unique_ptr<Engine> engine_;
  Fabric fabric_;
  std::vector<Placement> placements_;
  std::vector<std::string> host_keys_;  // by rank; equal: probably the same host
  int local_ranks_ = 1;
  bool one_machine_ = false;  // all ranks run under one kernel
  PlanOptions plan_options_;
  size_t eager_bytes_ = 8192;
  std::string probe_;  // SENNIT_PROBE of rank 0
  std::string tune_;   // SENNIT_TUNE of rank 0
  Tuning tuning_;
  int64_t arrival_timeout_ms_ = 0;
  std::atomic<uint32_t> numbers_drawn_ = 0;
  std::mutex communicators_mutex_;
  std::map<uint32_t, Communicator*> communicators_;
  // Failures that matter to communicators to come as well: all the dead, broken links, and
  // communicators that failed on other ranks, with one of their members, while `last_making` was
  // the newest of makings_.
  std::vector<int> dead_;
  Status death_;
  struct BrokenLink {
    int a, b;
    Status status;
  };
  std::vector<BrokenLink> broken_links_;
  struct EarlyFailure {
    uint32_t comm;
    int member;
    Status status;
    uint64_t last_making;
  };
  std::vector<EarlyFailure> early_failures_;
  uint64_t next_making_ = 1;
  std::set<uint64_t> makings_ = {0};  // under way; 0: the first communicator's, from the start on
};

}  // namespace sennit
