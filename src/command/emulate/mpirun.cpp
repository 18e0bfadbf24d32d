// Open MPI on an emulated fabric: mpirun runs on the host of rank 0 and reaches the others through
// an agent in the place of ssh, which enters the host's namespaces. Ranks are laid out one line of
// the hostfile after the other.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "command/emulate/run.hpp"

namespace sennit::emulate {
namespace {

bool enter(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, 0) == 0;
  if (!entered) fmt::print(stderr, "sennit: emulate: {}: {}\n", path, std::strerror(errno));
  if (fd >= 0) close(fd);
  return entered;
}

}  // namespace

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

Result<std::string> peer_program(const std::string& peer) {
  if (peer != "openmpi" && peer != "gloo")
    return invalid(fmt::format("peer '{}': expected openmpi or gloo", peer));
  const std::string path = std::filesystem::path(own_program()).parent_path() / (peer + "_perf");
  if (access(path.c_str(), X_OK) == 0) return path;
  return Status(SENNIT_NOT_FOUND,
                fmt::format("{} is not there: build it where {} is installed", path,
                            peer == "gloo" ? "Gloo (libgloo-dev)"
                                           : "Open MPI (libopenmpi-dev, openmpi-bin)"));
}

Result<std::vector<std::string>> mpirun_command(const Instance& instance,
                                                const ScratchFolder& scratch,
                                                const std::vector<int>& hosts,
                                                const RunOptions& options,
                                                const std::vector<std::string>& command) {
  std::string hostfile;
  for (const int host : hosts)
    hostfile += instance.tree.hosts[static_cast<size_t>(host)].name + "\n";
  const Result<std::string> hostfile_path = scratch.write("hostfile", hostfile);
  if (!hostfile_path) return hostfile_path.status();
  const Result<std::string> agent_path =
      scratch.write("agent",
                    fmt::format("#!/bin/sh\nexec '{}' emulate agent -- '{}' \"$@\"\n",
                                own_program(), scratch.path()),
                    true);
  if (!agent_path) return agent_path.status();
  std::vector<std::string> words = {
      "mpirun",     "--allow-run-as-root", "-np",       std::to_string(hosts.size()),
      "--hostfile", *hostfile_path,        "--bind-to", "none"};
  const std::pair<const char*, std::string> parameters[] = {
      {"rmaps", "seq"},
      {"plm_rsh_agent", *agent_path},
      {"plm_rsh_no_tree_spawn", "1"},
      {"orte_tmpdir_base", scratch.path()},
      {"oob_tcp_if_include", "eth0"},
      {"btl_tcp_if_include", "eth0"},
      {"mpi_yield_when_idle", "1"},  // hosts share this machine's cores, which Open MPI cannot see
      {"pml", "ob1"},
      {"btl", options.ranks_per_host > 1 ? "tcp,vader,self" : "tcp,self"},
  };
  for (const auto& [name, value] : parameters) words.insert(words.end(), {"--mca", name, value});
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int agent(const std::vector<std::string>& words) {
  if (words.size() < 3) return 2;
  const std::string host = words[0] + "/" + words[1];
  if (!enter(host + ".net") || !enter(host + ".uts")) return 1;
  if (const Status status = isolate(""); !status.ok()) {
    fmt::print(stderr, "sennit: emulate: host {}: {}\n", words[1], status.text());
    return 1;
  }
  const std::string line = fmt::format("{}", fmt::join(words.begin() + 2, words.end(), " "));
  execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  return 1;
}

}  // namespace sennit::emulate
