// MPI libraries on an emulated fabric: their launcher runs on the host of rank 0 and reaches the
// others through an agent in the place of ssh, which enters the host's namespaces. Ranks are laid
// out one line of the hostfile after the other. The agent is a child of the launcher, so what is
// set for that in the environment is set for all ranks.
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
  if (!entered) fmt::print(stderr, "sennit emulate: {}: {}\n", path, std::strerror(errno));
  if (fd >= 0) close(fd);
  return entered;
}

std::vector<std::string> launcher_words(Launcher launcher, const std::string& agent,
                                        const std::string& hostfile, const std::string& folder,
                                        int ranks) {
  const std::string count = std::to_string(ranks);
  if (launcher == Launcher::hydra)
    return {"-launcher", "ssh", "-launcher-exec", agent, "-iface",
            "eth0",      "-f",  hostfile,         "-n",  count};
  const bool orte = launcher == Launcher::orte;
  std::vector<std::string> words = {"--allow-run-as-root", "-np", count, "--hostfile", hostfile,
                                    "--bind-to",           "none"};
  using Parameters = std::vector<std::pair<const char*, std::string>>;
  const Parameters parameters = orte ? Parameters{{"rmaps", "seq"},
                                                  {"plm_rsh_agent", agent},
                                                  {"plm_rsh_no_tree_spawn", "1"},
                                                  {"orte_tmpdir_base", folder},
                                                  {"oob_tcp_if_include", "eth0"}}
                                     : Parameters{{"plm_ssh_agent", agent},
                                                  {"plm_ssh_no_tree_spawn", "1"},
                                                  {"prte_tmpdir_base", folder},
                                                  {"prte_if_include", "eth0"}};
  if (!orte) words.insert(words.end(), {"--map-by", "seq"});
  for (const auto& [name, value] : parameters)
    words.insert(words.end(), {orte ? "--mca" : "--prtemca", name, value});
  return words;
}

}  // namespace

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

Result<std::vector<std::string>> mpirun_command(const Instance& instance,
                                                const ScratchFolder& scratch,
                                                const std::vector<int>& hosts, Launcher launcher,
                                                const std::string& program,
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
  std::vector<std::string> words = launcher_words(launcher, *agent_path, *hostfile_path,
                                                  scratch.path(), static_cast<int>(hosts.size()));
  words.insert(words.begin(), program);
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int agent(std::vector<std::string> words) {
  // Hydra puts options of ssh before the host.
  while (words.size() > 1 && words[1].starts_with("-")) words.erase(words.begin() + 1);
  if (words.size() < 3) return 2;
  const std::string host = words[0] + "/" + words[1];
  if (!enter(host + ".net") || !enter(host + ".uts")) return 1;
  if (const Status status = isolate(""); !status.ok()) {
    fmt::print(stderr, "sennit emulate: host {}: {}\n", words[1], status.text());
    return 1;
  }
  const std::string line = fmt::format("{}", fmt::join(words.begin() + 2, words.end(), " "));
  execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  return 1;
}

}  // namespace sennit::emulate
