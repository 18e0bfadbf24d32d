// Namespaces: entering those of another process, starting processes below a keeper's process-id
// namespace, and gaining the privilege to do it. Single-threaded callers only (setns of a user
// namespace asks for that).
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "command/emulate/emulate.hpp"

namespace sennit::emulate {
namespace {

constexpr size_t kReadBytes = 4096;  // of a program's errors at a time

Status write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!written) return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(error))};
  return {};
}

// What to say of a namespace that the kernel keeps from us.
Status refused(const std::string& what, int error) {
  if (error == ENOENT) return {SENNIT_NOT_FOUND, fmt::format("{}: {}", what, std::strerror(error))};
  const bool rights = error == EPERM || error == EACCES;
  return {SENNIT_UNSUPPORTED,
          fmt::format("{}: {}{}", what, std::strerror(error),
                      rights ? ": this takes the rights of who brought the tree up" : "")};
}

// The package that has a program, for people who lack it.
const char* package_of(const std::string& program) {
  return program == "nft" ? "nftables" : "iproute2";
}

// Whether this process may make the namespaces it needs; tried in a child, so that nothing changes
// here.
bool may_make_namespaces() {
  const pid_t child = fork();
  if (child == 0)
    _exit(unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) == 0 ? 0 : 1);
  int status = 1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child > 0 && status == 0;
}

}  // namespace

Status gain_privilege() {
  if (may_make_namespaces()) return {};
  const uid_t user = geteuid();
  const gid_t group = getegid();
  const auto cannot = [](const std::string& reason) {
    return Status(
        SENNIT_UNSUPPORTED,
        fmt::format("cannot emulate a fabric here: {}. Run it as root, or allow user namespaces "
                    "(sysctl user.max_user_namespaces, or "
                    "kernel.apparmor_restrict_unprivileged_userns=0)",
                    reason));
  };
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return cannot(
        fmt::format("{}no right to make network namespaces, and a user namespace is refused ({})",
                    user == 0 ? "" : "not root, ",
                    errno == ENOSPC ? "the limit user.max_user_namespaces" : std::strerror(errno)));
  prctl(PR_SET_DUMPABLE, 1);  // else nobody may open our children's /proc/PID/ns
  for (const auto& [file, text] :
       {std::pair<std::string, std::string>{"/proc/self/setgroups", "deny"},
        {"/proc/self/uid_map", fmt::format("0 {} 1", user)},
        {"/proc/self/gid_map", fmt::format("0 {} 1", group)}})
    if (const Status written = write_file(file, text); !written.ok()) return cannot(written.text());
  if (!may_make_namespaces())
    return cannot("a user namespace comes without rights over its network");
  return {};
}

Status enter_namespace(pid_t process, const char* kind) {
  const std::string path = fmt::format("/proc/{}/ns/{}", process, kind);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refused(path, errno);
  const int failed = setns(fd, 0);
  const int error = errno;
  close(fd);
  return failed ? refused("entering " + path, error) : Status();
}

