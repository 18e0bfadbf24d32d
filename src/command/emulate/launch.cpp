// Launching: one process per rank, on the hosts of an emulated tree, and nothing left of them
// afterwards.
//
// For each host a *supervisor* joins the host's network and UTS namespace and makes a fresh IPC and
// mount namespace; below it an *init* of a new process-id namespace starts the ranks and reports
// their ends over one socket. Init dies with its supervisor, the supervisor with us or with the
// keeper, and the kernel ends everything below init, daemons included. Ranks say who they are
// themselves: the kernel translates the sender's process id into ours.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>

#include <fmt/core.h>

#include "command/emulate/emulate.hpp"
#include "command/write.hpp"

namespace sennit::emulate {
namespace {

constexpr int kGraceMs = 3000;        // between SIGTERM and SIGKILL
constexpr size_t kReadBytes = 16384;  // of a rank's output at a time

// Of an error that a host's process reports; the rest is cut.
constexpr size_t kReportTextBytes = 240;

struct Report {
  enum Event : int32_t { started, ended, failed } kind = started;
  int32_t rank = 0;
  int32_t status = 0;
  char text[kReportTextBytes] = {};
};

struct RankState {
  pid_t process = 0;    // as seen from here; 0: not started
  int status = -1;      // exit status; -1: has not ended
  int output = -1;      // pipe with --tag or for capturing
  std::string partial;  // of a line
};

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void report(int socket, Report::Event kind, int rank, int status, const std::string& text = "") {
  Report message{.kind = kind, .rank = rank, .status = status};
  std::strncpy(message.text, text.c_str(), sizeof message.text - 1);
  while (send(socket, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) continue;
}

// Binds the namespaces of all hosts to files, which only this mount namespace sees so.
Status show_namespaces(const Tree& tree, const std::string& folder) {
  for (const Host& host : tree.hosts)
    for (const char* kind : {"net", "uts"}) {
      const std::string from = fmt::format("/proc/{}/ns/{}", host.holder, kind);
      const std::string to = fmt::format("{}/{}.{}", folder, host.name, kind);
      const int fd = open(to.c_str(), O_CREAT | O_CLOEXEC, 0600);
      if (fd >= 0) close(fd);
      if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0)
        return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", to, std::strerror(errno))};
    }
  return {};
}

class Launch {
 public:
  Launch(const Instance& instance, const std::vector<Rank>& ranks, const LaunchOptions& options)
      : instance_(instance), ranks_(ranks), options_(options), states_(ranks.size()) {}
  ~Launch();
  Result<int> run();

 private:
  Status start_hosts();
  [[noreturn]] void supervise(int host, const std::vector<int>& members);
  [[noreturn]] void init(const std::vector<int>& members, int supervisor_alive);
  [[noreturn]] void start_rank(int rank);
  void take_reports();
  void take_signal();
  void take_output(size_t rank, bool to_end);
  void supervisors_ended();
  void signal_ranks(int signal);
  void end_everything();
  void write_pids();
  bool finished() const {
    return std::all_of(states_.begin(), states_.end(),
                       [](const RankState& s) { return s.status >= 0; });
  }
  int64_t now_ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 begin_)
        .count();
  }

