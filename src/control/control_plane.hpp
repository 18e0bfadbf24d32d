// control_plane.hpp: the control plane of one rank: bootstrap, small collectives at start,
// heartbeats, failure flooding, comparing calls when something stalls. Never carries data.
//
// Shape: every rank makes one short connection to rank 0's listening address to learn where its
// parent is; then a tree of fan-out 16 stays open (parent of r: (r-1)/16). A port that a launcher
// gave is listened on during the start only; the next job of the same processes starts there as
// well. Every connection, in both directions, proves that it holds the job's secret (keyed BLAKE2b
// over both sides' nonces) before anything it says is parsed; with SENNIT_WIRE=sealed every frame
// is encrypted and authenticated. One thread per process (the control thread) owns all sockets
// here. Public functions may be called from any thread.
//
// Failure: a peer is dead on EOF without goodbye, or on missed heartbeats. Whoever notices tells
// the coordinator, rank 0 or its lowest surviving successor, who gathers reports for a short
// moment, decides the failed set and floods it, so that all survivors name the same ranks. A rank
// that is merely late is not dead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process/interruption.hpp"
#include "base/status.hpp"
#include "record/measured_clock.hpp"

namespace sennit {

// A job that a rank is in already. One that all ranks of a new job are in can carry the new job's
// communicator, so that nothing has to be connected for it.
struct Membership {
  uint64_t job = 0;
  int rank = 0, size = 1;         // in that job
  std::vector<std::byte> secret;  // of that job; 32 bytes
  uint32_t number = 0;  // for the new communicator there, should this rank be rank 0 of it
};

// The job that was found to carry a new one's communicator.
struct SharedJob {
  uint64_t job = 0;
  uint32_t number = 0;       // the communicator's
  std::vector<int> members;  // by rank in the new job: the rank in that one
};

// What a rank must know to take part in a job. Rank 0's address, the size and the secret must be
// the same on all ranks. Times are in milliseconds.
struct BootstrapOptions {
  int rank = 0;
  int size = 1;
  // rank 0's address, numeric or a name; several, separated by commas, are tried
  std::string root_host;
  uint16_t root_port = 0;  // rank 0 listens here
  // rank 0, unique id: the socket that get_unique_id opened; the start closes it, whatever comes of
  // that; else -1
  int root_listener_fd = -1;
  std::vector<std::byte> secret;  // 32 bytes; empty only with `insecure`
  bool insecure = false;          // SENNIT_INSECURE=1
  bool sealed = false;            // SENNIT_WIRE=sealed: needs a secret
  uint64_t job = 0;               // 0: rank 0 draws one and hands it out
  int64_t arrival_timeout_ms = 120'000;
  int64_t heartbeat_timeout_ms = 30'000;
  int64_t stall_ms = 500;
  std::string interface;  // SENNIT_INTERFACE: listen on this interface or address only
  // Jobs that may carry this one's communicator, for a job whose number all ranks know.
  std::vector<Membership> memberships;
  // Where it is wanted, what waits in the start ends, and so does the start on all ranks that this
  // one has reached.
  Interruption interruption;
};

// The signature of a call that waits to be told by which plan it runs, and matches any.
inline constexpr uint64_t kNotKnownYet = 0;

// A refused call is told to others once they have waited so long, and the rank that was refused it
// has made nothing in its place for as long.
inline constexpr int64_t kRefusalStandsMs = 5'000;

// What a rank is doing on a communicator, for comparing calls.
struct CallDescriptor {
  uint32_t comm = 0;
  uint32_t seq = 0;
  uint64_t signature = 0;
  std::string text;  // "all_reduce count 1024 float32 sum, in call 17 of communicator 1"
  // For report_stall: how long this rank has seen no progress in it. 0: unknown, counted from its
  // reports.
  int64_t stalled_ms = 0;
  // It is in a stream that has not come to it: the rank has made the call, and is not late.
  bool in_stream = false;
  // Of a message: the world rank at its other end, and `text` is all of it. Nobody else need be in
  // it, so the only thing to know is whether that rank has left.
  int peer = -1;
  // Who makes a group, as world ranks. It has no number, and `text` is all of it, so whoever does
  // not come is only to blame where its own making was refused. Empty: a call.
  std::vector<int> makers{};
  // This rank was refused a call in this one's place before, and other ranks may have been as well.
  bool refused_before = false;
  // Of Callbacks::describe: this rank was refused a call after the one that is described, has made
  // nothing in its place for kRefusalStandsMs, and this is why. Empty: it was not.
  std::string refusal{};
};

// One rank's part in the control plane. It owns a thread and its sockets; destroying it says
// goodbye first. The public functions may be called from any thread.
class Control {
 public:
  // Called on the control thread; must not block, must not call back into Control except report_*,
  // tell and announce.
  struct Callbacks {
    // The failed set was decided: all ranks dead so far (world ranks, ascending), and the text that
    // every survivor shows.
    std::function<void(const std::vector<int>& failed, const Status& status)> peers_failed;
    // A communicator is in error on all its ranks (mismatch, abort, arrival timeout): the one of
    // this number that `member` is in. Told to all ranks, those included that have not made it yet.
    std::function<void(uint32_t comm, int member, const Status& status)> communicator_failed;
    // The connection between ranks a and b broke though both live. Where this is not set,
    // peers_failed is called instead, with the ranks dead so far (maybe none) and a status of kind
    // SENNIT_LINK_FAILED.
    std::function<void(int a, int b, const Status& status)> link_failed;
    // The call with number `seq` on `comm` if it is still remembered (the last 64 are); else the
    // latest one's number, with its text where `seq` is yet to come. False: there was none, and
    // only `refusal` is told.
    std::function<bool(uint32_t comm, uint32_t seq, CallDescriptor* out)> describe;
    // At the coordinator: a rank says that a call of some communicator stalls. It says it again,
    // about every stall_ms, while that lasts.
    std::function<void()> stall_reported;
    // Members of `comm`, as world ranks.
    std::function<std::vector<int>(uint32_t comm)> members;
    // At the coordinator: what a rank, maybe this one, told it.
    std::function<void(int rank, uint8_t topic, const std::vector<std::byte>& blob)> told;
    // What the coordinator announced to all ranks, itself included.
    std::function<void(uint8_t topic, const std::vector<std::byte>& blob)> announced;
    // This rank's way to the coordinator is a new one, or it is the coordinator now: what it has
    // told may be lost.
    std::function<void()> may_be_lost;
  };

