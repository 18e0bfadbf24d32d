// `sennit tune`: measures the few best plans of collectives and keeps the fastest in the tuning
// file, before a job needs them.
//
//   mpirun -np 8 sennit tune all_reduce all_gather -b 1K -e 64M
//   sennit tune all_reduce --ranks 4 -e 1M
//
// The trials are those of SENNIT_TUNE=again (plan/tuning/trials.hpp). A turn is as many calls as
// take some 100 ms, three at least unless one takes half a second, with a barrier before and behind
// them: a call's time is the mean of the later half until the last rank is done, less what a
// barrier takes (where data goes one way, a barrier behind each call). A rank that comes late to a
// broadcast finds its data there, and alone would take that for a fast plan; and a single call may
// pass at once through a shaper's burst, or a switch's buffer, for which calls in a row wait. Each
// plan is shown with what was predicted and what was measured. From all of them together the cost
// model is calibrated (plan/tuning/calibration.hpp); where it then prefers a plan that was not
// tried, that request is tried again. It ends with how far the choices of the model, as it was and
// calibrated, are from the fastest.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "base/clock.hpp"
#include "base/options.hpp"
#include "command/bench/bench.hpp"
#include "command/commands.hpp"
#include "command/plan/plan.hpp"
#include "command/tune/tune.hpp"
#include "command/write.hpp"
#include "plan/bound.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/calibration.hpp"

