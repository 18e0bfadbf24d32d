// state.hpp: the state of one rank's control plane. Its functions are spread over files by duty:
//   control/control_plane.cpp             the public functions, which hand closures to the control thread
//   control/loop.cpp        the control thread: sockets, time
//   control/dispatch.cpp    which frame goes where
//   control/rendezvous.cpp  the start, as every rank sees it
//   control/roster.cpp      the start at rank 0: who has come, the table of addresses, who is missing
//   control/collectives.cpp all_gather and broadcast over the tree
//   control/tree.cpp        keeping the tree: heartbeats, lost neighbours, a new parent, leaving
//   control/failure.cpp     suspects, probes, decisions: the coordinator's part
//   control/calls.cpp       stalls, mismatches, aborts: comparing calls
//
// Everything below "control thread only" is touched by that thread alone (or before it starts). A
// rank's parent always has a lower rank, so whatever happens the tree has no cycle; the coordinator
// is the rank that knows all lower ones to be gone. Memory: O(ranks) for the table, nothing per
// pair.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "control/connection.hpp"
#include "control/control_plane.hpp"
#include "control/judge.hpp"

namespace sennit::control {

inline constexpr int kFanOut = 16;
inline int static_parent(int rank) { return rank == 0 ? -1 : (rank - 1) / kFanOut; }

inline constexpr int64_t kGatherReportsMs = 150;  // reports of one blow are decided together
inline constexpr int64_t kProbeMs = 1000;         // for an answer to a probe
inline constexpr int64_t kOrphanGraceMs = 30;  // for a dead rank's children to come by themselves
// leave() waits this long for those below to leave as well
inline constexpr int64_t kHandOverMs = 50;
inline constexpr int64_t kLingerMs = 1500;     // ... and so long for the others to know of it
inline constexpr int64_t kTellAgainMs = 5000;  // what the last parent was told less than this ago
inline constexpr int64_t kClosingMs = 300;     // for the last frames to be read
// rank 0 stays this long to tell those that still come
inline constexpr int64_t kStartFailedMs = 1000;
inline constexpr size_t kStrangers = 256;         // at once
inline constexpr int64_t kStrangerEvictMs = 250;  // when there are too many, older ones go
inline constexpr int64_t kSilentEvictMs = 20;     // those that have not even greeted
inline constexpr int64_t kConnectMs = 3000;       // per address and attempt, at the start

// Why a rank is suspected; bits.
enum Evidence : uint8_t {
  kClosed = 1,   // its tree connection ended without goodbye
  kRefused = 2,  // nobody listens where it should
  kSilent = 4,   // no heartbeat for the time-out
  kBroken = 8,   // a data connection to it broke
  kOrphan = 16,  // its parent is gone and it has not come to the coordinator
};

class ControlPlane final : public Control {
 public:
  ControlPlane(const BootstrapOptions& options, Callbacks callbacks);
  ~ControlPlane() override;
  Status open();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t job() const override { return job_; }
  const std::vector<std::byte>& secret() const override { return options_.secret; }
  bool sealed() const override { return options_.sealed; }
  std::string interface_address() const override { return own_address_; }
  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine) override;
  Result<std::vector<std::byte>> broadcast(std::span<const std::byte> from_rank0) override;
  void report_suspect(int peer, const std::string& what) override;
  void report_stall(const CallDescriptor& mine) override;
  void report_mismatch(const CallDescriptor& mine, int peer) override;
  void abort(uint32_t comm, const std::string& why) override;
  void fail(uint32_t comm, const Status& status) override;
  void leave() override;
  std::string statistics() const override;

