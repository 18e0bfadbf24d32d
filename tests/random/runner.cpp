// runner.cpp: see tests/random/runner.hpp: the slots that programs run in, and who is killed when.
#include "tests/random/runner.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <thread>

#include <fmt/core.h>

#include "base/net/reserved_port.hpp"
#include "tests/random/leaks.hpp"
#include "tests/random/player.hpp"
#include "tests/support/usable_transports.hpp"

namespace random_programs {
namespace {

using Clock = std::chrono::steady_clock;
// for the other ranks to say what they see, once something is wrong
constexpr auto kGrace = std::chrono::seconds(3);
// a joined thread leaves /proc a moment later
constexpr auto kThreadsEnd = std::chrono::seconds(20);

bool uses_env(const Program& program) {
  return std::any_of(program.events.begin(), program.events.end(), [](const Event& event) {
    return event.action == Action::init && static_cast<How>(event.what) == How::env;
  });
}

void set_environment(const Program& program, int rank, int port) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  set("SENNIT_TRANSPORTS", program.transport);
  set("SENNIT_ARRIVAL_TIMEOUT",
      "40000");  // what never comes is noticed before the program's own time is over
#ifdef SENNIT_SANITIZED
  setenv("UCX_MEM_EVENTS", "n", 0);  // its hooks and the sanitizer's would each call the other
#endif
  for (const std::string& option : program.options)
    set(option.substr(0, option.find('=')).c_str(), option.substr(option.find('=') + 1));
  if (port == 0) return;
  set("RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(program.ranks()));
  set("LOCAL_RANK", std::to_string(rank));
  set("LOCAL_WORLD_SIZE", std::to_string(program.ranks()));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("SENNIT_SECRET", "a secret for random programs");
}

std::string tail(const std::string& text, size_t most) {
  return text.size() <= most ? text : "..." + text.substr(text.size() - most);
}

}  // namespace

struct Runner::Slot {
  Slot() {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    board = new (memory) Board;
    output = memfd_create("random program", MFD_CLOEXEC);
  }
  ~Slot() {
    munmap(board, sizeof(Board));
    close(output);
  }
  struct Process {
    pid_t pid;
    std::vector<int> ranks;
    bool ended = false, noted = false;
    int status = 0;
  };
  bool busy = false;
  Program program;
  Model model;
  Board* board;
  int output;  // what its processes write
  std::vector<Process> processes;
  std::unique_ptr<sennit::ReservedPort> port;
  Clock::time_point begun, wrong_since;
  bool wrong = false, hangs = false, given_up = false;
  std::string where;  // of its threads, when it was given up

