// transport.hpp: the contract of the transports family.
//
// A transport moves messages between this process and its peers. A message is named by a Key; the
// receiver posts a receive for the same key. Peers are world ranks of the job.
//
// Ownership: a request belongs to its caller, and stays at its address; from send()/recv() until it
// is handed back through Completions the transport may read and write it and the memory behind its
// segments. Nothing is ever completed from inside send() or recv(): completions come out of
// progress() only. A receive is either *delivered* into its segments or, if may_expose, *exposed*:
// `exposed` points at the bytes in the peer's memory, readable until release(). Flow control: a
// large message moves only once its receive is posted; small (eager) ones may come earlier, bounded
// per (communicator, peer) by a window, so no communicator can block another and memory is bounded.
// Threads: all calls are made under the engine's lock. Failure: when a connection
// breaks, the transport reports a PeerEvent once and leaves the peer's requests pending; the
// control plane decides, then fail_peer() or cancel() hands them back with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/exported_memory.hpp"
#include "base/status.hpp"
#include "record/connections.hpp"

namespace sennit {

// The name of a message from one rank to another. Keys are never reused within a communicator.
struct Key {
  uint32_t comm = 0;   // communicator id, the same on all its ranks
  uint32_t seq = 0;    // number of the call on the communicator
  uint32_t chunk = 0;  // from kPointToPoint - kReplays on for send/recv
  uint32_t tag = 0;
  bool operator==(const Key&) const = default;
};
inline constexpr uint32_t kPointToPoint = 0xffffffffu;
// A call that a graph makes again has the number of the call that was captured. Its messages are
// told apart by which time it is, 1 to kReplays and then again: of a collective above kTagBits of
// the tag, of send/recv as chunk kPointToPoint less that number.
inline constexpr uint32_t kTagBits = 16;
inline constexpr uint32_t kReplays = 0xffff;

// A piece of the caller's memory. A message lies in any number of them, one after the other.
struct Segment {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// What sends and receives have in common. The caller fills in what stands before the results. The
// request is its to use again once it has been handed back, and released where it is exposed.
struct MessageRequest {
  int peer = -1;  // world rank
  Key key;
  uint64_t signature = 0;             // hash of (collective, count, type, op, root, plan)
  std::span<const Segment> segments;  // stays valid until completion
  size_t bytes = 0;                   // sum of segments
  // Results.
  Status status;
  // when the peer was known ready (its credit, or the first fragment); 0 if not known
  uint64_t ready_ns = 0;
  // first byte moved; both 0 in a receive: it was complete the moment it was seen
  uint64_t first_ns = 0;
  uint64_t posted_ns = 0;  // the caller's: when it could first have been sent or received
  void* owner = nullptr;   // the caller's
  uint32_t step = 0;       // the caller's
  // The transport's own use while it holds the request.
  MessageRequest* next = nullptr;
  MessageRequest* previous = nullptr;
  uint64_t scratch[4] = {};
};
struct SendRequest : MessageRequest {
  // It lies in one piece in a device's memory, which the peer has mapped: Transport::is_mapped().
  bool exported = false;
};
struct RecvRequest : MessageRequest {
  bool may_expose = false;
  // Where the sender's is `exported`, it is exposed in memory of the device that has mapped it. May
  // that be, or is it an error?
  bool may_import = false;
  const std::byte* exposed = nullptr;  // set: the data is here; call release() when done
  // How long the message had been posted at its sender when its first byte left, in microseconds;
  // kNotTold where the transport does not say.
  static constexpr uint32_t kNotTold = 0xffffffff;
  uint32_t sender_waited_us = kNotTold;
  uint32_t sender_clock_us = 0;  // where that is told: its CLOCK_MONOTONIC then, modulo 2^32
  // Filled where the arrived message's signature or size is not the posted one (status is
  // SENNIT_MISMATCH).
  uint64_t arrived_signature = 0;
  size_t arrived_bytes = 0;
};

// A small message in one piece, for send_now() and recv_now().
struct SmallMessage {
  int peer = -1;
  Key key;
  uint64_t signature = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
};
enum class Now : uint8_t { done, later, never };

// Something is wrong between this rank and a peer. Told once; what the peer's requests end with is
// decided by others.
struct PeerEvent {
  int peer = -1;
  Status status;  // what was seen: "connection closed by peer", "authentication failed", ...
};

// What progress() hands back, behind what is in it already. Whoever has read it calls clear(), so
// that it keeps its memory.
struct Completions {
  std::vector<SendRequest*> sends;
  std::vector<RecvRequest*> receives;
  std::vector<PeerEvent> events;
  void clear() {
    sends.clear();
    receives.clear();
    events.clear();
  }
};

// Memory that a peer's device exports.
struct PeerMemory {
  int peer = -1;
  ExportedMemory memory;
};

// How near a peer can be for a transport to serve it.
enum class Reach : uint8_t { none, same_process, same_host, network };

// What a transport is given at creation.
struct TransportContext {
  int rank = 0;
  int size = 1;
  uint64_t job = 0;               // the job's random number, part of every name the transport makes
  std::vector<std::byte> secret;  // 32 bytes; pair keys are derived from it
  bool sealed = false;  // SENNIT_WIRE: what goes between hosts is encrypted and authenticated
  std::string host_interface;  // address that peers can reach (from the bootstrap), numeric
  // Ranks on this host, and the lowest of them. Ranks that have the same one are on one host, as
  // the job counts hosts (plan/cores.hpp), whatever they might share besides.
  int local_ranks = 1;
  int speaker = 0;
  size_t eager_bytes = 8192;
  // SENNIT_TRANSPORTS names it: it is to be used also where, unasked, it would rather not be.
  bool asked_for = false;
};

// What goes between hosts costs beside its payload, for the planner's prices.
struct WireOverhead {
  uint64_t payload_permille = 1000;  // of a link's rate, what is left for payload
  uint64_t message_bytes = 0;        // what a message costs beside its payload
  bool rdma = false;                 // no system call and no kernel on its way
};

// One rank's end of a transport. send() and recv() are for peers that were given to add_peer(), and
// release() for receives that were handed back with `exposed` set.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // "tcp"
  // What peers need to reach this rank; at most 512 bytes; sent around by the bootstrap.
  virtual std::vector<std::byte> address() const = 0;
  // Whether (and how near) the peer with this address can be reached. May open the peer's segment
  // to prove it. Each end asks alone and both must come to the same, or they wait for each other
  // over different transports: so it follows from the two addresses, and where only this process
  // lacks something it is not `none`, but an error of add_peer().
  virtual Reach reach(int peer, std::span<const std::byte> address) = 0;
  // After reach() said none: why, as far as it is known.
  virtual std::string obstacle() const { return "does not reach it"; }
  // Remembers the address; the connection is made when first used. An error is final: no other
  // transport is tried, since the peer takes this one.
  virtual Status add_peer(int peer, std::span<const std::byte> address) = 0;