 private:
  enum class Phase : uint8_t {
    enlisting,  // asks rank 0 for its parent (rank 0: collects everybody)
    joining,    // connects to its parent, waits for its children
    waiting,    // joined; waits for the table
    running,
    leaving,  // said goodbye, serves those below until they are gone
    closing,  // writes what is left and ends
  };
  struct Member {
    Address address;
    int pid = 0;
    std::string host;
  };
  struct Collective {                             // by number; all_gather only
    std::map<int, std::vector<std::byte>> fresh;  // not yet sent up; at rank 0: all
    std::set<int> have;
    int64_t first_ms = 0, flushed_ms = 0;
  };
  struct Suspect {
    uint8_t evidence = 0;  // bits of Evidence
    int reporter = -1;     // of a broken data connection
    std::string what;      // that it saw
    int64_t since_ms = 0;
    // The coordinator's inquiry.
    uint64_t probe = 0;  // connection; 0: none
    int64_t next_probe_ms = 0;
    bool dead = false;
    std::string cause;
  };

  // ---- any thread ----
  void post(std::function<void()> command);
  void wake();

  const BootstrapOptions options_;
  const Callbacks callbacks_;
  const int rank_, size_;
  const int64_t heartbeat_ms_;
  const int pid_;  // of the process that has the thread: a forked child has not
  uint64_t job_ = 0;
  std::string own_address_;
  std::thread thread_;
  int wake_fd_ = -1, epoll_fd_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> commands_;  // under mutex_
  std::optional<Status> started_;                // under mutex_
  bool ended_ = false;  // under mutex_: the loop is over, commands are dropped
  std::map<uint32_t, Result<Buffer>> results_;  // under mutex_: finished collectives by number
  Status failure_;  // under mutex_: the last decision, for blocked callers
  struct Counters {
    uint64_t frames_out = 0, frames_in = 0, start_frames = 0, connections = 0, refused = 0,
             decisions = 0;
  } counters_;  // under mutex_
  std::mutex collective_mutex_;
  uint32_t next_collective_ = 0;  // under collective_mutex_
  Result<Buffer> wait_collective(uint32_t seq, const std::string& what);

  // ---- control thread only ----
  // ---- control/loop.cpp ----
  void run();
  void tick(int64_t now);
  void excuse(int64_t gap);
  void due(int64_t when) { next_due_ms_ = std::min(next_due_ms_, when); }
  Connection* add(int fd, Handshake handshake, Role role, int peer, bool connecting);
  Connection* connect(const Address& address, Role role, int peer, int* error);
  void hold_spare();
  bool give_spare();
  Connection* find(uint64_t id);
  void watch(uint64_t id, Connection& connection);
  void serve(uint64_t id);
  void drop(uint64_t id);  // closes without further ado
  void lost(uint64_t id, End end, const std::string& reason);
  uint64_t stranger_to_evict();
  void accept_all();
  bool listen(const Address& address, Status* error);
  void use_listener(int fd);
  void pause_listener(bool paused);
  void opened(uint64_t id, Connection& connection);
  void tick_strangers(int64_t now);
  void log_stranger(const Connection& connection, const std::string& reason);
  void dispatch(uint64_t id, Connection& connection, const Message& message);
  void settle(Connection& connection, Role role, int peer);  // a stranger no more
  void refuse(Connection& connection, ErrorKind kind, const std::string& text);
  void first_frame(uint64_t id, Connection& connection, const Message& message);
  bool tree_frame(uint64_t id, Connection& connection, Frame frame, Reader& in,
                  const Message& message);
  void send(Connection& connection, const Buffer& buffer);
  bool send_up(const Buffer& buffer);
  void flood_down(const Buffer& buffer, uint64_t except = 0);
  HandshakeConfig handshake_config() const;
  std::string describe_rank(int rank) const;
  Buffer heartbeat_;

  // control/rendezvous.cpp
  Status prepare_root();  // on the caller's thread
  void begin_start();
  void tick_start(int64_t now);
  void enlist_with_root(int64_t now);
  bool try_addresses_again(uint64_t id, Connection& connection);
  void send_enlist(Connection& connection);
  void on_enlist(uint64_t id, Connection& connection, Reader& in);
  void tell_parent(int child, Connection& connection);
  void on_parent(uint64_t id, Connection& connection, Reader& in);
  void join_parent();
  void check_joined();
  void make_table();
  bool free_start_port();
  Address local_address_of_root() const;
  void on_table(Reader& in, const Message& message);
  void start_done();
  void complain(const Status& what);
  void cannot_take_part(const Status& why);
  void complain_of_parent(const std::string& text);
  void fail_start(const Status& status);
  void lost_in_start(Role role, int peer, End end, const std::string& reason);
  Status missing_status() const;
  std::set<int> static_children() const;

