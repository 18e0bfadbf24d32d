// `sennit tune`: measures the few best plans of collectives and keeps the fastest in the tuning file, before
// a job needs them.
//
//   mpirun -np 8 sennit tune all_reduce all_gather -b 1K -e 64M
//   sennit tune all_reduce --ranks 4 -e 1M
//
// The trials are those of SENNIT_TUNE=again (tuning_trials.hpp), with a barrier before each call, and each
// plan is shown with what was predicted and what was measured.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "c_api.hpp"
#include "command_bench.hpp"
#include "command_plan.hpp"
#include "commands.hpp"
#include "options.hpp"

namespace sennit {
namespace {

struct Arguments {
  std::vector<std::string> collectives;
  std::string min = "1K", max = "16M", type = "float32", fabric, file;
  int factor = 4, ranks = 0;
};

struct Wanted {
  std::vector<Collective> collectives;
  std::vector<uint64_t> bytes;
  DataType type = DataType::float32;
};

Result<Wanted> understand(const Arguments& a) {
  Wanted wanted;
  for (const std::string& text : a.collectives) {
    const Result<Collective> collective = parse_collective(text == "alltoall" ? "all_to_all" : text);
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
    return invalid(fmt::format("-b {} -e {}: expected sizes above 0, the least first", a.min, a.max));
  for (uint64_t bytes = *min; bytes <= *max && wanted.bytes.size() < 64;
       bytes *= static_cast<uint64_t>(a.factor))
    wanted.bytes.push_back(bytes);
  return wanted;
}

Status run_call(Communicator& inside, Call& call, std::vector<std::byte>& send,
                std::vector<std::byte>& recv) {
  call.send = send.data();
  call.recv = recv.data();
  for (;;) {
    Call barrier;
    barrier.collective = Collective::barrier;
    SENNIT_RETURN_IF_ERROR(inside.run(barrier));
    SENNIT_RETURN_IF_ERROR(inside.run(call));
    const Trials* const trials = inside.trials(call);
    if (!trials || trials->decided()) return {};
  }
}

void print(const Trials& trials, const bench::Case& what) {
  for (size_t i = 0; i < trials.plans().size(); i++) {
    const Plan& plan = trials.plans()[i];
    const double measured_us = trials.measured_us()[i];
    fmt::print("{:<15} {:>12} {:<20} {:<32} {:>11} {:>11} {:>6.2f}  {}\n",
               i == 0 ? name(what.collective) : "", i == 0 ? fmt::format("{}", what.bytes()) : "",
               plan.algorithm, plan.parameters.to_text(), foresee::time_text(plan.predicted_ns),
               foresee::time_text(static_cast<uint64_t>(measured_us * 1e3)),
               static_cast<double>(plan.predicted_ns) / (measured_us * 1e3),
               i == trials.winner() ? (i == 0 ? "kept" : "kept: faster than predicted best") : "");
  }
  std::fflush(stdout);
}

// Whether what is found can be kept, before the time is spent on finding it: rank 0 tries and tells the
// others.
Status check_file(Communicator& inside) {
  std::string trouble;
  if (inside.rank() == 0) {
    const std::string path = tuning_path(inside.job().fabric().fingerprint());
    const Status status = path.empty() ? invalid("there is no HOME to keep it in: name a file with --file")
                                       : Tuning().add_to(path);
    trouble = status.ok() ? "" : status.text();
  }
  const Result<std::vector<std::byte>> told =
      inside.job().control().broadcast(std::as_bytes(std::span(trouble)));
  if (!told) return told.status();
  if (told->empty()) return {};
  return invalid(std::string(reinterpret_cast<const char*>(told->data()), told->size()));
}

Status tune(const Wanted& wanted, Communicator& inside) {
  const bool reporting = inside.rank() == 0;
  if (inside.size() == 1) return invalid("one rank has nothing to tune: use a launcher, or --ranks N");
  if (!inside.job().tunes())
    return invalid(
        "SENNIT_ALGORITHM, SENNIT_CHUNK_BYTES or SENNIT_REPRODUCIBLE is set, which leaves nothing to choose");
  SENNIT_RETURN_IF_ERROR(check_file(inside));
  if (reporting)
    fmt::print(
        "{} ranks; least of {} times of the slowest rank\n{:<15} {:>12} {:<20} {:<32} {:>11} {:>11} {:>6}\n",
        inside.size(), Trials::kRounds, "collective", "bytes", "algorithm", "parameters", "predicted",
        "measured", "ratio");
  bench::Options options;
  for (const Collective collective : wanted.collectives)
    for (const uint64_t bytes : wanted.bytes) {
      options.collective = collective;
      const bench::Case what =
          bench::make_case(options, wanted.type, Op::sum, 0, inside.rank(), inside.size(), bytes);
      if (what.count == 0) continue;
      std::vector<std::byte> send(what.send_elements() * type_bytes(what.type) + 8),
          recv(what.recv_elements() * type_bytes(what.type) + 8);
      Call call;
      call.collective = collective;
      call.count = what.count;
      call.type = what.type;
      SENNIT_RETURN_IF_ERROR(run_call(inside, call, send, recv));
      if (const Trials* trials = inside.trials(call); trials && reporting) print(*trials, what);
    }
  return {};
}

int run_rank(const Arguments& a, const Wanted& wanted, BootstrapOptions bootstrap) {
  const int rank = bootstrap.rank;
  sennit_config_t config = SENNIT_CONFIG_INIT;
  if (!a.fabric.empty()) config.fabric = a.fabric.c_str();
  setenv("SENNIT_TUNE", "again", 1);
  if (!a.file.empty()) setenv("SENNIT_TUNING", a.file.c_str(), 1);
  const Result<sennit_comm_t> comm = start_job(std::move(bootstrap), &config);
  Status status = comm.status();
  if (comm) {
    status = tune(wanted, internal(*comm));
    if (status.ok() && rank == 0)
      fmt::print("kept in {}\n", tuning_path(internal(*comm).job().fabric().fingerprint()));
    if (status.ok() && sennit_comm_finalize(*comm) != SENNIT_OK)
      status = Status(SENNIT_INTERNAL, sennit_last_error());
    sennit_comm_destroy(*comm);
  }
  if (!status.ok()) fmt::print(stderr, "sennit tune: rank {}: {}\n", rank, status.text());
  return status.ok() ? 0 : bench::exit_status(status);
}

}  // namespace

void add_tune_command(CLI::App& app, char** argv, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("tune", "measure the few best plans of collectives and keep the fastest");
  const auto a = std::make_shared<Arguments>();
  command->add_option("collectives", a->collectives, "all_reduce, all_gather, ...: as many as wanted")
      ->required();
  command->add_option("-b,--minbytes", a->min, "smallest size; K, M, G are powers of two")
      ->capture_default_str();
  command->add_option("-e,--maxbytes", a->max, "largest size")->capture_default_str();
  command
      ->add_option("-f,--stepfactor", a->factor,
                   "factor between sizes; what is kept holds up to twice the size")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command->add_option("-d,--datatype", a->type, "float32, bfloat16, ...")->capture_default_str();
  command->add_option("--ranks", a->ranks, "without a launcher: start this many local processes")
      ->check(CLI::Range(1, 65536));
  command->add_option("--fabric", a->fabric, "fabric file");
  command->add_option("--file", a->file,
                      "tuning file to add to (default: SENNIT_TUNING, or the user's cache)");
  command->callback([a, argv, exit_code] {
    const Result<Wanted> wanted = understand(*a);
    if (!wanted) {
      fmt::print(stderr, "sennit tune: {}\n", wanted.status().text());
      *exit_code = 2;
      return;
    }
    *exit_code = bench::run_as_launched("sennit tune", a->ranks, argv, [&](const BootstrapOptions& process) {
      return run_rank(*a, *wanted, process);
    });
  });
}

}  // namespace sennit