Result<pid_t> fork_below(pid_t keeper) {
  // A helper enters the keeper's process-id namespace, which concerns its children only, forks and
  // ends. (We cannot enter it ourselves: the way back is closed to a user namespace's root.) The
  // child, now ours because we adopt orphans, learns of that, and then asks to die with us; asked
  // before, it would die with the helper.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  const pid_t helper = fork();
  if (helper == 0) {
    const Status entered = enter_namespace(keeper, "pid");
    const pid_t child = entered.ok() ? fork() : -1;
    if (child != 0) {
      if (child < 0) {
        const std::string text =
            entered.ok() ? fmt::format("fork: {}", std::strerror(errno)) : entered.text();
        send(sockets[1], text.data(), text.size(), MSG_NOSIGNAL);
      }
      _exit(0);
    }
    close(sockets[0]);
    char byte = 0;
    // fails when our maker has died meanwhile
    const bool adopted =
        send(sockets[1], &byte, 1, MSG_NOSIGNAL) == 1 && recv(sockets[1], &byte, 1, 0) == 1 &&
        prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && send(sockets[1], &byte, 1, MSG_NOSIGNAL) == 1 &&
        recv(sockets[1], &byte, 1, 0) == 1;
    close(sockets[1]);
    if (!adopted) _exit(1);
    return pid_t{0};
  }
  close(sockets[1]);
  if (helper > 0) waitpid(helper, nullptr, 0);
  char said[kMostSaidBytes];
  pid_t child = 0, same = 0;
  const ssize_t n = helper > 0 ? receive(sockets[0], said, sizeof said, 0, &child) : -1;
  const bool told = n == 1 && send(sockets[0], said, 1, MSG_NOSIGNAL) == 1 &&
                    receive(sockets[0], said, 1, 0, &same) == 1 &&
                    send(sockets[0], said, 1, MSG_NOSIGNAL) == 1;
  close(sockets[0]);
  if (told) return child;
  return Status(SENNIT_UNSUPPORTED,
                fmt::format("starting a process in the emulated fabric: {}",
                            n > 1 ? std::string_view(said, static_cast<size_t>(n)) : "it ended"));
}

Status socket_pair(int sockets[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    return {SENNIT_OUT_OF_RESOURCES, fmt::format("socketpair: {}", std::strerror(errno))};
  const int on = 1;
  setsockopt(sockets[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return {};
}

ssize_t receive(int socket, void* message, size_t bytes, int flags, pid_t* sender) {
  iovec vector{message, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t n = 0;
  while ((n = recvmsg(socket, &header, flags)) < 0 && errno == EINTR) continue;
  const cmsghdr* from = n > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
  if (from && from->cmsg_type == SCM_CREDENTIALS) {
    ucred who;
    std::memcpy(&who, CMSG_DATA(from), sizeof who);
    *sender = who.pid;
  }
  return n;
}

Status isolate(const std::string& hosts_file) {
  const auto failed = [](const char* what, const char* remedy = "") {
    return Status(SENNIT_UNSUPPORTED, fmt::format("{}: {}{}", what, std::strerror(errno), remedy));
  };
  if (unshare(CLONE_NEWIPC | CLONE_NEWNS) != 0) return failed("a new IPC and mount namespace");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("making mounts private",
                  errno == EINVAL ? ": the root of a chroot must be a mount point itself "
                                    "(mount --bind FOLDER FOLDER, then chroot)"
                                  : "");
  if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
    return failed("mounting a fresh /dev/shm");
  if (!hosts_file.empty() &&
      mount(hosts_file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0)
    return failed("mounting /etc/hosts",
                  errno == ENOENT ? ": there must be one (touch /etc/hosts)" : "");
  return {};
}

Status run_in(pid_t process, const std::vector<std::string>& command, const std::string& input) {
  int in[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0)
    return {SENNIT_OUT_OF_RESOURCES, fmt::format("pipe: {}", std::strerror(errno))};
  if (pipe2(err, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return {SENNIT_OUT_OF_RESOURCES, fmt::format("pipe: {}", std::strerror(errno))};
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(err[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (const Status entered = enter_namespace(process, "net"); !entered.ok()) {
      dprintf(STDERR_FILENO, "%s", entered.text().c_str());
      _exit(1);
    }
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    if (error == ENOENT)
      dprintf(STDERR_FILENO, "there is no such program in PATH; install the package %s",
              package_of(command[0]));
    else
      dprintf(STDERR_FILENO, "%s", std::strerror(error));
    _exit(127);
  }
  close(in[0]);
  close(err[1]);
  size_t written = 0;
  while (child > 0 && written < input.size()) {  // SIGPIPE is ignored by our caller
    const ssize_t n = write(in[1], input.data() + written, input.size() - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  close(in[1]);
  std::string said;
  char buffer[kReadBytes];
  for (ssize_t n; (n = read(err[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(n));
  close(err[0]);
  int status = 1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (child < 0 || status != 0) {
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", fmt::join(command, " "), said)};
  }
  return {};
}

}  // namespace sennit::emulate
