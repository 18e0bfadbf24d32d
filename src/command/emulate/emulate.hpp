// emulate.hpp: what the parts of `sennit emulate` share: the tree that is emulated, an instance of
// it (the processes that hold its namespaces), and launching one process per rank in it.
//
// How it stands: a *keeper* process is the init of a process-id namespace and owns the network
// namespace of the switches; one *holder* per host, inside that process-id namespace, owns the
// host's network, UTS, IPC and mount namespaces. Nothing is bound to a file, so killing the keeper
// ends every process of the instance, and with the last of them the kernel removes namespaces,
// links and mounts: that is the whole of cleaning up, also after a crash.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "command/command_line.hpp"

namespace sennit::emulate {

// ---- the tree (command/emulate/tree.cpp; pure) ----

// What a link lets pass at once: smaller buckets lose capacity when a core wakes late (two cores
// carry the whole tree), larger ones let more than 1% of a 16 MB message pass unshaped.
inline constexpr int kBurstKiB = 256;
// What waits for a link at most; TCP alone keeps it shorter.
inline constexpr int kQueueMiB = 4;

// As given on the command line; make_tree() checks it. racks: how many, or the hosts of each; pods:
// how many, or the racks of each. Rates: one for all, or a list; where there is none, what the
// level below has over its oversubscription. Each rail is a tree of its own up to the spine, and
// all are alike: rates are those of one NIC and of one rail's uplink, and so are the ratios.
struct TreeOptions {
  std::string racks = "2";
  int hosts = 4;
  std::string pods;
  std::string nic = "400Mbit/s";
  std::string uplink;
  std::string pod_uplink;
  std::string oversubscription;
  int rails = 1;  // NICs of every host
};

// What is wrong, on purpose, with one direction of a link: command/emulate/faults puts it there.
// All of it is in force at once; a fault of zeros is none.
struct Fault {
  uint64_t bits_per_s = 0;  // in place of the link's own rate; 0: that
  uint64_t delay_ns = 0;    // on top of what the link takes
  uint32_t lost_ppm = 0;    // packets that are lost, of a million
  bool cut = false;         // all are lost
  bool operator==(const Fault&) const = default;
};
// Of both directions: out is upwards, from the host or the switch to the switch above it.
struct LinkFaults {
  Fault out, in;
  bool operator==(const LinkFaults&) const = default;
};

// What joins a host to the leaf of one rail.
struct Nic {
  std::string address;
  LinkFaults faults = {};
};
// A host of the tree; `holder` is the process that owns its namespaces, 0 where the tree is not up.
struct Host {
  std::string name;
  int rack = 0;
  uint64_t nic_bits_per_s = 0;  // of each
  pid_t holder = 0;
  std::vector<Nic> nics = std::vector<Nic>(1);  // by rail

  // That by which others know it: of its first NIC.
  const std::string& address() const { return nics.front().address; }
};
// Of a rack or a pod; each rail has one.
struct Switch {
  std::string name;
  int pod = 0;                                                  // racks: which pod they hang below
  uint64_t uplink_bits_per_s = 0;                               // of each rail; 0: it is the root
  std::vector<LinkFaults> faults = std::vector<LinkFaults>(1);  // of the uplinks, by rail
};
// The whole tree. The spine is common to all rails.
struct Tree {
  std::vector<Host> hosts;  // in fabric order
  std::vector<Switch> racks;
  std::vector<Switch> pods;  // empty: racks hang below the spine
  int rails = 1;

