// launch.cpp: local processes without a launcher: this command again, once per rank, with
// torchrun's variables, a free port on the loopback and a fresh secret.
//
// What the ranks write to stderr comes through a pipe, so that an error they all tell is printed
// once. The children die with their parent. When one fails the others get kGrace to say why
// they cannot go on, then SIGTERM, then SIGKILL. The exit status is that of the first that failed;
// a signal counts as 1. SIGINT and SIGTERM of this process are the children's: they have
// kGraceAfterSignal, or, where they stop by themselves, as long as they need.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/core.h>

#include "api/start/launch.hpp"
#include "base/net/reserved_port.hpp"
#include "base/process/sodium_ready.hpp"
#include "command/bench/bench.hpp"
#include "command/bench/merge.hpp"
#include "transports/shm/segment.hpp"

namespace sennit::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(10);
constexpr auto kGraceAfterSignal = std::chrono::seconds(2);
constexpr auto kTermToKill = std::chrono::seconds(1);
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
constexpr size_t kReadBytes = 16384;  // of the ranks' errors at a time

volatile sig_atomic_t g_signal = 0, g_signals = 0;  // the last, and how many
void remember_signal(int signal) {
  g_signal = signal;
  g_signals = g_signals + 1;
}

std::string fresh_secret() {
  if (!sodium_ready()) return {};
  std::array<unsigned char, 32> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  std::array<char, 65> text;
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  return std::string("key:") + text.data();
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// In the child: never returns.
[[noreturn]] void become_rank(const char* command, int rank, int size, const sigset_t& mask,
                              pid_t parent, int errors, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(size));
  set("LOCAL_WORLD_SIZE", std::to_string(size));
  execv("/proc/self/exe", argv);
  fmt::print(stderr, "{}: cannot start rank {}: {}\n", command, rank, std::strerror(errno));
  _exit(3);
}

class Children {
 public:
  Children(const char* command, bool stop_by_themselves)
      : command_(command), stop_by_themselves_(stop_by_themselves) {}

  int run(int processes, char** argv) {
    // Signals wait until the handlers stand; the children start with the old mask and default
    // handlers.
    sigset_t old_mask;
    sigprocmask(SIG_SETMASK, nullptr, &old_mask);
    struct sigaction action {};
    action.sa_handler = remember_signal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    int errors[2] = {-1, -1};  // without a pipe the ranks write to stderr themselves
    if (pipe2(errors, O_CLOEXEC) == 0) fcntl(errors[0], F_SETFL, O_NONBLOCK);
    errors_ = errors[0];
    const pid_t parent = getpid();
    for (int rank = 0; rank < processes; rank++) {
      const pid_t pid = fork();
      if (pid == 0) become_rank(command_, rank, processes, old_mask, parent, errors[1], argv);
      if (pid < 0) {
        fmt::print(stderr, "{}: cannot start rank {} of {}: {}; raise the limit on processes\n",
                   command_, rank, processes, std::strerror(errno));
        status_ = 3;
        deadline_ = Clock::now();
        break;
      }
      pids_.push_back(pid);
    }
    if (errors[1] >= 0) close(errors[1]);
    while (alive() > 0) wait_a_little();
    pass_errors();
    print(merger_.end());
    if (errors_ >= 0) close(errors_);
    // of ranks that were killed while they start
    if (signalled_ || terminated_) shm::remove_stale_segments(0);
    return status_;
  }

 private:
  size_t alive() const {
    size_t n = 0;
    for (const pid_t pid : pids_) n += pid > 0;
    return n;
  }

  static void print(const std::string& text) {
    if (!text.empty()) std::fwrite(text.data(), 1, text.size(), stderr);
  }

  void pass_errors() {
    char buffer[kReadBytes];
    for (ssize_t n; errors_ >= 0 && (n = read(errors_, buffer, sizeof buffer)) > 0;)
      print(merger_.feed({buffer, static_cast<size_t>(n)}, Clock::now()));
    print(merger_.due(Clock::now()));
  }