  virtual void send(SendRequest& request) = 0;
  virtual void recv(RecvRequest& request) = 0;
  // Ends exposure. The request's status is an error from then on where the sender has taken its
  // memory back meanwhile, so that what was read may be torn: the communicator is being cancelled
  // here too. Where that cannot be told any more it is SENNIT_LINK_FAILED, of this message alone.
  virtual void release(RecvRequest& request) = 0;
  // Whether a message of this name waits here for its receive: its bytes, or its announcement. Who
  // wants to know asks again after each progress(), which from then on also looks for what comes
  // from that peer.
  virtual bool has_come(int peer, const Key& key) = 0;
  // Moves what can be moved without blocking. True if anything moved.
  virtual bool progress(Completions& completions) = 0;

  // The short way of small messages, which a transport may offer: no request, no completion.
  // now_bytes() is the largest message that it takes; 0: it has none. send_now() is `done` when the
  // bytes have been copied, else `never`: use send(). recv_now() is `done` when the message has
  // come and lies at `data`, `later` when it has not come, and `never` when it is to be had by
  // recv() only (another size or signature, large, peer or communicator failed). Both ends choose
  // by themselves. recv_now() may receive other messages as progress() does, and their completions
  // come out of the next progress().
  virtual size_t now_bytes() const { return 0; }
  virtual Now send_now(const SmallMessage&) { return Now::never; }
  virtual Now recv_now(const SmallMessage&) { return Now::never; }

  // Hands back all requests to or from `peer`, or of communicator `comm`, with `status`, out of the
  // next progress(). After that the transport no longer touches their memory.
  virtual void fail_peer(int peer, const Status& status) = 0;
  virtual void cancel(uint32_t comm, const Status& status) = 0;
  // Gives back what is kept of communicators that `over` holds for. This rank has none of their
  // requests any more and posts none; what peers still send on them may be kept again, until the
  // next time.
  virtual void forget(const std::function<bool(uint32_t comm)>& over) { (void)over; }
  // Nothing has moved for SENNIT_STALL though calls are under way: a transport may ask those of its
  // peers that something is awaited from whether anything is missing.
  virtual void stalled() {}
  // False: a library underneath has the memory of requests under way and cannot withdraw it. Then
  // fail_peer() and cancel() hand those back as soon as the library lets go, which may take the
  // peer's progress: all ranks drive such a transport from its start to its end, also while they
  // wait for nothing.
  virtual bool withdraws_at_once() const { return true; }