  const Instance& instance_;
  const std::vector<Rank>& ranks_;
  const LaunchOptions& options_;
  std::vector<RankState> states_;
  std::vector<int> output_ends_;                  // write ends, by rank; -1: none
  std::map<pid_t, std::vector<int>> supervised_;  // supervisor -> its ranks
  int reports_ = -1, reports_end_ = -1;
  int signals_ = -1;
  sigset_t old_mask_{};
  int interrupted_ = 0;      // the signal
  int64_t kill_at_ms_ = -1;  // when patience ends
  Status failure_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Launch::~Launch() {
  end_everything();
  for (const RankState& state : states_)
    if (state.output >= 0) close(state.output);
  if (reports_ >= 0) close(reports_);
  if (signals_ >= 0) {
    close(signals_);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
}

void Launch::start_rank(int rank) {
  const Rank& what = ranks_[static_cast<size_t>(rank)];
  setsid();  // ctrl-C reaches us alone, and a rank can be signalled with its children
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  const int output = output_ends_[static_cast<size_t>(rank)];
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    if (options_.tag) dup2(output, STDERR_FILENO);
  } else if (rank != 0) {
    dup2(null, STDOUT_FILENO);
  }
  if (!options_.errors_file.empty()) {
    const int errors =
        open(options_.errors_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (errors >= 0) dup2(errors, STDERR_FILENO);
  }
  for (const std::string& variable : what.environment) {
    const size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::vector<char*> arguments;
  for (const std::string& word : what.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  report(reports_end_, Report::started, rank, 0);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(arguments[0], arguments.data());
  if (rank == 0) dprintf(STDERR_FILENO, "sennit: %s: %s\n", arguments[0], std::strerror(errno));
  _exit(errno == ENOENT ? 127 : 126);
}

void Launch::init(const std::vector<int>& members, int supervisor_alive) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  char none = 0;
  if (read(supervisor_alive, &none, 1) == 0) _exit(1);  // the supervisor died before that
  prctl(PR_SET_NAME, "sennit-init");
  // Where /proc may not be mounted (in some containers) the old one stays; /proc/self is right
  // there too.
  if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) errno = 0;
  std::map<pid_t, int> rank_of;
  for (const int rank : members) {
    const pid_t child = fork();
    if (child == 0) start_rank(rank);
    if (child < 0)
      report(reports_end_, Report::failed, rank, 0,
             fmt::format("starting rank {}: {}", rank, std::strerror(errno)));
    else
      rank_of[child] = rank;
  }
  for (const int end : output_ends_)
    if (end >= 0) close(end);
  while (!rank_of.empty()) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (child < 0 && errno != EINTR) break;
    if (const auto it = rank_of.find(child); it != rank_of.end()) {
      report(reports_end_, Report::ended, it->second, exit_status(status));
      rank_of.erase(it);
    }
  }
  _exit(0);  // and with init whatever the ranks left running
}

void Launch::supervise(int host, const std::vector<int>& members) {
  prctl(PR_SET_NAME, "sennit-host");
  setsid();
  close(reports_);
  const pid_t holder = instance_.tree.hosts[static_cast<size_t>(host)].holder;
  Status status = enter_namespace(holder, "net");
  if (status.ok()) status = enter_namespace(holder, "uts");
  if (status.ok()) status = isolate(options_.hosts_file);
  if (status.ok() && !options_.namespaces_folder.empty())
    status = show_namespaces(instance_.tree, options_.namespaces_folder);
  int alive[2] = {-1, -1};
  if (status.ok() && pipe2(alive, O_CLOEXEC | O_NONBLOCK) != 0)
    status = {SENNIT_OUT_OF_RESOURCES, fmt::format("pipe: {}", std::strerror(errno))};
  const auto child = status.ok() ? static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD,
                                                              nullptr, nullptr, nullptr, nullptr))
                                 : -1;
  if (child == 0) {
    close(alive[1]);
    init(members, alive[0]);
  }
  if (status.ok() && child < 0)
    status = {SENNIT_UNSUPPORTED,
              fmt::format("a new process-id namespace: {}", std::strerror(errno))};
  if (!status.ok()) {
    report(reports_end_, Report::failed, members[0], 0, status.text());
    _exit(1);
  }
  close(reports_end_);
  for (const int end : output_ends_)
    if (end >= 0) close(end);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;
  _exit(0);
}

Status Launch::start_hosts() {
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  reports_ = sockets[0];
  reports_end_ = sockets[1];
  std::map<int, std::vector<int>> ranks_of_host;
  output_ends_.assign(ranks_.size(), -1);
  for (size_t r = 0; r < ranks_.size(); r++) {
    ranks_of_host[ranks_[r].host].push_back(static_cast<int>(r));
    if (!options_.tag && !(options_.capture && r == 0)) continue;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return {SENNIT_OUT_OF_RESOURCES,
              fmt::format("pipe: {}; raise the limit with ulimit -n", std::strerror(errno))};
    states_[r].output = ends[0];
    output_ends_[r] = ends[1];
  }
  for (const auto& [host, members] : ranks_of_host) {
    const Result<pid_t> child = fork_below(instance_.keeper);
    if (!child) return child.status();
    if (*child == 0) supervise(host, members);
    supervised_[*child] = members;
  }
  close(reports_end_);
  for (const int end : output_ends_)
    if (end >= 0) close(end);
  return {};
}

void Launch::take_reports() {
  while (true) {
    Report message;
    pid_t sender = 0;
    if (receive(reports_, &message, sizeof message, MSG_DONTWAIT, &sender) !=
        ssize_t{sizeof message})
      return;
    RankState& state = states_[static_cast<size_t>(message.rank)];
    if (message.kind == Report::failed) {
      failure_ = {SENNIT_UNSUPPORTED, message.text};
    } else if (message.kind == Report::ended) {
      state.status = message.status;
      state.process = 0;
    } else {
      state.process = sender;
      const bool all = std::all_of(states_.begin(), states_.end(), [](const RankState& s) {
        return s.process != 0 || s.status >= 0;
      });
      if (all && !options_.pids_file.empty()) write_pids();
    }
  }
}

void Launch::write_pids() {
  std::string text;
  for (size_t r = 0; r < ranks_.size(); r++)
    text +=
        fmt::format("{} {} {}\n", r, instance_.tree.hosts[static_cast<size_t>(ranks_[r].host)].name,
                    states_[r].process);
  if (const Status written = write_text(options_.pids_file, text); !written.ok())
    failure_ = invalid("--pids: " + written.text());
}