  // Collective over all ranks; returns when the tree stands, or when a job was found that carries
  // this one's communicator: shared() tells. On time-out the error lists who is missing.
  static Result<std::unique_ptr<Control>> start(const BootstrapOptions& options,
                                                Callbacks callbacks);
  virtual ~Control() = default;

  // Not null: all ranks are in that job, so there is no tree, and this is to be destroyed.
  virtual const SharedJob* shared() const { return nullptr; }

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual uint64_t job() const = 0;
  virtual const std::vector<std::byte>& secret() const = 0;
  virtual bool sealed() const = 0;
  virtual std::string interface_address() const = 0;  // this host's address as peers see it

  // Collective, used at start: everybody's blob to everybody, down the tree. Blocking, with the
  // arrival time-out.
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(
      std::span<const std::byte> mine) = 0;
  virtual Result<std::vector<std::byte>> broadcast(std::span<const std::byte> from_rank0) = 0;

  // A data connection to `peer` broke. The coordinator decides whether the peer is dead or only the
  // link.
  virtual void report_suspect(int peer, const std::string& what) = 0;
  // No progress for stall_ms in this call: the coordinator compares the members' calls. A message
  // fails its communicator where its peer has left. Repeat while stalled.
  virtual void report_stall(const CallDescriptor& mine) = 0;
  // This rank's time for the call is over, after waited_ms: the communicator fails with
  // SENNIT_TIMED_OUT, and the text names who has not come to it.
  virtual void expire(const CallDescriptor& mine, int64_t waited_ms) = 0;
  // A message of `peer` carried another signature than this rank's call.
  virtual void report_mismatch(const CallDescriptor& mine, int peer) = 0;
  // This communicator is aborted: flood it.
  virtual void abort(uint32_t comm, const std::string& why) = 0;
  // It fails on all its ranks, with this.
  virtual void fail(uint32_t comm, const Status& status) = 0;
  // To the coordinator's Callbacks::told. It may be lost where a rank on its way ends, and then
  // `may_be_lost` is called. What may wait does so for up to 20 ms at each rank on its way, and
  // goes on together with what others say.
  enum class MayWait : bool { no, yes };
  virtual void tell(uint8_t topic, std::vector<std::byte> blob, MayWait may_wait) = 0;
  // To all ranks' Callbacks::announced; only where this rank is the coordinator, else nothing
  // happens. Announcements come in their order. A rank that attaches late is told again, of those
  // with one topic and key the last alone.
  virtual void announce(uint8_t topic, uint64_t key, std::vector<std::byte> blob) = 0;
  // Says goodbye, so that closing is not taken for death. Bounded: returns after at most a second
  // or two.
  virtual void leave() = 0;
  // How this rank's clock stands to the coordinator's, as the tree measures it again and again;
  // nothing while it is not known.
  virtual std::optional<MeasuredClock> clock() const { return std::nullopt; }
  virtual std::string statistics() const = 0;  // bootstrap messages, connections, refused strangers
};

}  // namespace sennit
