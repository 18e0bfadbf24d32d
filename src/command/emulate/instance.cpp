// An instance of an emulated tree: its keeper and its holders, from when they are made until they
// are killed.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/core.h>

#include "command/emulate/emulate.hpp"
#include "command/emulate/state.hpp"

namespace sennit::emulate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReady = "ready";
constexpr int kFirstSubnet = 77, kLastSubnet = 250;
// For a keeper that was killed: ten seconds in all.
constexpr int kLooksAtKeeper = 2000;
constexpr useconds_t kBetweenLooksUs = 5000;

// Closes everything but `keep` and gives the standard streams to /dev/null.
void let_go_of_files(int keep) {
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= STDERR_FILENO; fd++) dup2(null, fd);
  close(null);
  std::vector<int> others;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc/self/fd", failed);
       !failed && entry != fs::directory_iterator(); entry.increment(failed))
    others.push_back(std::atoi(entry->path().filename().c_str()));
  if (failed) _exit(1);  // with the lock open, it would hold off all others while it lives
  for (const int fd : others)
    if (fd > STDERR_FILENO && fd != keep) close(fd);
}

// Dies with its maker, until a first byte says otherwise; then never returns.
[[noreturn]] void keep(int maker) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  prctl(PR_SET_NAME, "sennit-keeper");
  let_go_of_files(maker);
  if (chdir("/") != 0) _exit(1);
  signal(SIGCHLD, SIG_IGN);  // orphans of the instance end up here and are reaped by the kernel
  char byte = 0;
  // end of file: the maker died, perhaps before it could be asked for
  if (read(maker, &byte, 1) != 1) _exit(1);
  prctl(PR_SET_PDEATHSIG, 0);
  if (write(maker, &byte, 1) != 1) _exit(1);
  close(maker);
  while (true) pause();
}

Status start_keeper(Instance* instance) {
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNET | SIGCHLD,
                                                nullptr, nullptr, nullptr, nullptr));
  if (child == 0) keep(sockets[1]);
  const int error = errno;
  close(sockets[1]);
  if (child < 0) {
    close(sockets[0]);
    return {SENNIT_UNSUPPORTED,
            fmt::format("starting the keeper of the emulated fabric: {}", std::strerror(error))};
  }
  instance->keeper_socket = sockets[0];
  instance->keeper = child;
  instance->keeper_start = start_time(child);
  return {};
}

Status start_holder(pid_t keeper, Host* host) {
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  const Result<pid_t> child = fork_below(keeper);
  if (child && *child == 0) {
    if (fork() != 0) _exit(0);  // the holder becomes the keeper's child, who reaps it
    setsid();
    prctl(PR_SET_NAME, fmt::format("sennit-{}", host->name).c_str());
    let_go_of_files(sockets[1]);
    Status status;
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 ||
        sethostname(host->name.data(), host->name.size()) != 0)
      status = {SENNIT_UNSUPPORTED, fmt::format("new namespaces: {}", std::strerror(errno))};
    if (status.ok()) status = isolate("");
    const std::string text = status.ok() ? kReady : status.text();
    if (send(sockets[1], text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(1);
    close(sockets[1]);
    while (status.ok()) pause();
    _exit(1);
  }
  close(sockets[1]);
  char said[kMostSaidBytes];
  const ssize_t n = child ? receive(sockets[0], said, sizeof said, 0, &host->holder) : 0;
  close(sockets[0]);
  if (!child) return child.status();
  waitpid(*child, nullptr, 0);
  const std::string_view text(said, static_cast<size_t>(std::max<ssize_t>(0, n)));
  if (text != kReady) return {SENNIT_UNSUPPORTED, fmt::format("host {}: {}", host->name, text)};
  return {};
}

}  // namespace

Result<Instance> create(const std::string& name, const Tree& tree) {
  if (name.empty() ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
          name.npos)
    return invalid(fmt::format("--name {}: expected letters, digits, - and _", name));
  signal(SIGPIPE, SIG_IGN);  // of `ip` and `tc` that end early
  std::optional<StateLock> lock(std::in_place);
  SENNIT_RETURN_IF_ERROR(lock->take());
  for (const std::string& known : known_names()) remove_dead(known);
  Instance instance{.name = name,
                    .keeper = 0,
                    .keeper_start = 0,
                    .keeper_socket = -1,
                    .subnet = kFirstSubnet,
                    .tree = tree};
  const Result<std::vector<Instance>> others = list();
  if (!others) return others.status();
  for (const Instance& other : *others)
    if (other.name == name)
      return invalid(fmt::format(
          "an emulated fabric '{}' is up already: `sennit emulate down --name {}` ends it", name,
          name));
  const auto taken = [&](int subnet) {
    return std::any_of(others->begin(), others->end(),
                       [&](const Instance& other) { return other.subnet == subnet; });
  };
  while (instance.subnet <= kLastSubnet && taken(instance.subnet)) instance.subnet++;
  if (instance.subnet > kLastSubnet)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  "no address range left: `sennit emulate down --all` ends all instances");
  SENNIT_RETURN_IF_ERROR(start_keeper(&instance));
  for (size_t h = 0; h < instance.tree.hosts.size(); h++)
    for (int rail = 0; rail < tree.rails; rail++)
      instance.tree.hosts[h].nics[static_cast<size_t>(rail)].address =
          address_of(instance.subnet, h, rail);
  Status status = write_state(instance);  // claims the name and the addresses
  lock.reset();
  for (Host& host : instance.tree.hosts)
    if (status.ok()) status = start_holder(instance.keeper, &host);
  if (status.ok()) status = wire(instance);
  if (status.ok()) status = write_state(instance);
  if (!status.ok()) {
    destroy(instance);
    return status;
  }
  return instance;
}

Status detach(Instance* instance) {
  char byte = 0;
  const bool done =
      write(instance->keeper_socket, &byte, 1) == 1 && read(instance->keeper_socket, &byte, 1) == 1;
  close(std::exchange(instance->keeper_socket, -1));
  if (!done) return {SENNIT_INTERNAL, fmt::format("the keeper of '{}' is gone", instance->name)};
  return {};
}

Status check_up(const Instance& instance) {
  for (const Host& host : instance.tree.hosts)
    if (host.holder == 0)
      return {
          SENNIT_NOT_FOUND,
          fmt::format("'{}' is not up yet; `sennit emulate up` says when it is", instance.name)};
  return {};
}

Status join_owner(const Instance& instance) {
  struct stat ours {
  }, theirs{};
  if (stat("/proc/self/ns/user", &ours) != 0 ||
      stat(fmt::format("/proc/{}/ns/user", instance.keeper).c_str(), &theirs) != 0)
    return {SENNIT_UNSUPPORTED,
            fmt::format("the keeper of '{}': {}; a tree is for who brought it up", instance.name,
                        std::strerror(errno))};
  if (ours.st_ino == theirs.st_ino) return {};
  SENNIT_RETURN_IF_ERROR(enter_namespace(instance.keeper, "user"));
  prctl(PR_SET_DUMPABLE, 1);  // else nobody may open our children's /proc/PID/ns
  return {};
}

void destroy(const Instance& instance) {
  if (alive(instance)) {
    kill(instance.keeper, SIGKILL);
    waitpid(instance.keeper, nullptr, 0);  // where it is our child
    for (int i = 0; i < kLooksAtKeeper && alive(instance); i++) usleep(kBetweenLooksUs);
  }
  // Whoever holds it may be stopped. Without it the file stays, until somebody brings up a tree or
  // asks which are up.
  StateLock lock;
  if (lock.take_soon()) remove_dead(instance.name);
}

}  // namespace sennit::emulate
