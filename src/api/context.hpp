// context.hpp: one rank's presence in a job: control plane, data engine, and what all ranks agreed
// on. Shared by the first communicator and everything that was split off it; leaves the job with
// the last of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/start/agreement.hpp"
#include "api/state/registry.hpp"
#include "api/state/replanner.hpp"
#include "api/state/replanning.hpp"
#include "control/control_plane.hpp"
#include "engine/engine.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/table.hpp"
#include "topology/fabric/fabric.hpp"
#include "watch/watch.hpp"

namespace sennit {

struct AgreedFabric;

// What start() has agreed on does not change; accessors may be called by any thread.
class Context {
 public:
  // Collective over all ranks of the job. `fabric_file` and `algorithm` may be empty: then
  // SENNIT_FABRIC and SENNIT_ALGORITHM count. Null, and `shared` filled, where all ranks found
  // another job to carry the communicator; without memberships in `bootstrap` there is none.
  static Result<std::shared_ptr<Context>> start(const BootstrapOptions& bootstrap,
                                                const JobSettings& settings,
                                                SharedJob* shared = nullptr);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return control_->rank(); }
  int size() const { return control_->size(); }
  Control& control() { return *control_; }
  Engine& engine() { return *engine_; }
  Registry& registry() { return registry_; }
  Replanning& replanning() { return replanning_; }
  watch::Watch& watch() { return watch_; }
  const Fabric& fabric() const { return fabric_; }
  const Placement& placement(int rank) const { return placements_[static_cast<size_t>(rank)]; }
  const PlanOptions& plan_options() const { return plan_options_; }
  Concurrency concurrency() const { return options_.concurrency; }
  int local_ranks() const { return hosts_.here.ranks; }
  const Tuning& tuning() const { return tuning_; }  // what all ranks know from the start
  bool may_tune() const { return options_.may_tune(); }
  bool tunes() const { return options_.tune != "0" && may_tune(); }  // in the calls that come
  // Whether another job of the same ranks would come to the same: nothing has failed here, and
  // nothing is measured at every start.
  bool may_be_shared() const {
    return size() > 1 && !control_->secret().empty() && options_.tune == "0" &&
           options_.probe == "0" && registry_.well();
  }

  // This rank's time for the execution is over, after waited_ms: unless it is done, its
  // communicator fails on all ranks.
  void expire(const Execution& execution, int64_t waited_ms);

  // A communicator's number out of those that are this rank's to hand out; never the same twice. 0:
  // none left.
  uint32_t draw_communicator_number();

 private:
  explicit Context(const BootstrapOptions& bootstrap);
  Status connect(const JobSettings& settings);
  void make_engine();
  void use(AgreedFabric agreed);
  std::vector<ConnectionStatistics> connections() const;
  void begin_watching(std::chrono::nanoseconds period);
  static Status probe_fabric(const std::shared_ptr<Context>& context);
  Control::Callbacks control_callbacks();
  Engine::Callbacks engine_callbacks();
  void stalled(Execution& execution);
  // "recv count 1 int32 from rank 0, tag 0, on communicator 1"
  static std::string text_of_message(const Execution& execution);
  // Of a message, whose time is over.
  Status unanswered(const Execution& execution, int64_t waited_ms) const;

  const int64_t arrival_timeout_ms_;
  Registry registry_;
  Replanning replanning_{registry_};
  std::unique_ptr<Replanner> replanner_;  // the watch calls it
  watch::Watch watch_;                    // outlives the control thread, which calls it
  std::unique_ptr<Control> control_;
  std::unique_ptr<Engine> engine_;
  std::vector<const Transport*> transports_;  // the engine's
  JobOptions options_;
  HostSharing hosts_;
  PlanOptions plan_options_;
  Fabric fabric_;
  std::vector<Placement> placements_;  // by rank
  Tuning tuning_;
  std::atomic<uint32_t> numbers_drawn_ = 0;
};

}  // namespace sennit
