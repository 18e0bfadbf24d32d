// channels.hpp: what the objects of the control plane see of the network: connections as channels
// with a role, and the door at which others knock. control/switchboard.hpp is the real one; tests
// have one that only writes down what it is told. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/net/socket.hpp"
#include "control/frame.hpp"

namespace sennit::control {

// What a connection is for.
enum class Role : uint8_t {
  stranger,   // accepted; has not said yet what it wants
  enlisting,  // to rank 0, at the start: where is my parent?
  enlisted,   // at rank 0: waits for its parent to come
  parent,     // tree
  child,      // tree
  probing,    // coordinator to a suspect
  visitor,    // a probe that has been answered, or somebody that was refused
};

// Why a connection ended.
enum class End : uint8_t {
  none,
  refused,      // nobody listens there
  unreachable,  // host or network
  closed,       // by the other side, or reset
  unproven,     // it does not hold the secret
  disagrees,    // it does, but its SENNIT_WIRE is another
  garbage,      // what it says is no frame
  forged,       // sealed: what came is not what was sent
};

// One connection of this rank. Whoever implements Channels owns it, keeps the times and marks it
// proven; the objects of the control plane set what it is for. A pointer to it is good until the
// channel ends, so keep the id.
struct Channel {
  uint64_t id = 0;
  Role role = Role::stranger;
  int rank = -1;          // the peer's; -1: not known yet
  bool outgoing = false;  // this rank connected
  Address other;          // the far end
  bool proven = false;    // both ends hold the secret; frames flow
  int64_t since_ms = 0;   // opened
  int64_t last_in_ms = 0, last_out_ms = 0;
  int64_t deadline_ms = 0;        // must have got on by then; 0: none
  int64_t handshake_time_ms = 0;  // from when it is connected; 0: the deadline stands
  bool said_goodbye = false;      // the peer's closing is no failure
  bool joined = false;  // child: its subtree is complete (start); parent: it has welcomed us
};

// What a channel was when it ended.
struct Ending {
  Role role = Role::stranger;
  int rank = -1;
  bool said_goodbye = false, joined = false;
  End end = End::none;
  std::string reason;
};

// All connections of one rank, by id. send() and connect() never block. Ids are not used again.
class Channels {
 public:
  // Who is told what happens on the channels.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void opened(Channel& channel) = 0;  // it is proven
    virtual void arrived(Channel& channel, const ReceivedFrame& message) = 0;
    virtual void dropped(const Channel& channel) = 0;  // about to be gone, for whatever reason
    virtual void ended(const Ending& ending) = 0;
    virtual void out_of_descriptors() = 0;  // others cannot be taken in
  };

  virtual ~Channels() = default;

  // Null: it has ended, or there never was one (0 is no channel's id).
  virtual Channel* find(uint64_t id) = 0;
  // In the order in which they came. `visit` must not end or make any.
  virtual void for_each(const std::function<void(Channel&)>& visit) = 0;
  // A connection that is under way. Null, and an errno: there is nobody, or no descriptor for it.
  virtual Channel* connect(const Address& address, Role role, int rank, int* error) = 0;
  // Goes out when the peer has proved itself.
  virtual void send(Channel& channel, const EncodedFrame& frame) = 0;
  // No more will be sent; the channel ends when the other side has read all.
  virtual void shut(Channel& channel) = 0;
  // A stranger no more.
  virtual void settle(Channel& channel, Role role, int rank) = 0;
  // Ends it without further ado; the owner forgets it.
  virtual void drop(uint64_t id) = 0;
  // The same, and the owner is told why, as if it had ended by itself.
  virtual void lost(uint64_t id, End end, const std::string& reason) = 0;
  virtual Address near_end(const Channel& channel) const = 0;
  virtual Address far_end(const Channel& channel) const = 0;
  // One descriptor is kept for the moment when there are no others. False: it is in use.
  virtual bool has_spare_descriptor() const = 0;
};

// Where this rank listens.
class Door {
 public:
  virtual ~Door() = default;
  virtual Status open(const Address& address) = 0;  // port 0: any
  virtual void take_over(int listening_fd) = 0;     // a socket that listens already
  virtual bool is_open() const = 0;
  virtual Address address() const = 0;  // while it is open
  virtual uint16_t port() const = 0;    // the last one; 0: it never was open
  // Opens another one at the same address with another port. This one's port stays bound, or the
  // kernel might give it to any connection that goes out, but nobody is taken in there.
  virtual Status move() = 0;
  virtual void close() = 0;
};

// Tells who has no place here, and why.
void refuse(Channels& channels, Channel& channel, int64_t now_ms, const Status& status);
// No more to say to it: it closes when it has read all, or within `ms`.
void dismiss(Channels& channels, Channel& channel, int64_t now_ms, int64_t ms);

// For the last frames to be read.
inline constexpr int64_t kClosingMs = 300;
// For a connection to prove itself and say what it wants.
inline constexpr int64_t kStrangerMs = 10'000;

}  // namespace sennit::control