void Launch::signal_ranks(int signal) {
  for (const RankState& state : states_)
    if (state.process > 0 && kill(-state.process, signal) != 0) kill(state.process, signal);
}

void Launch::take_signal() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      supervisors_ended();
      continue;
    }
    if (interrupted_) end_everything();  // asked twice
    interrupted_ = static_cast<int>(info.ssi_signo);
    signal_ranks(SIGTERM);
    signal_ranks(SIGCONT);
    kill_at_ms_ = now_ms() + kGraceMs;
  }
}

void Launch::supervisors_ended() {
  for (auto it = supervised_.begin(); it != supervised_.end();) {
    if (waitpid(it->first, nullptr, WNOHANG) == 0) {
      ++it;
      continue;
    }
    take_reports();
    for (const int rank : it->second)  // killed together with its host
      if (states_[static_cast<size_t>(rank)].status < 0)
        states_[static_cast<size_t>(rank)].status = 128 + SIGKILL;
    it = supervised_.erase(it);
  }
}

void Launch::end_everything() {
  for (const auto& [process, members] : supervised_) kill(process, SIGKILL);
  for (const auto& [process, members] : supervised_) waitpid(process, nullptr, 0);
  for (RankState& state : states_)
    if (state.status < 0) state.status = 128 + SIGKILL;
  supervised_.clear();
}

void Launch::take_output(size_t rank, bool to_end) {
  RankState& state = states_[rank];
  char buffer[kReadBytes];
  const ssize_t n = read(state.output, buffer, sizeof buffer);
  if (n > 0 && options_.capture && rank == 0)
    options_.capture->append(buffer, static_cast<size_t>(n));
  if (n > 0 && options_.tag) state.partial.append(buffer, static_cast<size_t>(n));
  if (n <= 0) {
    close(state.output);
    state.output = -1;
    if (!state.partial.empty()) state.partial += '\n';
  }
  const std::string& host = instance_.tree.hosts[static_cast<size_t>(ranks_[rank].host)].name;
  for (size_t end; (end = state.partial.find('\n')) != std::string::npos;
       state.partial.erase(0, end + 1))
    if (options_.tag)
      fmt::print("[{} {}] {}\n", rank, host, std::string_view(state.partial).substr(0, end));
  std::fflush(stdout);
  if (to_end && state.output >= 0) take_output(rank, true);
}

Result<int> Launch::run() {
  std::fflush(stdout);
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&wanted, signal);
  sigprocmask(SIG_BLOCK, &wanted, &old_mask_);
  signals_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  SENNIT_RETURN_IF_ERROR(start_hosts());
  if (options_.timeout_s > 0)
    kill_at_ms_ = now_ms() + static_cast<int64_t>(options_.timeout_s * 1000);
  bool timed_out = false;
  while (!finished() && failure_.ok()) {
    std::vector<pollfd> watched = {{signals_, POLLIN, 0}, {reports_, POLLIN, 0}};
    std::vector<size_t> speakers;
    for (size_t r = 0; r < states_.size(); r++)
      if (states_[r].output >= 0) {
        watched.push_back({states_[r].output, POLLIN, 0});
        speakers.push_back(r);
      }
    const int64_t left = kill_at_ms_ < 0 ? -1 : std::max<int64_t>(0, kill_at_ms_ - now_ms());
    if (poll(watched.data(), watched.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    if (watched[1].revents) take_reports();
    if (watched[0].revents) take_signal();
    for (size_t i = 0; i < speakers.size(); i++)
      if (watched[i + 2].revents) take_output(speakers[i], false);
    if (kill_at_ms_ < 0 || now_ms() < kill_at_ms_) continue;
    if (interrupted_ || timed_out) {
      end_everything();
    } else {
      timed_out = true;
      fmt::print(stderr, "sennit emulate: not done after {} s, ending it\n", options_.timeout_s);
      signal_ranks(SIGTERM);
      signal_ranks(SIGCONT);
      kill_at_ms_ = now_ms() + kGraceMs;
    }
  }
  end_everything();  // what the ranks left running holds their pipes open
  for (size_t r = 0; r < states_.size(); r++)
    if (states_[r].output >= 0) take_output(r, true);
  if (!failure_.ok()) return failure_;
  if (interrupted_) return 128 + interrupted_;
  if (timed_out) return 124;
  int worst = 0;
  for (const RankState& state : states_) worst = std::max(worst, state.status);
  return worst;
}

}  // namespace

Result<int> launch(const Instance& instance, const std::vector<Rank>& ranks,
                   const LaunchOptions& options) {
  return Launch(instance, ranks, options).run();
}

}  // namespace sennit::emulate