  // Nothing where it carries nothing between hosts. `in_memory`: all hosts are virtual ones of one
  // machine, so that a frame has no preamble and no gap.
  virtual std::optional<WireOverhead> wire_overhead(bool in_memory) const {
    (void)in_memory;
    return std::nullopt;
  }

  // A descriptor that becomes readable when progress() has something to do, or -1: then wait()
  // naps.
  virtual int event_fd() const { return -1; }
  // Called before sleeping on event_fd: returns false if there is work already.
  virtual bool prepare_wait() { return true; }
  // Memory that this transport can expose to peers; nullptr if it has none. free() returns false if
  // not its own.
  virtual void* allocate(size_t bytes) {
    (void)bytes;
    return nullptr;
  }
  virtual bool free(void* memory) {
    (void)memory;
    return false;
  }
  // Makes memory of the user, anywhere, as exposable as allocate()'s; it keeps its address and
  // bytes. OK where there is nothing to gain. Ranges never overlap; `memory` of the second is that
  // of the first.
  virtual Status register_memory(void* memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    return {};
  }
  virtual Status deregister_memory(void* memory) {
    (void)memory;
    return {};
  }
  // Whether what it exposes is memory of this process, at the address that the sender named.
  virtual bool exposes_own_process() const { return false; }

  // ---- memory of devices, which the processor does not reach ----
  // Whether such memory may be exposed to this peer: it has mapped some, or was never told of any.
  virtual bool exposes_devices(int peer) {
    (void)peer;
    return false;
  }
  // Whether this rank's device has mapped some of the peer's.
  virtual bool reads_devices(int peer) const {
    (void)peer;
    return false;
  }
  // Whether the peer has mapped it, and takes messages of this communicator there. The first
  // question tells it of that memory.
  virtual bool is_mapped(int peer, uint32_t comm, const ExportedMemory& memory) {
    (void)peer;
    (void)comm;
    (void)memory;
    return false;
  }
  // What peers have told of and nobody has answered.
  virtual std::vector<PeerMemory> unanswered() const { return {}; }
  // It lies at `here` for this rank's device as long as this transport lives, or cannot be mapped
  // where that is null. False: it was answered before, and this answer does not count.
  virtual bool answer(const PeerMemory& memory, std::byte* here) {
    (void)memory;
    (void)here;
    return false;
  }
  // Messages of this communicator from this peer may lie where this rank's device has mapped. The
  // peer is told once, however often this is called.
  virtual void takes_exported(int peer, uint32_t comm) {
    (void)peer;
    (void)comm;
  }

  // What lies below this transport knows of its connections, by peer; nothing where it knows none,
  // as of memory that ranks share. Unlike all else here for any thread, without the engine's lock,
  // and never on the way of a message.
  virtual std::vector<ConnectionStatistics> connections() const { return {}; }
  virtual std::string statistics() const { return {}; }  // "connections 3, bytes ..." for reports
};

// What an entry says of its transport, also where it cannot work: nobody asks for names.
struct TransportFactory {
  std::string_view name;
  int priority;  // larger first among those that reach a peer: loopback 100, shm 80, ucx 40, tcp 20
  // What reach() answers at the most. same_process: ranks are threads of one process.
  Reach farthest;
  // An error where it cannot work on this machine or for this job; its text says why.
  std::function<Result<std::unique_ptr<Transport>>(const TransportContext&)> make;
  // Nothing that it carries can be read on a wire under SENNIT_WIRE=sealed.
  bool keeps_secrets = true;
  // False: make() fails in a child of a process that has made one before.
  bool works_after_fork = true;
};
std::span<const TransportFactory> transports();  // all registered, by falling priority
struct TransportEntry {
  explicit TransportEntry(TransportFactory factory);
};
// SENNIT_TRANSPORT_ENTRY(NAME, priority, farthest, make[, keeps_secrets[, works_after_fork]]) in
// namespace sennit registers the transport "NAME"; NAME is an identifier.
#define SENNIT_TRANSPORT_ENTRY(NAME, ...)                                            \
  namespace {                                                                        \
  const TransportEntry kTransportEntry_##NAME(TransportFactory{#NAME, __VA_ARGS__}); \
  }

}  // namespace sennit
