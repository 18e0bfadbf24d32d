// communicator.hpp: a set of ranks that call collectives together: validation, plan and program
// caches, and works.
//
// One thread at a time, except fail(), peers_failed(), describe(), abort() and status(), which any
// thread may call. A call becomes a Request in fabric order; its plan and program are made once and
// cached with idle Executions, so a repeated call allocates nothing. Memory: O(ranks) for the tree,
// plus the cached programs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "control/control_plane.hpp"
#include "engine/execution.hpp"
#include "plan/asked_for.hpp"
#include "plan/tuning/table.hpp"
#include "plan/tuning/trials.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// A call as the user made it; ranks are the communicator's.
struct Call {
  Collective collective = Collective::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  DataType type = DataType::uint8;
  int op = SENNIT_SUM;  // sennit_op_t, or a custom op
  int root = 0;         // also the peer of send and recv
  bool vector_variant = false;
  const size_t* counts = nullptr;  // v-variants
  const size_t* displacements = nullptr;
  const size_t* recv_counts = nullptr;  // all_to_all_v: `counts` are the send side's
  const size_t* recv_displacements = nullptr;
  bool receiving = false;   // send_recv: which of the two
  bool as_planned = false;  // no part in tuning: of a group, or the library's own
};

class Communicator;

// A running call. Created by Communicator::prepare, started by start(); keeps its communicator
// alive.
class Work {
 public:
  ~Work();
  void start(bool nonblocking);
  bool done() const;
  // Drives the engine; false when the time is over (negative: no limit).
  bool wait(int64_t timeout_ns);
  bool test();
  Status finish();                           // after done(): the result; gives the execution back
  bool started() const { return started_; }  // not yet: its group is still open

 private:
  friend class Communicator;
  void end();
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Execution> execution_;  // none: a send to oneself
  Call call_;
  std::shared_ptr<bool> self_matched_;
  std::vector<std::byte> scaled_;  // premul-sum: the scaled input
  bool started_ = false, finished_ = false;
  size_t place_ = 0;          // among the communicator's outstanding works
  Trials* trials_ = nullptr;  // where its time goes
  int sample_ = -1;
  uint64_t started_ns_ = 0;
  Status result_;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // `members`: world ranks, by rank in this communicator.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      std::vector<int> members, uint32_t id);
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  uint32_t id() const { return id_; }
  const std::vector<int>& members() const { return members_; }
  bool has(int world_rank) const;
  const TierTree& tree() const { return tree_; }
  Context& context() { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }
  int position() const { return tree_.position_of_rank[static_cast<size_t>(rank_)]; }
  Request to_request(const Call& call) const;
  Result<Plan> plan(const Request& request) const;
  Result<Plan> plan_by_model(const Request& request) const;  // without what the tuning table says
  // How the tuning of the like of this call stands; null where it is not tuned.
  const Trials* trials(const Call& call) const;
  // Of the call that ended last: its time until all ranks had ended it, which only the caller can
  // know.
  void retime(const Call& call, uint64_t ns);
  // For trials that begin from now on.
  void set_effort(Trials::Effort effort) { effort_ = effort; }
  // Plans with these constants from now on, and tries anew. Collective; no call may be under way.
  void calibrate(const CostModel& cost);

  Result<std::unique_ptr<Work>> prepare(const Call& call);
  Status run(const Call& call);  // prepare, start, wait, finish
  // Collective. `result` stays null for SENNIT_NO_COLOR.
  Status split(int color, int key, std::shared_ptr<Communicator>* result);
  Status finalize();
  void abort();

  Status status() const;  // ok, or what the communicator failed with
  void fail(const Status& status);
  // decided here: the other ranks must not wait for this one
  void fail_and_tell(const Status& status);
  void peers_failed(const std::vector<int>& world_ranks, const Status& status);
  std::vector<int> failed_ranks() const;
  bool describe(uint32_t seq, CallDescriptor* out) const;

  Result<int> create_premul_sum(const void* scalar, DataType type);
  Status destroy_op(int op);

 private:
  friend class Work;
  struct CacheKey {
    Request request;
    int direction = 0;   // send_recv: 1 send, 2 receive
    size_t variant = 0;  // 0: the plan; else trial plan number variant - 1
    bool operator==(const CacheKey&) const = default;
  };
  struct CacheEntry {
    CacheKey key;
    std::shared_ptr<const Prepared> prepared;
    std::vector<std::unique_ptr<Execution>> idle;
  };
  struct CustomOp {
    DataType type;
    std::array<std::byte, 8> scalar;
  };
  struct SelfMessage {
    Call call;
    std::shared_ptr<bool> matched;
  };
  struct LoggedCall {
    uint32_t seq = 0;
    std::shared_ptr<const Prepared> prepared;
    std::atomic<bool> finished = false;
  };
  // A blocking call that was made before and is small: its execution is kept ready, compiled for
  // the short way.
  struct SmallCall {
    Call call;  // without the buffers
    bool in_place = false;
    std::unique_ptr<Execution> execution;  // none: the short way is not for this call
  };

  Communicator(std::shared_ptr<Context> context, std::vector<int> members, uint32_t id)
      : context_(std::move(context)), members_(std::move(members)), id_(id) {}
  Status check(const Call& call) const;
  Status check_counts(const Call& call) const;
  std::string describe_request(const Request& request) const;
  Result<CacheEntry*> find_or_prepare(const CacheKey& key, const Plan* given);
  Result<Trials*> trials_of(const Call& call, const Request& request);
  Status decide(Trials& trials, const Request& request);
  void forget_plans(Collective collective);
  Program point_to_point_program(const CacheKey& key) const;
  void fill_buffers(const Call& call, const Request& request, Work& work, Buffers* buffers) const;
  void start(Work& work, bool nonblocking);
  void start_self_message(Work& work);
  void match_self_message(Work& work, const SelfMessage& other);
  Status withdraw_self_message(const Work& work);
  void give_back(std::unique_ptr<Execution> execution);
  void log_call(uint32_t seq, const std::shared_ptr<const Prepared>& prepared);
  bool is_in_place(const Call& call) const;
  SmallCall* small_call(const Call& call);
  void remember_small(const Call& call, SmallCall& small);
  Status run_small(const Call& call, SmallCall& small);
  Status finish_call(const Execution& execution);
  void mark_finished(uint32_t seq);

  const std::shared_ptr<Context> context_;
  const std::vector<int> members_;
  const uint32_t id_;
  int rank_ = 0;
  TierTree tree_;
  std::vector<int> world_of_position_;
  AskedFor asked_for_;
  std::list<CacheEntry> cache_;  // most recently used first
  uint64_t tree_fingerprint_ = 0;
  Tuning tuning_;  // the same on all ranks
  std::list<std::pair<Request, Trials>> trials_;
  Trials::Effort effort_;
  bool try_known_ = false;  // also what the tuning table has an answer to
  std::map<int, CustomOp> custom_ops_;
  int next_custom_op_ = SENNIT_OP_CUSTOM_BASE;
  uint32_t next_seq_ = 1;
  uint32_t splits_ = 0;
  std::map<int, uint32_t> next_send_seq_, next_recv_seq_;  // by peer
  std::deque<SelfMessage> self_sends_, self_receives_;
  std::vector<Work*> outstanding_;         // started and not finished
  std::array<SmallCall, 16> small_calls_;  // by a hash of the call
  std::atomic<bool> failed_{false};        // status_ is not ok

  mutable std::mutex state_mutex_;  // guards what follows
  Status status_;
  std::vector<int> failed_ranks_;
  std::array<LoggedCall, 64> calls_;  // ring by seq
};

}  // namespace sennit
