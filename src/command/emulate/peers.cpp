// The table of peers, and of the settings that were the best somewhere on emulated trees.
#include "command/emulate/peers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "command/emulate/run.hpp"

namespace sennit::emulate {
namespace {

constexpr size_t kMostLineBytes = 256;
const char* const kFromTheIndex = "./run peers gets it from the Python index";

std::string first_line_of(const std::string& command) {
  std::string line;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char buffer[kMostLineBytes];
    if (std::fgets(buffer, sizeof buffer, pipe)) line = buffer;
    pclose(pipe);
  }
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

// Open MPI of either release; `shared_memory` is what it calls that within a host. UCX is told to
// use the wire alone, so that nothing that hosts of one kernel might share can carry a message.
std::vector<std::string> openmpi_environment(const char* shared_memory) {
  return {"OMPI_MCA_mpi_yield_when_idle=1",
          "OMPI_MCA_btl_tcp_if_include=eth0",
          fmt::format("OMPI_MCA_btl=tcp,{},self", shared_memory),
          "OMPI_MCA_pml_ucx_tls=any",
          "OMPI_MCA_pml_ucx_devices=any",
          "UCX_TLS=tcp,self",
          "UCX_NET_DEVICES=eth0"};
}

// What Open MPI sends by, and its algorithm for all-reduces as `ompi_info` numbers them; 0: as it
// chooses.
std::vector<std::string> openmpi_setting(const char* sends_by, int algorithm) {
  std::vector<std::string> environment = {fmt::format("OMPI_MCA_pml={}", sends_by)};
  if (algorithm == 0) return environment;
  environment.emplace_back("OMPI_MCA_coll_tuned_use_dynamic_rules=1");
  environment.push_back(fmt::format("OMPI_MCA_coll_tuned_allreduce_algorithm={}", algorithm));
  return environment;
}
constexpr int kDoubling = 3, kRing = 4;

// Hosts share this machine's cores, which no library can see. MPICH's waiting ranks sleep if told
// to, which took a tenth of the time where others wanted the cores as well; where nobody does,
// spinning is quicker.
std::vector<std::string> mpich_setting(bool sleeps, const char* algorithm) {
  std::vector<std::string> environment;
  if (sleeps) environment.emplace_back("MPIR_CVAR_ENABLE_HEAVY_YIELD=1");
  if (*algorithm)
    environment.push_back(fmt::format("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM={}", algorithm));
  return environment;
}

const char* const kOpenMpiVersion = "'{}' --version 2>/dev/null | sed 's/mpirun (Open MPI) //'";

Peer openmpi() {
  return {.name = "openmpi",
          .shown = "Open MPI",
          .color = "orange",
          .install = "install libopenmpi-dev and openmpi-bin, and build again",
          .version = kOpenMpiVersion,
          .launcher = Launcher::orte,
          .environment = openmpi_environment("vader"),
          .settings = {{"default", openmpi_setting("ob1", 0)},
                       {"ucx", openmpi_setting("ucx", 0)},
                       {"ucx-doubling", openmpi_setting("ucx", kDoubling), true},
                       {"ring", openmpi_setting("ob1", kRing), true}}};
}

Peer openmpi5() {
  Peer peer = openmpi();
  peer.name = "openmpi5";
  peer.shown = "Open MPI 5";
  peer.color = "red";
  peer.install = kFromTheIndex;
  peer.launcher = Launcher::prte;
  peer.environment = openmpi_environment("sm");
  const std::vector<std::string> libfabric = {"OMPI_MCA_pml=cm", "OMPI_MCA_mtl=ofi",
                                              "OMPI_MCA_mtl_ofi_provider_include=tcp",
                                              "FI_PROVIDER=tcp", "FI_TCP_IFACE=eth0"};
  peer.settings.push_back({"libfabric", libfabric});
  return peer;
}

Peer mpich() {
  return {.name = "mpich",
          .shown = "MPICH",
          .color = "green",
          .install = kFromTheIndex,
          .version = "'{}' --version 2>/dev/null | sed -n 's/ *Version: *//p'",
          .launcher = Launcher::hydra,
          .environment = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0"},
          .settings = {{"default", mpich_setting(true, "")},
                       {"recexch", mpich_setting(true, "recexch"), true},
                       {"ring", mpich_setting(true, "ring"), true},
                       {"blocks", mpich_setting(true, "k_reduce_scatter_allgather"), true},
                       {"spin", mpich_setting(false, "")},
                       {"spin-recexch", mpich_setting(false, "recexch"), true}}};
}

Peer gloo() {
  return {.name = "gloo",
          .shown = "Gloo",
          .color = "violet",
          .install = "install libgloo-dev, and build again",
          .version = "dpkg-query -W -f '${{Version}}' libgloo0 2>/dev/null",
          .environment = {"GLOO_INTERFACE=eth0"},
          .settings = {{"default", {}}}};
}

}  // namespace

const std::vector<Peer>& peers() {
  static const std::vector<Peer> kPeers = {openmpi(), gloo(), mpich(), openmpi5()};
  return kPeers;
}

const PeerSetting* Peer::find(const std::string& setting) const {
  if (setting.empty()) return &settings.front();
  const auto it = std::find_if(settings.begin(), settings.end(),
                               [&](const PeerSetting& s) { return s.name == setting; });
  return it == settings.end() ? nullptr : &*it;
}

std::string Peer::setting_names() const {
  std::vector<std::string> names;
  for (const PeerSetting& setting : settings) names.push_back(setting.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Peer* find_peer(const std::string& name) {
  const auto it = std::find_if(peers().begin(), peers().end(),
                               [&](const Peer& peer) { return peer.name == name; });
  return it == peers().end() ? nullptr : &*it;
}

std::string peer_names() {
  std::vector<std::string> names;
  for (const Peer& peer : peers()) names.push_back(peer.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::string> peer_program(const std::string& name) {
  const Peer* peer = find_peer(name);
  if (!peer) return invalid(fmt::format("peer '{}': expected one of {}", name, peer_names()));
  const std::string path = std::filesystem::path(own_program()).parent_path() / (name + "_perf");
  if (access(path.c_str(), X_OK) == 0) return path;
  return Status(SENNIT_NOT_FOUND, fmt::format("{} is not installed, as {} is not there; {}",
                                              peer->shown, path, peer->install));
}

std::string launcher_of(const std::string& program) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::canonical(program, error);
  const std::string beside = resolved.parent_path() / "mpirun";
  return !error && access(beside.c_str(), X_OK) == 0 ? beside : "mpirun";
}

std::string peer_version(const Peer& peer) {
  const Result<std::string> program = peer_program(peer.name);
  if (!program) return "";
  return first_line_of(fmt::format(fmt::runtime(peer.version), launcher_of(*program)));
}

}  // namespace sennit::emulate