  // control/collectives.cpp
  void contribute(uint32_t seq, std::vector<std::byte> mine);
  void on_gather(Reader& in);
  void on_collective(Frame frame, Reader& in, const Message& message);
  void advance_gather(uint32_t seq, bool flush);
  void tick_collectives(int64_t now);
  void finish_collective(uint32_t seq, Result<Buffer> result);
  void fail_collective(uint32_t seq, const Status& status);
  bool subtree_complete(const Collective& collective) const;
  std::map<uint32_t, Collective> collectives_;
  std::set<uint32_t> failed_collectives_;  // rank 0

  // control/tree.cpp
  bool gone(int rank) const {
    return dead_.count(rank) || left_.count(rank) || unreachable_.count(rank);
  }
  int lowest_alive() const;
  bool coordinator() const {
    return phase_ >= Phase::running && !excluded_ && lowest_alive() == rank_;
  }
  void seek();
  void send_attach(Connection& connection);
  void on_attach(uint64_t id, Connection& connection, Reader& in);
  void refused_by_parent(int peer, const std::string& text);
  void on_welcome(Connection& connection, Reader& in);
  void parent_lost(int peer, bool attached, End end, const std::string& reason);
  void give_up_candidate(int peer, uint8_t evidence, const std::string& reason);
  void tick_tree(int64_t now);
  void become_coordinator();
  void begin_leave();
  void on_goodbye(uint64_t id, Connection& connection, Reader& in, const Message& message);
  void on_goodbye_ack(Reader& in, const Message& message);
  void on_leaving(uint64_t id, Connection& connection, Reader& in);
  void note_left(const std::set<int>& left);
  void tick_leave(int64_t now);
  void close_all(int64_t now);

  // control/failure.cpp
  void suspect(int rank, uint8_t evidence, int reporter, const std::string& what);
  Buffer suspect_frame(int rank, const Suspect& suspect) const;
  void on_suspect(Reader& in);
  void probe(int rank, Suspect& suspect, int64_t now);
  void probe_ended(int rank, End end, const std::string& reason);
  void probe_answered(int rank);
  void judge_dead(int rank, Suspect& suspect, const std::string& cause);
  void expect_orphans(int of, int64_t when);
  void tick_failure(int64_t now);
  void decide(int64_t now);
  void adopt_decision(const std::set<int>& dead, const Status& status, uint64_t from);
  void on_decision(uint64_t id, Reader& in);
  void announce_link_down(int a, int b, const std::string& what);
  void deliver_link_down(int a, int b, const Status& status);
  uint64_t new_event() { return (static_cast<uint64_t>(rank_) << 32) | ++next_event_; }
  void on_link_down(Reader& in, const Message& message);
  Buffer decision_frame() const;
  // coordinator: under inquiry; others: reported, not yet decided
  std::map<int, Suspect> suspects_;
  int64_t next_orphan_ms_ = 0;      // the earliest of them
  std::map<int, int64_t> orphans_;  // coordinator: expected to attach by then
  std::set<std::pair<int, int>> links_down_;
  int64_t batch_since_ms_ = 0;  // first report of the decision under way; 0: none