  void wait_a_little() {
    bool reaped = false;
    pass_errors();
    for (size_t rank = 0; rank < pids_.size(); rank++) {
      int status = 0;
      if (pids_[rank] <= 0 || waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      reaped = true;
      note_end(rank, status);
    }
    if (stop_by_themselves_) {  // every signal is the ranks', and they know what to do
      if (g_signals != passed_on_) {
        passed_on_ = g_signals;
        signalled_ = true;
        kill_all(g_signal);
      }
    } else if (g_signal != 0 && !signalled_) {
      signalled_ = true;
      if (status_ == 0) status_ = 1;
      kill_all(g_signal);
      deadline_ = Clock::now() + kGraceAfterSignal;
    }
    if (deadline_ != Clock::time_point() && Clock::now() > deadline_) {
      kill_all(terminated_ ? SIGKILL : SIGTERM);
      terminated_ = true;
      deadline_ = Clock::now() + kTermToKill;
    }
    if (!reaped) std::this_thread::sleep_for(kBetweenLooks);
  }

  void note_end(size_t rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    // Of a signal that a terminal sends to all, a rank may end before this has looked at its own.
    const bool signalled = g_signal != 0;
    if (WIFSIGNALED(status) && !terminated_ && !signalled)
      fmt::print(stderr, "{}: rank {} was killed by signal {} ({})\n", command_, rank,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    const bool by_our_signal = stop_by_themselves_ && signalled && WIFSIGNALED(status);
    if (status_ == 0)
      status_ = WIFEXITED(status) ? WEXITSTATUS(status)
                : by_our_signal   ? 128 + WTERMSIG(status)
                                  : 1;
    if (deadline_ == Clock::time_point()) deadline_ = Clock::now() + kGrace;
  }

  void kill_all(int signal) {
    for (const pid_t pid : pids_)
      if (pid > 0) kill(pid, signal);
  }

  const char* command_;
  bool stop_by_themselves_;
  int passed_on_ = 0;        // signals
  std::vector<pid_t> pids_;  // by rank; 0: ended
  int errors_ = -1;          // the pipe's reading end
  ErrorMerger merger_;
  int status_ = 0;
  bool terminated_ = false, signalled_ = false;
  Clock::time_point deadline_;  // after which the rest is ended; none yet: the epoch
};

}  // namespace

int run_local_processes(const char* command, int processes, char** argv, bool stop_by_themselves) {
  const std::string secret = fresh_secret();  // first: it readies the random numbers
  const ReservedPort port;
  if (port.number() == 0 || secret.empty()) {
    fmt::print(stderr, "{}: no free port on the loopback, or no random numbers: {}\n", command,
               std::strerror(errno));
    return 3;
  }
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port.number()));
  set("SENNIT_SECRET", secret);
  std::fflush(nullptr);
  return Children(command, stop_by_themselves).run(processes, argv);
}

int run_as_launched(const char* command, int ranks, char** argv,
                    const std::function<int(const BootstrapOptions&)>& process) {
  const auto fail = [&](const Status& status) {
    fmt::print(stderr, "{}: {}\n", command, status.text());
    return exit_status(status);
  };
  if (launcher_seen()) {
    const Result<Launch> launch = launch_from_environment();
    if (!launch) return fail(launch.status());
    if (ranks > 0 && ranks != launch->bootstrap.size)
      return fail(
          invalid(fmt::format("--ranks {}, but {} started {}: leave --ranks out under a launcher",
                              ranks, launch->launcher, launch->bootstrap.size)));
    return process(launch->bootstrap);
  }
  if (ranks > 1) return run_local_processes(command, ranks, argv);
  const Result<std::vector<std::byte>> id = make_unique_id();
  if (!id) return fail(id.status());
  const Result<BootstrapOptions> alone = options_from_unique_id(*id, 0, 1);
  if (!alone) return fail(alone.status());
  return process(*alone);
}

}  // namespace sennit::bench
