// link.hpp: the links of an emulated tree that is up, and how the kernel is made to harm one.
//
// A link has two directions, and each of them two ends. Packets leave by the *sender*, whose token
// bucket gives the direction its rate: `tc` changes that rate, and puts netem below it, which holds
// packets back. They arrive at the *receiver*, where `nft` drops them: they have then had their
// share of the link, as on a wire. TCP on the sending host is not told of it, as it would be by its
// own queue.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "command/emulate/emulate.hpp"

namespace sennit::emulate {

// A device in the network namespace of a process.
struct LinkEnd {
  pid_t process = 0;
  std::string device;
};

// One direction of the link between a host or a switch and the switch above it.
struct LinkDirection {
  std::string name;          // h2_out
  uint64_t bits_per_s = 0;   // of the link's own
  Fault* fault = nullptr;    // what is in force, as the instance has it
  LinkEnd sender, receiver;  // in different namespaces where one of them is a host's
};

// A link, by the host or the switch at its lower end: of several rails by the host's NIC or the
// rail's switch, as the fabric has them.
struct TreeLink {
  std::string name;
  uint64_t bits_per_s = 0;
  LinkFaults* faults = nullptr;
  LinkDirection out, in;
};

// The links of that name; what they point to is `instance`'s. A host or a rack (h0, rack0) has one
// on every rail, of which h0/eth1 or h0.1, and rack0.1, mean one. Where there is none, the error
// has the names that there are.
Result<std::vector<TreeLink>> find_links(Instance* instance, const std::string& name);

// What `tc -batch` has to read in the sender's namespace, and `nft -f` in the receiver's, so that
// not `before` but `after` is in force; empty where it is the same to them.
std::string shaping(const LinkDirection& direction, const Fault& before, const Fault& after);
std::string dropping(const LinkDirection& direction, const Fault& before, const Fault& after);

// Whether this machine can do that to a link: it takes nft for lost packets, netem for late ones.
// `switches` is as for wire().
Status check_support(pid_t switches, const Fault& fault);
// Has tc and nft read the above. After an error some of it may be in force.
Status enforce(const LinkDirection& direction, const Fault& before, const Fault& after);

}  // namespace sennit::emulate