  // control/calls.cpp
  void stalled(CallDescriptor mine, int mismatching_peer);
  void on_stall(Reader& in, const Message& message);
  void on_inquire(Reader& in, const Message& message);
  void on_answer(Reader& in, const Message& message);
  void answer_inquiry(const Inquiry& inquiry);
  void tick_calls(int64_t now);
  void fail_communicator(uint32_t comm, int anchor, const Status& status);
  void on_comm_failed(Reader& in, const Message& message);
  void request_failure(uint32_t comm, const Status& status);
  void on_abort_request(Reader& in, const Message& message);
  void send_up_surely(const Buffer& frame);
  void take_own(const Buffer& frame);
  void judge_report(const Report& report);
  void deliver_comm_failed(uint32_t comm, int anchor, const Status& status);
  bool remember(uint64_t event, const Buffer& frame);  // false: seen before
  std::set<int> members_of(uint32_t comm) const;
  CallJudge calls_;  // coordinator
  // by communicator: how long this rank has been waiting
  std::map<uint32_t, StallClock> stall_clocks_;
  std::map<std::tuple<uint32_t, int, uint32_t>, int64_t> stalls_forwarded_;
  // Events flooded down have numbers; the last ones are told again to ranks that attach.
  std::deque<std::pair<uint64_t, Buffer>> events_;
  std::set<uint64_t> seen_events_;
  uint32_t next_event_ = 0;
  struct ToldUp {
    Buffer frame;
    int64_t sent_ms;  // 0: there was no parent
  };
  std::deque<ToldUp> told_up_;  // for the next parent
  bool may_be_lost(const ToldUp& told) const {
    return told.sent_ms == 0 || now_ms_ - told.sent_ms <= kTellAgainMs;
  }

  Phase phase_ = Phase::enlisting;
  int64_t now_ms_ = 0, next_due_ms_ = 0;
  uint64_t next_id_ = 16;  // smaller ones: the wake-up and the listener
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> strangers_;      // and visitors
  uint64_t parent_ = 0;               // connection; 0: none
  std::map<int, uint64_t> children_;  // rank -> connection
  int listener_ = -1;
  int start_port_fd_ = -1;  // rank 0: bound to the launcher's port, but does not listen any more
  bool listener_paused_ = false;
  uint16_t listener_port_ = 0;
  int64_t stranger_log_ms_ = 0, descriptor_log_ms_ = -1'000'000;
  uint64_t strangers_unlogged_ = 0;

  // by rank; complete from phase running on, at rank 0 filled as they come
  std::vector<Member> members_;
  std::vector<Address> root_addresses_;
  size_t root_attempt_ = 0;
  size_t root_at() const { return root_attempt_ % root_addresses_.size(); }
  bool root_found_ = false;       // at one of its addresses
  std::set<size_t> root_silent_;  // those at which nobody answered before
  int64_t root_tried_ms_ = 0;
  int64_t start_deadline_ms_ = 0, retry_ms_ = 0, refused_since_ms_ = 0;
  std::string last_trouble_;
  bool root_seen_ = false;    // rank 0 has answered once
  bool complaining_ = false;  // asks rank 0 again, because the parent cannot be reached
  Status complaint_;
  int64_t complaining_since_ms_ = 0;  // of this rank itself, without an answer yet
  int spare_fd_ = -1;  // given up for one last connection when there are no descriptors left
  Address parent_address_;
  int64_t joining_since_ms_ = 0;
  std::set<int> arrived_;               // rank 0
  std::map<int, uint64_t> enlisted_;    // rank 0: rank -> connection, those without a parent yet
  std::optional<Address> root_public_;  // rank 0: as others reach it

  std::set<int> dead_, left_;
  std::set<int> unreachable_;  // this rank found nobody there; not decided
  Status decision_;
  bool excluded_ = false;  // the others took this rank for dead
  int64_t seek_since_ms_ = 0, seek_retry_ms_ = 0;
  int seek_candidate_ = -1, seek_silent_ = 0;

  int64_t leave_since_ms_ = 0, closing_since_ms_ = 0, left_changed_ms_ = 0;
  int64_t closing_ms_ = kClosingMs;
  bool start_failed_ = false;
  bool leave_acked_ = false;
  std::map<int, uint64_t> goodbye_via_;  // rank -> child connection that its goodbye came by
  std::set<int> goodbyes_pending_;       // not acknowledged yet
};

}  // namespace sennit::control