  bool over() const {
    return std::all_of(processes.begin(), processes.end(),
                       [](const Process& p) { return p.ended; });
  }
  bool dies(const Process& process) const {
    return std::any_of(process.ranks.begin(), process.ranks.end(),
                       [&](int r) { return model.dies[static_cast<size_t>(r)] >= 0; });
  }
  std::string written() const {
    std::string text(static_cast<size_t>(lseek(output, 0, SEEK_END)), 0);
    const ssize_t bytes = pread(output, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
  }
  std::string positions() const;
};

// For each thread that is not through: the event that it is in.
std::string Runner::Slot::positions() const {
  std::string text;
  for (size_t rank = 0; rank < model.steps.size(); rank++)
    for (size_t thread = 0; thread < model.steps[rank].size(); thread++)
      for (const int e : model.steps[rank][thread]) {
        const int state = board->state[rank][e];
        if (state >= Board::kOver) continue;
        text += fmt::format("  rank {} thread {} {} event {}: {}\n", rank, thread,
                            state == Board::kUnderWay ? "is in" : "waits before", e,
                            to_text(program.events[static_cast<size_t>(e)]));
        break;
      }
  return text;
}

Runner::Runner(RunOptions options) : options_(options) {
  for (int i = 0; i < options_.at_once; i++) slots_.push_back(std::make_unique<Slot>());
}

Runner::~Runner() {
  for (const auto& slot : slots_) {
    if (!slot->busy) continue;
    for (const Slot::Process& process : slot->processes)
      if (!process.ended) {
        kill(process.pid, SIGKILL);
        waitpid(process.pid, nullptr, 0);
      }
  }
}

bool Runner::begin(Slot& slot, Program program) {
  slot.program = std::move(program);
  slot.model = make_model(slot.program);
  if (!slot.model.invalid.empty() || slot.program.ranks() > kMostRanks ||
      slot.program.events.size() > kMostEvents)
    return false;
  slot.board->clear();
  [[maybe_unused]] const int emptied = ftruncate(slot.output, 0);
  slot.processes.clear();
  slot.port = uses_env(slot.program) ? std::make_unique<sennit::ReservedPort>() : nullptr;
  slot.begun = Clock::now();
  slot.busy = true;
  slot.wrong = slot.hangs = slot.given_up = false;
  slot.where.clear();
  std::vector<int> ranks;
  for (int rank = 0; rank < slot.program.ranks(); rank++)
    if (!slot.model.steps[static_cast<size_t>(rank)].empty()) ranks.push_back(rank);
  if (sennit_test::within_one_process(slot.program.transport)) {
    fork_process(slot, ranks);
  } else {
    for (const int rank : ranks) fork_process(slot, {rank});
  }
  return true;
}

void Runner::fork_process(Slot& slot, const std::vector<int>& ranks) {
  const pid_t runner = getpid(), pid = fork();
  if (pid < 0) throw std::bad_alloc();
  if (pid > 0) {
    slot.processes.push_back({pid, ranks});
    return;
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != runner) _exit(3);
  dup2(slot.output, STDERR_FILENO);
  dup2(slot.output, STDOUT_FILENO);
  fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
  set_environment(slot.program, ranks[0], slot.port ? slot.port->number() : 0);
  std::thread([] {}).join();  // the thread sanitizer has one of its own as soon as there are two
  const Holdings before = Holdings::look();
  play(slot.program, slot.model, ranks, slot.board);
  std::string left;
  for (const auto end = Clock::now() + kThreadsEnd; Clock::now() < end; usleep(1000))
    if (left = before.more_in(Holdings::look()); left.empty()) break;
  if (!left.empty() && slot.board->failures == 0 && slot.model.tidy)
    slot.board->fail(Wrong::leak, fmt::format("rank {} is left with: {}", ranks[0], left));
  _exit(0);
}

void Runner::collect(pid_t pid, int status) {
  for (const auto& slot : slots_)
    for (Slot::Process& process : slot->processes)
      if (slot->busy && process.pid == pid) {
        process.ended = true;
        process.status = status;
      }
}

// Whether a process ended in another way than it should; says so on the board.
void Runner::note_ends(Slot& slot) {
  for (Slot::Process& process : slot.processes) {
    if (!process.ended || process.noted) continue;
    process.noted = true;
    const bool killed = WIFSIGNALED(process.status) && WTERMSIG(process.status) == SIGKILL;
    if (process.status == 0 || (killed && (slot.given_up || slot.dies(process)))) continue;
    slot.board->fail(Wrong::end,
                     fmt::format("rank {} ended by {} {}", process.ranks[0],
                                 WIFSIGNALED(process.status) ? "signal" : "status",
                                 WIFSIGNALED(process.status) ? WTERMSIG(process.status)
                                                             : WEXITSTATUS(process.status)));
  }
}

void Runner::give_up(Slot& slot) {
  slot.given_up = true;
  slot.where = slot.positions();
  for (const Slot::Process& process : slot.processes)
    if (!process.ended) kill(process.pid, SIGKILL);
}

bool Runner::finish(Slot& slot, Outcome* outcome) {
  note_ends(slot);
  const auto now = Clock::now();
  if (slot.board->failures > 0 && !slot.wrong) {
    slot.wrong = true;
    slot.wrong_since = now;
  }
  if (!slot.over()) {
    slot.hangs |= !slot.wrong && !slot.given_up && now - slot.begun > options_.limit;
    if (!slot.given_up && (slot.hangs || (slot.wrong && now - slot.wrong_since > kGrace)))
      give_up(slot);
    return false;
  }
  if (!slot.given_up) look_for_files(slot);
  const std::string written = slot.written();
  for (const char* report :
       {"ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:"})
    if (written.find(report) != written.npos)
      slot.board->fail(Wrong::report, fmt::format("a report: {}", report));
  *outcome = {};
  // UCX 1.13 may fail one of its assertions where a peer dies while it connects, and another where
  // a worker is destroyed while a peer connects to it (transports/ucx/worker.cpp makes that rare).
  const bool a_rank_dies =
      std::any_of(slot.model.dies.begin(), slot.model.dies.end(), [](int e) { return e >= 0; });
  if (slot.board->first_kind == Wrong::end && written.find("ucs_fatal_error") != written.npos &&
      (a_rank_dies || written.find("Assertion `(req->send.wireup.type ==") != written.npos)) {
    outcome->ended_by_ucx = true;
    slot.board->failures = 0;
  }
  outcome->ok = slot.board->failures == 0 && !slot.hangs;
  outcome->kind = slot.hangs              ? Wrong::hang
                  : outcome->ended_by_ucx ? Wrong::nothing
                                          : slot.board->first_kind.load();
  if (slot.hangs)
    outcome->what += fmt::format("hangs: not over after {} s\n", options_.limit.count());
  for (int i = 0; i < std::min<int>(slot.board->failures, kMostFailures); i++)
    outcome->what += slot.board->failure[i] + std::string("\n");
  if (!slot.where.empty())
    outcome->what += "where its threads were when it was given up:\n" + slot.where;
  if (!outcome->ok && !written.empty())
    outcome->what += "its processes wrote:\n" + tail(written, 6000);
  slot.busy = false;
  slot.port.reset();
  return true;
}

void Runner::look_for_files(Slot& slot) {
  for (const std::string& name : entries_of("/dev/shm", false))
    for (const Slot::Process& process : slot.processes)
      if (name.starts_with("sennit-") && name.find(fmt::format("-{}-", process.pid)) != name.npos)
        slot.board->fail(Wrong::leak,
                         fmt::format("rank {} left /dev/shm/{}", process.ranks[0], name));
}

void Runner::run(const std::function<std::optional<Program>()>& next,
                 const std::function<bool(const Program&, const Outcome&)>& done) {
  sigset_t child, before;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, &before);
  bool more = true;
  for (size_t busy = 1; busy > 0;) {
    busy = 0;
    for (const auto& slot : slots_) {
      Outcome outcome;
      if (slot->busy && finish(*slot, &outcome)) more &= done(slot->program, outcome);
      while (more && !slot->busy) {
        std::optional<Program> program = next();
        if (!program) {
          more = false;
        } else if (!begin(*slot, *std::move(program))) {
          outcome.ok = false;
          outcome.kind = Wrong::result;
          outcome.what = "is no program: " + slot->model.invalid;
          more &= done(slot->program, outcome);
        }
      }
      busy += slot->busy;
    }
    if (busy == 0) break;
    const timespec turn{0, 20'000'000};
    sigtimedwait(&child, nullptr, &turn);
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) collect(pid, status);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

Outcome Runner::run(const Program& program) {
  Outcome result;
  bool given = false;
  run(
      [&]() -> std::optional<Program> {
        if (given) return {};
        given = true;
        return program;
      },
      [&](const Program&, const Outcome& outcome) {
        result = outcome;
        return true;
      });
  return result;
}

}  // namespace random_programs
