// messages.hpp: what the frames of the control plane say, one struct for each type
// (control/frame.hpp tells who says it to whom). write() appends its fields, read() takes them
// back: it refuses ranks outside the job (`size` is its number of ranks) and lengths that cannot
// have arrived; decode() refuses what is too short or too long.
#pragma once

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

struct Enlist {
  int rank = -1;
  int ranks = 0;  // how many it believes the job to have
  uint64_t job = 0;
  Member member;
  Status complaint;  // why it cannot take part; ok: it can
  SENNIT_CONTROL_MESSAGE(enlist);
};

struct Parent {
  uint64_t job = 0;
  int rank = -1;
  Address address;
  SENNIT_CONTROL_MESSAGE(parent);
};

struct Refuse {
  Status status;
  SENNIT_CONTROL_MESSAGE(refuse);
};

struct Joined {
  SENNIT_CONTROL_MESSAGE(joined);
};

struct Table {
  uint64_t job = 0;
  std::vector<Member> members;  // of all ranks
  SENNIT_CONTROL_MESSAGE(table);
};

struct StartFailed {
  Status status;
  SENNIT_CONTROL_MESSAGE(start_failed);
};

// ---- the tree ----

struct Attach {
  int rank = -1;
  int ranks = 0;  // of its job
  uint64_t job = 0;
  bool running = false;  // its start is complete
  std::set<int> left, dead;
  Status decision;  // about the dead, where there are any
  SENNIT_CONTROL_MESSAGE(attach);
};

struct Welcome {
  std::set<int> left, dead;
  Status decision;  // about the dead, where there are any
  SENNIT_CONTROL_MESSAGE(welcome);
};

struct Heartbeat {
  SENNIT_CONTROL_MESSAGE(heartbeat);
};

struct Goodbye {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(goodbye);
};

struct GoodbyeAck {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(goodbye_ack);
};

struct Leaving {
  bool parent_leaves = false;  // false: others did, which is only made known
  std::set<int> left;
  SENNIT_CONTROL_MESSAGE(leaving);
};

// ---- failure ----

struct Probe {
  int asker = -1, asked = -1;
  SENNIT_CONTROL_MESSAGE(probe);
};

struct ProbeAnswer {
  int rank = -1;
  SENNIT_CONTROL_MESSAGE(probe_answer);
};

struct Suspicion {
  int rank = -1;
  uint8_t evidence = 0;  // bits of Evidence (control/tree/evidence.hpp)
  int reporter = -1;
  std::string what;  // that the reporter saw
  SENNIT_CONTROL_MESSAGE(suspect);
};

struct Decision {
  std::set<int> dead;
  Status status;
  SENNIT_CONTROL_MESSAGE(decision);
};

struct LinkDown {
  uint64_t event = 0;
  int a = -1, b = -1;
  Status status;
  SENNIT_CONTROL_MESSAGE(link_down);
};

// ---- small collectives, by number ----

struct Gather {
  uint32_t number = 0;
  std::map<int, Blob> blobs;  // by rank
  SENNIT_CONTROL_MESSAGE(gather);
};

struct Gathered {
  uint32_t number = 0;
  std::vector<Blob> blobs;  // of all ranks
  SENNIT_CONTROL_MESSAGE(gathered);
};

struct Broadcast {
  uint32_t number = 0;
  Blob blob;
  SENNIT_CONTROL_MESSAGE(broadcast);
};

struct CollectiveOff {
  uint32_t number = 0;
  Status status;
  SENNIT_CONTROL_MESSAGE(collective_off);
};

// ---- calls ----

struct StallReport {
  CallDescriptor call;
  int reporter = -1;
  int mismatching_peer = -1;  // its message did not match the reporter's call; -1: none
  int64_t waited_ms = 0;      // since the reporter's first report about this call
  int64_t stalled_ms = 0;     // how long it has seen no progress at all
  std::set<int> members;      // of the communicator
  SENNIT_CONTROL_MESSAGE(stall);
};

struct Inquiry {
  uint64_t id = 0;
  uint32_t comm = 0, seq = 0;
  uint64_t signature = 0;  // the asker's
  int asker = -1;
  SENNIT_CONTROL_MESSAGE(inquire);
};

struct InquiryAnswer {
  enum class Where : uint8_t { absent, before, at, past };
  uint64_t inquiry = 0;
  int rank = -1;
  Where where = Where::absent;
  uint32_t seq = 0;  // of its latest call, or the one asked for
  uint64_t signature = 0;
  std::string text;  // empty: as the asker's
  SENNIT_CONTROL_MESSAGE(answer);
};

struct CommFailed {
  uint64_t event = 0;
  uint32_t comm = 0;
  int anchor = -1;  // one of its members
  Status status;
  SENNIT_CONTROL_MESSAGE(comm_failed);
};

struct AbortRequest {
  uint32_t comm = 0;
  int anchor = -1;
  Status status;
  SENNIT_CONTROL_MESSAGE(abort_request);
};

}  // namespace sennit::control

#undef SENNIT_CONTROL_MESSAGE
