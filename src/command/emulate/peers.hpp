// peers.hpp: the libraries that are measured beside sennit: where their programs lie, how these are
// started, and the short list of settings of which `compare` keeps the best.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"

namespace sennit::emulate {

// Who starts the ranks of a peer: we, or the peer's own launcher on the host of rank 0.
enum class Launcher { ours, orte, prte, hydra };

// What is set in the environment of the launcher and of all ranks.
struct PeerSetting {
  std::string name;
  std::vector<std::string> environment;  // NAME=VALUE
  bool all_reduce = false;               // it differs from the others for all-reduces alone
};

// A library that is measured beside sennit.
struct Peer {
  std::string name;   // --peer, --libraries; its program is NAME_perf
  std::string shown;  // for people
  const char* color;  // CSS class of its bars and lines
  std::string install;
  std::string version;  // a command that prints it; "{}" in it: the launcher
  Launcher launcher = Launcher::ours;
  std::vector<std::string> environment;  // with every setting
  std::vector<PeerSetting> settings;     // never empty; the first is what `run` takes

  // Null: there is none of that name; an empty one is the first.
  const PeerSetting* find(const std::string& setting) const;
  std::string setting_names() const;  // separated by commas
};

// All that are known, installed or not.
const std::vector<Peer>& peers();
// Null: not a peer.
const Peer* find_peer(const std::string& name);
std::string peer_names();  // separated by commas

// Where the program of a peer is; an error says how to get it.
Result<std::string> peer_program(const std::string& name);
// The launcher that belongs to a program: one that lies beside it, links resolved, as in what the
// Python index has, or that of the system.
std::string launcher_of(const std::string& program);
// Empty where it is not installed.
std::string peer_version(const Peer& peer);

}  // namespace sennit::emulate