namespace sennit {
namespace {

constexpr size_t kFewBarriers = 20, kManyBarriers = 200;      // behind a turn's calls
constexpr uint64_t kTurnNs = 100'000'000, kMostCalls = 1024;  // of a turn
constexpr uint64_t kLongNs = 500'000'000;                     // of a call that is a turn by itself
constexpr uint64_t kApartNs = 2'000'000;  // of a call for which a barrier is nothing

struct TuneArguments {
  std::vector<std::string> collectives;
  std::string min = "1K", max = "16M", type = "float32", fabric, file, json;
  int factor = 4, ranks = 0;
  Trials::Effort effort{.rounds = 5};
};

struct Wanted {
  std::vector<Collective> collectives;
  std::vector<uint64_t> bytes;
  DataType type = DataType::float32;
};

Result<Wanted> understand(const TuneArguments& a) {
  Wanted wanted;
  for (const std::string& text : a.collectives) {
    const Result<Collective> collective =
        parse_collective(text == "alltoall" ? "all_to_all" : text);
    if (!collective) return collective.status();
    if (*collective == Collective::barrier || *collective == Collective::send_recv)
      return invalid(fmt::format("{}: there is nothing to choose", text));
    wanted.collectives.push_back(*collective);
  }
  const Result<DataType> type = parse_type(a.type);
  if (!type) return type.status().with_context("-d");
  wanted.type = *type;
  const Result<uint64_t> min = parse_bytes(a.min), max = parse_bytes(a.max);
  if (!min) return min.status().with_context("-b");
  if (!max) return max.status().with_context("-e");
  if (*min == 0 || *min > *max)
    return invalid(
        fmt::format("-b {} -e {}: expected sizes above 0, the least first", a.min, a.max));
  const auto factor = static_cast<uint64_t>(a.factor);
  for (uint64_t bytes = *min; wanted.bytes.size() < 64; bytes *= factor) {
    wanted.bytes.push_back(bytes);
    if (bytes > *max / factor) break;
  }
  return wanted;
}

Request request_of(const Communicator& inside, const Call& call) {
  Request request = inside.to_request(call);
  request.in_place = false;
  return request;
}

// By what the model expects, so that all ranks make as many.
uint64_t calls_of_a_turn(uint64_t ns) {
  return std::clamp<uint64_t>(kTurnNs / std::max<uint64_t>(1, ns), ns < kLongNs ? 3 : 1,
                              kMostCalls);
}

// Until its trials are decided; null where there was nothing to decide.
Result<const Trials*> run_trials(Communicator& inside, Call call, const bench::Case& what,
                                 Trials::Effort effort) {
  const Result<Plan> plan = inside.plan_by_model(request_of(inside, call));
  if (!plan) return plan.status();
  effort.calls = calls_of_a_turn(plan->predicted_ns);
  effort.together = false;
  inside.set_effort(effort);
  const size_t untimed = effort.calls / 2;
  std::vector<std::byte> send(what.send_elements() * type_bytes(what.type) + 8),
      recv(what.recv_elements() * type_bytes(what.type) + 8);
  call.send = send.data();
  call.recv = recv.data();
  // In a row they would overlap: the first rank goes on before the last has its data.
  const bool apart = has_root(call.collective) || plan->predicted_ns >= kApartNs;
  Call barrier;
  barrier.collective = Collective::barrier;
  for (;;) {
    SENNIT_RETURN_IF_ERROR(inside.run(barrier));
    uint64_t begin_ns = now_ns();
    for (size_t i = 0; i < effort.calls; i++) {
      if (i == untimed) begin_ns = now_ns();
      SENNIT_RETURN_IF_ERROR(inside.run(call));
      if (apart || i + 1 == effort.calls) SENNIT_RETURN_IF_ERROR(inside.run(barrier));
    }
    const uint64_t took_ns = now_ns() - begin_ns, timed = effort.calls - untimed;
    // What a barrier takes in the same moments: the machine is slower for seconds, and faster for
    // others.
    std::vector<double> barriers_ns;
    for (size_t i = 0; i < std::clamp(timed, kFewBarriers, kManyBarriers); i++) {
      begin_ns = now_ns();
      SENNIT_RETURN_IF_ERROR(inside.run(barrier));
      barriers_ns.push_back(static_cast<double>(now_ns() - begin_ns));
    }
    inside.retime(call,
                  without_barriers(took_ns, timed, apart ? timed : 1, std::move(barriers_ns)));
    const Trials* const trials = inside.trials(call);
    if (!trials || trials->decided()) return trials;
  }
}

// Some size must be an element, or one for each rank: else nothing would be tried.
Status check_sizes(const TuneArguments& a, const Wanted& wanted, const Communicator& inside) {
  const auto needed = [&](Collective collective) {
    const int elements = bench::has_blocks(collective) ? inside.size() : 1;
    return static_cast<uint64_t>(elements) * type_bytes(wanted.type);
  };
  const Collective least = *std::ranges::min_element(wanted.collectives, {}, needed);
  if (wanted.bytes.back() >= needed(least)) return {};
  return invalid(
      fmt::format("-b {} -e {}: the largest size is {} bytes, and {} of {} by {} ranks needs {}: "
                  "use a larger -e",
                  a.min, a.max, wanted.bytes.back(), name(least), name(wanted.type), inside.size(),
                  needed(least)));
}

// Whether what is found can be kept.
Status check_files(const TuneArguments& a, Communicator& inside) {
  const std::string path = tuning_path(inside.context().fabric().fingerprint());
  if (path.empty()) return invalid("there is no HOME to keep it in: name a file with --file");
  SENNIT_RETURN_IF_ERROR(Tuning().add_to(path));
  if (a.json.empty() || a.json == "-") return {};
  FILE* const json = std::fopen(a.json.c_str(), "a");
  if (!json) return invalid(fmt::format("--json {}: {}", a.json, std::strerror(errno)));
  std::fclose(json);
  return {};
}

// Before time is spent on it: rank 0 looks and tells the others.
Status check_ahead(const TuneArguments& a, const Wanted& wanted, Communicator& inside) {
  Status trouble;
  if (inside.rank() == 0) {
    trouble = check_sizes(a, wanted, inside);
    if (trouble.ok()) trouble = check_files(a, inside);
  }
  const Result<std::vector<std::byte>> told =
      inside.context().control().broadcast(std::as_bytes(std::span(trouble.text())));
  if (!told) return told.status();
  if (told->empty()) return {};
  return invalid(std::string(reinterpret_cast<const char*>(told->data()), told->size()));
}

struct Tried {
  Call call;
  bench::Case what;
};

// Rank 0 fits and tells the others: all must plan alike. Whether it did.
Result<bool> calibrate(FILE* screen, Communicator& inside, const std::vector<TimedPlan>& trace,
                       PlanOptions* fitted) {
  PlanOptions options = inside.context().plan_options();
  Tuning table;
  const TimedPlan* const impossible =
      inside.rank() == 0 ? below_bound(inside.tree(), trace) : nullptr;
  if (impossible) {
    const Bound bound = lower_bound(impossible->request, inside.tree());
    fmt::print(
        screen,
        "\nnot calibrated: {} of {} took {}, and on the rates that the fabric gives none takes "
        "less "
        "than {} ({}). These rates are too low: correct them, or have them probed "
        "(SENNIT_PROBE=again)\n",
        name(impossible->request.collective),
        plan::bytes_text(payload_bytes(impossible->request, inside.size())),
        plan::time_text(impossible->measured_ns), plan::time_text(bound.time_ns), bound.why);
  } else if (inside.rank() == 0) {
    const uint64_t before = typical_factor_permille(inside.tree(), options, trace);
    options.cost = calibrate(inside.tree(), options, trace);
    table.set_cost(inside.tree().fingerprint(), options.cost);
    fmt::print(
        screen,
        "\ncalibrated on {} times: predicted and measured differ by a factor of {:.2f} (before: "
        "{:.2f})\n",
        trace.size(),
        static_cast<double>(typical_factor_permille(inside.tree(), options, trace)) / 1e3,
        static_cast<double>(before) / 1e3);
    SENNIT_RETURN_IF_ERROR(table.add_to(tuning_path(inside.context().fabric().fingerprint())));
  }
  const std::string text = table.to_text();
  const Result<std::vector<std::byte>> told =
      inside.context().control().broadcast(std::as_bytes(std::span(text)));
  if (!told) return told.status();
  const Result<Tuning> parsed =
      Tuning::parse(std::string_view(reinterpret_cast<const char*>(told->data()), told->size()),
                    "rank 0's calibration");
  if (!parsed) return parsed.status();
  options = inside.context().plan_options();
  *fitted = options;
  if (parsed->empty()) return false;
  parsed->calibrate(inside.tree(), &fitted->cost);
  inside.calibrate(fitted->cost);
  return true;
}

// What the model itself would choose now, whatever the table says.
Result<TimedPlan> model_choice(const Communicator& inside, const Request& request) {
  const Result<Plan> plan = inside.plan_by_model(request);
  if (!plan) return plan.status();
  return TimedPlan{request, plan->algorithm, plan->parameters, 0};
}

Status check_choice(Communicator& inside) {
  if (inside.size() == 1)
    return invalid("one rank has nothing to tune: use a launcher, or --ranks N");
  if (!inside.context().tunes())
    return invalid(
        "SENNIT_ALGORITHM, SENNIT_CHUNK_BYTES or SENNIT_REPRODUCIBLE is set, which leaves nothing "
        "to choose");
  return {};
}

Status tune(const TuneArguments& a, const Wanted& wanted, Communicator& inside) {
  const Trials::Effort effort = a.effort;
  const bool reporting = inside.rank() == 0;
  FILE* const screen = tuned::screen(a.json);
  SENNIT_RETURN_IF_ERROR(check_choice(inside));
  SENNIT_RETURN_IF_ERROR(check_ahead(a, wanted, inside));
  if (reporting) tuned::print_heading(screen, "as predicted", effort.rounds, inside.size());
  bench::Options options;
  std::vector<Tried> tried;
  tuned::Trace trace;
  tuned::Choices choices;
  for (const Collective collective : wanted.collectives)
    for (const uint64_t bytes : wanted.bytes) {
      options.collective = collective;
      Tried one{
          {},
          bench::make_case(options, wanted.type, Op::sum, 0, inside.rank(), inside.size(), bytes)};
      if (one.what.count == 0) continue;
      one.call.collective = collective;
      one.call.count = one.what.count;
      one.call.type = one.what.type;
      const Result<TimedPlan> choice = model_choice(inside, request_of(inside, one.call));
      if (!choice) return choice.status();
      const Result<const Trials*> trials = run_trials(inside, one.call, one.what, effort);
      if (!trials) return trials.status();
      if (!*trials) continue;
      if (reporting) tuned::print(screen, **trials, one.what);
      trace.add(**trials, choice->request);
      tried.push_back(one);
      choices.planned.push_back(*choice);
    }
  const PlanOptions before = inside.context().plan_options();
  PlanOptions fitted;
  const Result<bool> calibrated = calibrate(screen, inside, trace.plans(), &fitted);
  if (!calibrated) return calibrated.status();
  bool heading = reporting;
  for (const Tried& one : *calibrated ? tried : std::vector<Tried>()) {
    const Result<TimedPlan> choice = model_choice(inside, request_of(inside, one.call));
    if (!choice) return choice.status();
    choices.calibrated.push_back(*choice);
    if (tuned::find(trace.plans(), *choice)) continue;
    const Result<const Trials*> trials = run_trials(inside, one.call, one.what, effort);
    if (!trials) return trials.status();
    if (heading)
      tuned::print_heading(screen, "as predicted when calibrated, where that is another plan",
                           effort.rounds, inside.size());
    heading = false;
    if (!*trials) continue;
    if (reporting) tuned::print(screen, **trials, one.what);
    trace.add(**trials, choice->request);
  }
  if (!reporting) return {};
  tuned::print_choices(screen, "before that", choices.planned, trace.plans(), inside.size());
  if (*calibrated)
    tuned::print_choices(screen, "calibrated", choices.calibrated, trace.plans(), inside.size());
  return a.json.empty() ? Status()
                        : tuned::write_json(a.json, inside, before, fitted, choices, trace);
}

int run_rank(const TuneArguments& a, const Wanted& wanted, BootstrapOptions bootstrap) {
  const int rank = bootstrap.rank;
  sennit_config_t config = SENNIT_CONFIG_INIT;
  if (!a.fabric.empty()) config.fabric = a.fabric.c_str();
  setenv("SENNIT_TUNE", "again", 1);
  if (!a.file.empty()) setenv("SENNIT_TUNING", a.file.c_str(), 1);
  const Result<sennit_comm_t> comm = start_job(std::move(bootstrap), &config);
  Status status = comm.status();
  if (comm) {
    status = tune(a, wanted, internal(*comm));
    if (status.ok() && rank == 0)
      fmt::print(tuned::screen(a.json), "kept in {}\n",
                 tuning_path(internal(*comm).context().fabric().fingerprint()));
    if (status.ok() && sennit_comm_finalize(*comm) != SENNIT_OK)
      status = Status(SENNIT_INTERNAL, sennit_last_error());
    sennit_comm_destroy(*comm);
  }
  if (!status.ok()) fmt::print(stderr, "sennit tune: rank {}: {}\n", rank, status.text());
  return status.ok() ? 0 : bench::exit_status(status);
}

}  // namespace

void add_tune_command(CommandLine& line, char** argv) {
  const Command command =
      line.command("tune", "measure the few best plans of collectives and keep the fastest");
  const auto a = std::make_shared<TuneArguments>();
  command.option("collectives", a->collectives, "all_reduce, all_gather, ...: as many as wanted")
      .required();
  command.option("-b,--minbytes", a->min, "smallest size; K, M, G are powers of two")
      .show_default();
  command.option("-e,--maxbytes", a->max, "largest size").show_default();
  command
      .option("-f,--stepfactor", a->factor,
              "factor between sizes; what is kept holds up to twice the size")
      .within(2, 1024)
      .show_default();
  command.option("-d,--datatype", a->type, "float32, bfloat16, ...").show_default();
  command.option("--plans", a->effort.plans, "plans of each request to try, best first")
      .within(1, 1024)
      .show_default();
  command.flag("--every-chunk", a->effort.every_chunk,
               "try each number of chunks, down to chunks of 4 KiB, as a plan of its own");
  command.option("--rounds", a->effort.rounds, "times that each is tried")
      .within(1, 1000)
      .show_default();
  command.option("--ranks", a->ranks, "without a launcher: start this many local processes")
      .within(1, 65536);
  command.option("--fabric", a->fabric, "fabric file");
  command.option("--file", a->file,
                 "tuning file to add to (default: SENNIT_TUNING, or the user's cache)");
  command.option("--json", a->json,
                 "file for a line of JSON for each plan that was timed; - is standard output");
  command.action([a, argv] {
    const Status given = check_outputs({{"--file", a->file}, {"--json", a->json}});
    const Result<Wanted> wanted = given.ok() ? understand(*a) : given;
    if (!wanted) {
      fmt::print(stderr, "sennit tune: {}\n", wanted.status().text());
      return 2;
    }
    return bench::run_as_launched(
        "sennit tune", a->ranks, argv,
        [&](const BootstrapOptions& process) { return run_rank(*a, *wanted, process); });
  });
}

}  // namespace sennit
