// messages.hpp: what the frames of the control plane say, one struct for each type
// (control/frame.hpp tells who says it to whom). write() appends its fields, read() takes them
// back: it refuses ranks outside the job (`size` is its number of ranks) and lengths that cannot
// have arrived; decode() refuses what is too short or too long.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/net/socket.hpp"
#include "control/control_plane.hpp"
#include "control/frame.hpp"

// What every one of them has.
#define SENNIT_CONTROL_MESSAGE(type)                  \
  static constexpr FrameType kType = FrameType::type; \
  void write(ByteWriter& out) const;                  \
  void read(ByteReader& in, int size)

namespace sennit::control {

using Blob = std::vector<std::byte>;

// A rank as the others see it.
struct Member {
  Address address;
  int pid = 0;  // 0: not known yet
  std::string host;
};

// ---- the start ----

// That a rank of the new job is this rank of an older one, proved to whoever holds the older one's
// secret.
struct Claim {
  uint64_t job = 0;
  int rank = -1;
  std::array<std::byte, 16> proof{};
};
// In one Enlist.
inline constexpr size_t kMostClaims = 64;

// A rank sends it to rank 0 as the first frame of a connection of its own, once it has found rank
// 0. The answer is Parent when the parent has come as well, Refuse if the rank has no place in the
// job, or StartFailed. A complaint makes rank 0 end the start for everybody.
struct Enlist {
  int rank = -1;
  int ranks = 0;  // how many it believes the job to have
  uint64_t job = 0;
  Member member;
  Status complaint;  // why it cannot take part; ok: it can
  std::vector<Claim> claims{};
  SENNIT_CONTROL_MESSAGE(enlist);
};

// Where rank 0 of a job is whose unique id another process made. Rank 0 says `elsewhere` to the
// maker, which says it back; to whoever enlists there the maker says the same, or what it knows
// yet. Who is told `here` or `elsewhere` drops the connection and enlists there.
struct RootAt {
  enum class Where : uint8_t {
    unknown,    // rank 0 has not come yet: wait
    here,       // at the address that this connection goes to: it has come in the maker's process
    elsewhere,  // at one of `addresses`
  };
  Where where = Where::unknown;
  int ranks = 0;  // of the job; 0 where rank 0 has not said it
  std::vector<Address> addresses;
  SENNIT_CONTROL_MESSAGE(root_at);
};
// In one RootAt.
inline constexpr size_t kMostRootAddresses = 16;

// Rank 0's answer to Enlist, to all ranks at once, instead of Parent: an older job carries this
// one's communicator. The start is over.
struct Shared {
  SharedJob with;
  SENNIT_CONTROL_MESSAGE(shared);
};

// Rank 0's answer to Enlist: where the rank's parent listens. The rank ends this connection and
// attaches there. Where `rank` is 0 the connection stays, and is the one to the parent.
struct Parent {
  uint64_t job = 0;
  int rank = -1;
  Address address;
  SENNIT_CONTROL_MESSAGE(parent);
};

// To a connection that has proved the secret but has no place here: a wrong number of ranks,
// another job, a rank that came twice. During the start the start fails for the one refused; later
// it looks for another parent. The sender closes the connection soon after.
struct Refuse {
  Status status;
  SENNIT_CONTROL_MESSAGE(refuse);
};

// A child tells its parent at the start, once, that all ranks below it are attached. When rank 0
// has it of all its children, Table follows.
struct Joined {
  SENNIT_CONTROL_MESSAGE(joined);
};

// Rank 0 floods it down the tree when all ranks are attached. Each rank keeps the addresses, passes
// it on, and its start is complete.
struct Table {
  uint64_t job = 0;
  std::vector<Member> members;  // of all ranks
  SENNIT_CONTROL_MESSAGE(table);
};

// The start is over for the reason given. A rank sends it to its children, to its parent where it
// has one, and rank 0 to all that wait for theirs; who gets it fails in the same way. Whoever comes
// after that is answered with it.
struct StartFailed {
  Status status;
  SENNIT_CONTROL_MESSAGE(start_failed);
};

// ---- the tree ----

// The first frame on a connection to a parent: the one that Parent named, or, later, the lowest
// rank alive after the parent was lost or left. A parent answers Refuse where the rank has no place
// below it. During the start there is no other answer; later it is Welcome.
struct Attach {
  int rank = -1;
  int ranks = 0;  // of its job
  uint64_t job = 0;
  bool running = false;  // its start is complete
  std::set<int> left, dead;
  Status decision;  // about the dead, where there are any
  SENNIT_CONTROL_MESSAGE(attach);
};

// A parent's answer to an Attach of a running rank: what was decided so far. The child adopts it
// and reports once more what may have been lost with its old parent. A rank that is named among the
// dead gets it too, and learns so.
struct Welcome {
  std::set<int> left, dead;
  Status decision;  // about the dead, where there are any
  SENNIT_CONTROL_MESSAGE(welcome);
};

// Between neighbours in the tree, when nothing else was sent for Self::heartbeat_ms. No answer; a
// neighbour that is silent for the heartbeat time-out becomes suspect.
struct Heartbeat {
  SENNIT_CONTROL_MESSAGE(heartbeat);
};

// A rank that leaves says so, and every rank passes it up to the coordinator, who answers
// GoodbyeAck. The end of its connection is then no failure.
struct Goodbye {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(goodbye);
};

// The coordinator's answer to Goodbye, sent down the way that it came. The rank may leave now.
struct GoodbyeAck {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(goodbye_ack);
};

// To all children. A parent that leaves sends it last: its children drop the connection and attach
// elsewhere. The coordinator floods it some time after ranks left, so that all know of them.
struct Leaving {
  bool parent_leaves = false;  // false: others did, which is only made known
  std::set<int> left;
  SENNIT_CONTROL_MESSAGE(leaving);
};

// A child asks its parent for the time, every few seconds. ClockAnswer follows.
struct ClockAsk {
  uint64_t asked_ns = 0;  // by the child's clock
  SENNIT_CONTROL_MESSAGE(clock_ask);
};

// The parent's clock as the question came and as this left, and what it is ahead of that of the
// coordinator, `root`, as far as the parent knows; -1: it does not know.
struct ClockAnswer {
  uint64_t asked_ns = 0;  // as it was asked
  uint64_t received_ns = 0, answered_ns = 0;
  int root = -1;
  int64_t ahead_ns = 0;
  uint64_t error_ns = 0;  // how far that may be off
  SENNIT_CONTROL_MESSAGE(clock_answer);
};

// ---- failure ----

// The coordinator asks a suspect, over a connection made for this, whether it lives. The answer is
// ProbeAnswer, or Decision if the suspect knows the asker to be dead. A rank of a start that is
// under way also sends it to rank 0 over a spare connection, to say that all is well there.
struct Probe {
  int asker = -1, asked = -1;
  SENNIT_CONTROL_MESSAGE(probe);
};

// The suspect lives. The coordinator drops the case; where a data connection had broken, LinkDown
// follows.
struct ProbeAnswer {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(probe_answer);
};

// A rank, `rank`, may be dead. Every rank passes it up to the coordinator, and once more to a new
// parent while nothing is decided. The coordinator probes the suspect; Decision or LinkDown may
// follow.
struct Suspicion {
  int rank = -1;
  uint8_t evidence = 0;  // bits of Evidence (control/tree/evidence.hpp)
  int reporter = -1;
  std::string what;  // that the reporter saw
  SENNIT_CONTROL_MESSAGE(suspect);
};

// All ranks dead so far, and the text for them. The coordinator floods it; whoever learns more than
// it knew passes it to all its neighbours, up as well as down, and fails what it is doing. A rank
// that finds itself in it ends.
struct Decision {
  std::set<int> dead;
  Status status;
  SENNIT_CONTROL_MESSAGE(decision);
};

// The coordinator floods that the connection between `a` and `b` broke though both live. Passed on
// once for each `event`, and told again to a child that attaches late.
struct LinkDown {
  uint64_t event = 0;
  int a = -1, b = -1;
  Status status;
  SENNIT_CONTROL_MESSAGE(link_down);
};

// ---- small collectives, by number ----

// Up the tree: contributions to all_gather `number`. One frame when a subtree is complete; what has
// come goes up in parts while somebody is late. Gathered follows, or CollectiveOff.
struct Gather {
  uint32_t number = 0;
  std::map<int, Blob> blobs;  // by rank
  SENNIT_CONTROL_MESSAGE(gather);
};

// Rank 0 floods it when it has the contributions of all ranks to all_gather `number`.
struct Gathered {
  uint32_t number = 0;
  std::vector<Blob> blobs;  // of all ranks
  SENNIT_CONTROL_MESSAGE(gathered);
};

// Rank 0 floods it: the one blob of broadcast `number`.
struct Broadcast {
  uint32_t number = 0;
  Blob blob;
  SENNIT_CONTROL_MESSAGE(broadcast);
};

// Rank 0 floods it when not all contributions came within the arrival time-out, or somebody left
// meanwhile: all_gather `number` fails on all ranks, with this.
struct CollectiveOff {
  uint32_t number = 0;
  Status status;
  SENNIT_CONTROL_MESSAGE(collective_off);
};

// ---- calls ----

// A rank whose call makes no progress, or gets messages that do not match it, says so up the tree,
// and says it again while that lasts. Ranks between pass on one report of a call in a while, but
// every mismatch, and every report of a rank whose own time is over. The coordinator sends Inquiry.
struct StallReport {
  CallDescriptor call;
  int reporter = -1;
  int mismatching_peer = -1;  // its message did not match the reporter's call; -1: none
  int64_t waited_ms = 0;      // since the reporter's first report about this call
  int64_t stalled_ms = 0;     // how long it has seen no progress at all
  int64_t expired_ms = -1;    // its time for the call is over, after so long; -1: it is not
  std::set<int> members;      // of the communicator, or CallDescriptor::makers
  bool makes_group = false;   // it is those
  // It is not said again, and must not be lost.
  bool urgent() const { return mismatching_peer >= 0 || expired_ms >= 0; }
  SENNIT_CONTROL_MESSAGE(stall);
};

// The coordinator floods it: what does each member of communicator `comm` do in call `seq`? Only
// ranks whose communicator of that number has `asker` as a member answer.
struct Inquiry {
  uint64_t id = 0;
  uint32_t comm = 0, seq = 0;
  uint64_t signature = 0;  // the asker's
  int asker = -1;
  SENNIT_CONTROL_MESSAGE(inquire);
};

// What one member says to an Inquiry.
struct InquiryAnswer {
  // The member has no call there; its latest is earlier; it remembers this one; it is past it and
  // has forgotten it.
  enum class Where : uint8_t { absent, before, at, past };
  int rank = -1;
  Where where = Where::absent;
  uint32_t seq = 0;  // of its latest call, or the one asked for
  uint64_t signature = 0;
  std::string text;        // empty: as the asker's; of who is not there, CallDescriptor::refusal
  bool in_stream = false;  // CallDescriptor's
};

// The answers of some members to Inquiry `inquiry`, put together on the way up to the coordinator,
// who compares all of them. CommFailed follows if calls differ or somebody is too late. Most
// members do what the asker does, so they are ranges of ranks, however many there are.
struct InquiryAnswers {
  uint64_t inquiry = 0;
  std::set<int> alike;  // in the call asked for, of the asker's signature, and in no stream
  std::vector<InquiryAnswer> others;
  SENNIT_CONTROL_MESSAGE(answers);
};

// The coordinator floods that a communicator is in error: the one of number `comm` that `anchor` is
// in. Every rank is told, because one may make that communicator later. Passed on once for each
// `event`.
struct CommFailed {
  uint64_t event = 0;
  uint32_t comm = 0;
  int anchor = -1;  // one of its members
  Status status;
  SENNIT_CONTROL_MESSAGE(comm_failed);
};

// A rank whose communicator is aborted or fails asks the coordinator, up the tree, to tell all
// ranks. CommFailed follows, with the same status, unless one was told of that communicator before.
struct AbortRequest {
  uint32_t comm = 0;
  int anchor = -1;  // its lowest member
  Status status;
  SENNIT_CONTROL_MESSAGE(abort_request);
};

// ---- of the control plane's user ----

// What the users of some ranks say to the coordinator's. It is passed up, by ranks on its way
// together with more where it may wait, and lost where one of them ends. What it means is theirs.
struct Tell {
  struct Said {
    int rank = -1;  // who says it
    uint8_t topic = 0;
    Blob blob;
  };
  bool may_wait = false;
  std::vector<Said> said;  // of each rank in the order in which it was said
  SENNIT_CONTROL_MESSAGE(tell);
};

// What the coordinator's user says to all ranks', flooded. Passed on once for each `event`, and
// told again to a child that attaches late. `event` grows.
struct Announce {
  uint64_t event = 0;
  uint8_t topic = 0;
  uint64_t key = 0;  // a later one of this topic and key says all that an earlier one did
  Blob blob;
  SENNIT_CONTROL_MESSAGE(announce);
};

}  // namespace sennit::control

#undef SENNIT_CONTROL_MESSAGE