  bool has_spine() const { return racks.size() > 1 || rails > 1; }
};

// Rounded to four digits, for people.
std::string readable_rate(uint64_t bits_per_s);
// bits/s of what people write (400Mbit/s); nullopt: no rate, or none that a link can be given.
std::optional<uint64_t> link_rate(const std::string& text);
// Hosts are h0, h1, ..., as they lie in the racks. They have no address until the tree is brought
// up. An invalid argument names its option.
Result<Tree> make_tree(const TreeOptions& options);
// One line for people, in UTF-8.
std::string describe(const Tree& tree);
// Likewise what is wrong with a link that has `bits_per_s` of its own: "whole", or what each
// direction has.
std::string describe(const LinkFaults& faults, uint64_t bits_per_s);
// A line for each link of the tree that is not whole.
std::vector<std::string> describe_faults(const Tree& tree);
// The text form that topology/fabric/fabric.hpp documents.
std::string fabric_text(const Tree& tree);
// SLURM_TOPOLOGY_ADDR of a host, and its pattern.
std::string slurm_address(const Tree& tree, const Host& host);
std::string slurm_pattern(const Tree& tree);

// Where rank r runs: result[r] is an index into tree.hosts. `order` is fabric (neighbours in the
// tree are neighbours in rank), dealt (like cards over pods, then racks, then hosts) or
// random[:SEED].
Result<std::vector<int>> place_ranks(const Tree& tree, int ranks_per_host,
                                     const std::string& order);

// ---- rails (command/emulate/rails.cpp; pure) ----

// As many as hosts have GPUs where fabrics are built so.
inline constexpr int kMostRails = 8;

// A host's interface on that rail: eth1.
std::string interface_of(int rail);
// What is called NAME in a tree of one rail, as the kernel's devices and a fabric's switches have
// it: rack0, or the leaf rack0.1 of one of several rails.
std::string on_rail(const Tree& tree, const std::string& name, int rail);
// What a rack's leaf of that rail hangs below: the spine, as all pods do, or its pod.
std::string above_rack(const Tree& tree, const Switch& rack, int rail);
// A host's NIC as fabrics have it: h0/eth1; of one rail, the host itself.
std::string nic_name(const Tree& tree, const Host& host, int rail);
// Of the tree's host number `host`: rail 1 of the instance 77 has 10.77.17.1 to 10.77.20.250.
std::string address_of(int subnet, size_t host, int rail);
// What `ip -batch` has to read in a host's namespace: its addresses, a subnet for every rail, and
// that packets leave by the NIC whose address they carry.
std::string addressing(const Tree& tree, const Host& host, int subnet);
// The rail of a host's i-th rank, as home planes are dealt where nobody names a NIC.
int rail_of(const Tree& tree, int local_rank);
// Of ranks on these hosts: which of its host's ranks each one is.
std::vector<int> local_ranks(const Tree& tree, const std::vector<int>& hosts_of_ranks);

// ---- an instance (command/emulate/instance.cpp, command/emulate/wire.cpp) ----

// A tree that is up.
struct Instance {
  std::string name;
  pid_t keeper = 0;
  uint64_t keeper_start = 0;  // start time in clock ticks, tells a reused process id apart
  int keeper_socket = -1;     // of its maker, until detach()
  int subnet = 0;             // addresses are 10.subnet.x.y
  Tree tree;
};

// Root, or root of a fresh user namespace where that is allowed; else says what is missing.
Status gain_privilege();
// Brings the tree up. It dies with this process until detach() is called.
Result<Instance> create(const std::string& name, const Tree& tree);
Status detach(Instance* instance);
// Not found: its state file is there, but its maker has not brought up all hosts yet.
Status check_up(const Instance& instance);
// enters the user namespace of an instance that has its own
Status join_owner(const Instance& instance);
// Kills the keeper, waits for it, and removes the state file, unless another tree has the name by
// then. Takes the lock where it is free within half a second; else the file stays for create() and
// list().
void destroy(const Instance& instance);

// A line for `tc -batch`: the rate at which packets leave by a device. Where it has one already,
// the new one holds from then on, and what waits there stays. The queue's handle is kShaper.
std::string shape(const std::string& device, uint64_t bits_per_s);
inline constexpr const char* kShaper = "1:";
// All links of the tree, shaped. The instance's keeper has the switches in its network namespace.
Status wire(const Instance& instance);

// ---- inside (command/emulate/namespace.cpp) ----

// Forks a child whose process-id namespace is that of `keeper` and that dies with us; the id
// returned is valid in the caller's own namespace. Makes the caller adopt orphans.
Result<pid_t> fork_below(pid_t keeper);
Status enter_namespace(pid_t process, const char* kind);  // "net", "uts", ...
// Connected sockets whose messages, received at the first one, come with the sender's process id as
// it is seen from here, whatever namespace the sender is in.
Status socket_pair(int sockets[2]);
ssize_t receive(int socket, void* message, size_t bytes, int flags, pid_t* sender);
// Of what a process that was started says over such a socket of why it cannot go on.
inline constexpr size_t kMostSaidBytes = 512;
// Own IPC and mount namespace: fresh /dev/shm, and `hosts_file` in the place of /etc/hosts if not
// empty.
Status isolate(const std::string& hosts_file);
// Runs a program to its end with `input` on its standard input, in the network namespace of
// `process`. An error has what the program said; where there is no such program, which package has
// it. Who calls it ignores SIGPIPE.
Status run_in(pid_t process, const std::vector<std::string>& command, const std::string& input);

// ---- launching (command/emulate/launch.cpp) ----

// A process to launch.
struct Rank {
  int host = 0;
  std::vector<std::string> environment;  // NAME=VALUE, added to ours
  std::vector<std::string> command;
};
struct LaunchOptions {
  bool tag = false;                // output of all ranks, each line with its rank and host
  double timeout_s = 0;            // 0: none
  std::string pids_file;           // lines "RANK HOST PID", as seen from here
  std::string* capture = nullptr;  // standard output of rank 0 goes here instead of to ours
  // the network and UTS namespaces of all hosts are reachable here, for an agent
  std::string namespaces_folder;
  std::string errors_file;  // standard error of all ranks goes here instead of to ours
  std::string hosts_file;   // in the place of /etc/hosts
};
// One process per entry. Returns the worst exit status, 128 + signal for a killed one. When this
// process is interrupted or dies, so do they.
Result<int> launch(const Instance& instance, const std::vector<Rank>& ranks,
                   const LaunchOptions& options);

// ---- the command (command/emulate/emulate.cpp) ----

// Prints the error and returns the exit status: errors of the call are 2, of the machine 3.
int fail(const Status& status);
// The option --name.
Argument add_name(const Command& command, std::string* name);

}  // namespace sennit::emulate
