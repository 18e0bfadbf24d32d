// bench.cpp: `sennit bench COLLECTIVE`: options, and which ranks this process plays.
//
// Under a launcher each process is one rank, or -t * -g ranks as threads. Outside any, --ranks N
// starts N processes of this command; without it this process plays all its -t * -g ranks itself.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include <fmt/core.h>

#include "base/options.hpp"
#include "base/process/run_together.hpp"
#include "command/bench/bench.hpp"
#include "command/commands.hpp"

namespace sennit {
namespace bench {

std::vector<uint64_t> sizes(const Options& options) {
  std::vector<uint64_t> all;
  if (options.collective == Collective::barrier) return {0};
  for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    all.push_back(bytes);
    if (bytes == options.max_bytes) break;
    const double grown = static_cast<double>(bytes) * options.factor;
    if (grown > static_cast<double>(options.max_bytes)) break;
    // By a small factor few bytes would never become more.
    bytes = options.factor > 0 ? std::max(bytes + 1, static_cast<uint64_t>(grown))
                               : bytes + options.step_bytes;
  }
  return all;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

// What the command line says, before it is understood.
struct Arguments {
  std::string collective, min = "32M", max, step = "1M", factor, types = "float32", ops = "sum",
                          root = "0";
  std::string memory = "sennit";
  int gpus = 1, threads = 1, iterations = 20, warm_up = 5, check = 1, blocking = 1;
  int graph_launches = 0;
  std::optional<int> ranks;
  std::string split, mesh, dimension, fabric, algorithm, json;
};

constexpr DataType kAllTypes[] = {DataType::int8,    DataType::uint8,       DataType::int32,
                                  DataType::uint32,  DataType::int64,       DataType::uint64,
                                  DataType::float16, DataType::bfloat16,    DataType::float32,
                                  DataType::float64, DataType::float8_e4m3, DataType::float8_e5m2};
constexpr Op kAllOps[] = {Op::sum,  Op::prod, Op::min,  Op::max,       Op::avg,
                          Op::band, Op::bor,  Op::bxor, Op::premul_sum};

Result<Collective> collective_of(const std::string& text) {
  if (text == "alltoall") return Collective::all_to_all;
  if (text == "sendrecv") return Collective::send_recv;
  return parse_collective(text);
}

Result<uint64_t> bytes_of(const char* option, const std::string& text) {
  const Result<uint64_t> bytes = parse_bytes(text);
  return bytes ? bytes : Result<uint64_t>(bytes.status().with_context(option));
}

Status understand_sizes(const Arguments& a, Options* o) {
  const Result<uint64_t> min = bytes_of("-b", a.min),
                         max = bytes_of("-e", a.max.empty() ? "32M" : a.max),
                         step = bytes_of("-i", a.step);
  for (const Result<uint64_t>* r : {&min, &max, &step})
    if (!*r) return r->status();
  o->min_bytes = *min;
  o->max_bytes = std::max(*max, *min);
  if (o->min_bytes > *max && !a.max.empty())
    return invalid(fmt::format("-b {} is more than -e {}", a.min, a.max));
  o->step_bytes = *step;
  if (!a.factor.empty()) {
    const char* const end = a.factor.data() + a.factor.size();
    const auto [rest, error] = std::from_chars(a.factor.data(), end, o->factor);
    if (error != std::errc() || rest != end || !(o->factor > 1) || std::isinf(o->factor))
      return invalid(fmt::format("-f {}: expected a number above 1", a.factor));
  } else if (o->step_bytes == 0 && o->min_bytes != o->max_bytes) {
    return invalid("-i 0: expected a step above 0, or a factor with -f");
  }
  return {};
}

Result<BufferMemory> memory_of(const std::string& text) {
  static const std::map<std::string, BufferMemory> memories = {
      {"sennit", BufferMemory::sennit},
      {"registered", BufferMemory::registered},
      {"malloc", BufferMemory::any},
      {"device", BufferMemory::device}};
  if (const auto memory = memories.find(text); memory != memories.end()) return memory->second;
  return invalid(fmt::format("--memory {}: expected sennit, registered, malloc or device", text));
}

Status understand_graph(const Arguments& a, Options* o) {
  o->graph_launches = a.graph_launches;
  if (o->graph_launches == 0) return {};
  if (o->memory != BufferMemory::device)
    return invalid(fmt::format("-G {}: graphs have calls on a device's memory: --memory device",
                               a.graph_launches));
  if (o->collective == Collective::barrier)
    return invalid(fmt::format("-G {}: a barrier cannot be part of a graph", a.graph_launches));
  return {};
}

// nccl-tests take it from the environment.
void understand_split(const Arguments& a, Options* o) {
  o->split = a.split;
  const char* const rule = std::getenv("NCCL_TESTS_SPLIT");
  if (rule == nullptr || !a.split.empty() || !a.mesh.empty()) return;
  o->split = rule;
  o->split_named = "NCCL_TESTS_SPLIT";
}

Status understand(const Arguments& a, Options* o) {
  const Result<Collective> collective = collective_of(a.collective);
  if (!collective) return collective.status();
  o->collective = *collective;
  SENNIT_RETURN_IF_ERROR(understand_sizes(a, o));
  for (const std::string& text : list_of(a.types)) {
    if (text == "all") {
      o->types.assign(std::begin(kAllTypes), std::end(kAllTypes));
      continue;
    }
    const Result<DataType> type = parse_type(text);
    if (!type) return type.status().with_context("-d");
    o->types.push_back(*type);
  }
  for (const std::string& text : list_of(a.ops)) {
    if (text == "all") {
      o->ops.assign(std::begin(kAllOps), std::end(kAllOps));
      continue;
    }
    std::string underscored = text;  // premul-sum is premul_sum
    std::replace(underscored.begin(), underscored.end(), '-', '_');
    const Result<Op> op = parse_op(underscored);
    if (!op) return op.status().with_context("-o");
    o->ops.push_back(*op);
  }
  if (!is_reduction(o->collective)) o->ops = {Op::sum};
  if (o->collective == Collective::barrier) {  // moves nothing: one line
    o->types.resize(1);
    o->min_bytes = o->max_bytes = 0;
  }
  if (a.root == "all" || a.root == "-1") {
    o->root = -1;
  } else {
    const char* const end = a.root.data() + a.root.size();
    const auto [rest, error] = std::from_chars(a.root.data(), end, o->root);
    if (error != std::errc() || rest != end || o->root < 0)
      return invalid(fmt::format("-r {}: expected a rank, or all", a.root));
  }
  const Result<BufferMemory> memory = memory_of(a.memory);
  if (!memory) return memory.status();
  o->memory = *memory;
  SENNIT_RETURN_IF_ERROR(understand_graph(a, o));
  o->iterations = a.iterations;
  o->warm_up = a.warm_up;
  o->check = a.check;
  o->blocking = a.blocking != 0;
  o->threads = a.threads * a.gpus;
  o->ranks = a.ranks.value_or(0);
  understand_split(a, o);
  o->mesh = a.mesh;
  o->dimension = a.dimension;
  o->fabric = a.fabric;
  o->algorithm = a.algorithm;
  o->json = a.json;
  return {};
}

// Ranks as threads of this process, on top of the processes that the launcher started.
int run_threads(const Options& options, const BootstrapOptions& process) {
  std::unique_ptr<Report> report;
  if (process.rank == 0) {
    Result<std::unique_ptr<Report>> opened = open_report(options);
    if (!opened) {
      fmt::print(stderr, "sennit bench: {}\n", opened.status().text());
      return exit_status(opened.status());
    }
    report = std::move(opened).value();
  }
  std::vector<int> results(static_cast<size_t>(options.threads), 0);
  const auto run = [&](size_t i) {
    BootstrapOptions bootstrap = process;
    bootstrap.rank = process.rank * options.threads + static_cast<int>(i);
    bootstrap.size = process.size * options.threads;
    results[i] = run_rank(options, std::move(bootstrap), report.get());
  };
  if (options.threads == 1)
    run(0);
  else
    run_together(results.size(), run);
  if (const Status json = report ? report->json_status() : Status(); !json.ok()) {
    fmt::print(stderr, "sennit bench: {}\n", json.text());
    results.push_back(exit_status(json));
  }
  return *std::max_element(results.begin(), results.end());
}

// What is called, and how often: nccl-tests' options by their names there.
void add_case_options(const Command& command, Arguments* a) {
  command
      .option(
          "collective", a->collective,
          "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, "
          "barrier or send_recv")
      .required();
  command.option("-b,--minbytes", a->min, "smallest size; K, M, G are powers of two")
      .show_default();
  command.option("-e,--maxbytes", a->max,
                 "largest size (default: 32M, or -b where that is larger)");
  command.option("-i,--stepbytes", a->step, "step between sizes").show_default();
  command.option("-f,--stepfactor", a->factor, "factor between sizes, instead of -i");
  command.option("-n,--iters", a->iterations, "timed iterations").within(1, 1000000).show_default();
  command.option("-w,--warmup_iters", a->warm_up, "iterations before")
      .within(0, 1000000)
      .show_default();
  command.option("-c,--check", a->check, "check every element this many times; 0: not")
      .within(0, 1000)
      .show_default();
  command
      .option("-o,--op", a->ops,
              "sum, prod, min, max, avg, premul_sum (or mulsum), of integers band, bor and bxor; a "
              "list of them, or all")
      .show_default();
  command
      .option("-d,--datatype", a->types, "int8 ... float64, bfloat16, float8_e4m3, a list, or all")
      .show_default();
  command.option("-r,--root", a->root, "root's rank, or all").show_default();
  command.option("-z,--blocking", a->blocking, "1: blocking calls; 0: start, then wait")
      .within(0, 1)
      .show_default();
}

// Who calls it, and on what: the same, and some of its own.
void add_options(const Command& command, Arguments* a) {
  add_case_options(command, a);
  command
      .option(
          "-G,--cudagraph", a->graph_launches,
          "with --memory device: capture the iterations as a CUDA graph, and launch it so often")
      .within(0, 1000000)
      .show_default();
  command.option("-t,--nthreads", a->threads, "ranks per process, as threads")
      .within(1, 4096)
      .show_default();
  command.option("-g,--ngpus", a->gpus, "ranks per thread: multiplies -t")
      .within(1, 4096)
      .show_default();
  command.option("--ranks", a->ranks, "without a launcher: start this many local processes")
      .within(1, 65536);
  command.option(
      "--split", a->split,
      "groups of ranks at once: MOD, DIV, AND or OR and a number, or each rank's colour; else "
      "NCCL_TESTS_SPLIT");
  command.option("--mesh", a->mesh,
                 "the same by a mesh such as tp2,dp4, from the fastest network outwards");
  command.option("--dimension", a->dimension, "the dimension of --mesh whose groups are measured");
  command.option("--fabric", a->fabric, "fabric file");
  command.option("--algorithm", a->algorithm, "instead of the planner's choice");
  command
      .option("--memory", a->memory,
              "sennit: memory that peers on this host read in place; registered: the same, the "
              "user's own; malloc: any; device: a CUDA device's, the ranks of a host taking its "
              "devices in turn")
      .show_default();
  command.option("-J,--json,--output_file", a->json,
                 "one object per line into this file; -: standard output");
}

}  // namespace
}  // namespace bench

void add_bench_command(CommandLine& line, char** argv) {
  const Command command = line.command("bench", "measure a collective beside its lower bound");
  const auto a = std::make_shared<bench::Arguments>();
  bench::add_options(command, a.get());
  command.action([a, argv] {
    bench::Options options;
    if (const Status status = bench::understand(*a, &options); !status.ok()) {
      fmt::print(stderr, "sennit bench: {}\n", status.text());
      return 2;
    }
    return bench::run_as_launched(
        "sennit bench", options.ranks, argv,
        [&](const BootstrapOptions& process) { return bench::run_threads(options, process); });
  });
}

}  // namespace sennit
