// `sennit topo`: what network is this, who says so, and what looks wrong in it.
//
//   sennit topo                              the tree, from all sources at hand
//   sennit topo --fabric FILE --check        suspects of a fabric file; exit status 1 if it has any
//   sennit topo --save /etc/sennit/fabric    what every job will read
//   mpirun -N 1 sennit topo --probe          measured between the hosts of a job
//   sennit topo --order --hostfile hosts     the order of ranks that crosses each tier least
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "command/commands.hpp"
#include "command/topo/diff.hpp"
#include "command/topo/make_model.hpp"
#include "command/topo/model/model.hpp"
#include "command/topo/order.hpp"
#include "command/topo/outputs/outputs.hpp"
#include "command/topo/read/read.hpp"
#include "command/topo/suspects/check.hpp"
#include "command/write.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

using namespace topo;  // NOLINT: this file is the command itself

struct Options {
  std::string fabric, json, save, svg, html;
  std::vector<std::string> diff;
  bool check = false, probe = false;
  std::vector<std::string> order;  // no word: the job's own
  bool order_given = false;
  std::string hostfile, nodelist, rankfile;
};

int fail(const Status& status) {
  fmt::print(stderr, "sennit topo: {}\n", status.text());
  return status.kind() == SENNIT_INVALID_ARGUMENT || status.kind() == SENNIT_NOT_FOUND ? 2 : 3;
}

bool color_wanted() { return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr; }

// What the sources or the model found to be wrong, once the outputs are written.
int verdict(const Reading& reading) {
  for (const SourceReport& source : reading.sources)
    if (!source.error.empty()) return 1;
  return 0;
}

Status write_files(const Options& options, const Reading& reading, const Model& model) {
  if (!options.save.empty())
    SENNIT_RETURN_IF_ERROR(write_text(options.save, model.fabric.to_text()));
  if (!options.json.empty())
    SENNIT_RETURN_IF_ERROR(write_text(options.json, json_of(reading, model)));
  if (!options.svg.empty())
    SENNIT_RETURN_IF_ERROR(write_text(options.svg, svg_of(reading, model, false)));
  if (!options.html.empty())
    SENNIT_RETURN_IF_ERROR(write_text(options.html, page_of(reading, model)));
  return {};
}

int compare(const Options& options) {
  const Result<Reading> a = read_one(options.diff[0]);
  if (!a) return fail(a.status());
  const Result<Reading> b = read_one(options.diff[1]);
  if (!b) return fail(b.status());
  const Difference difference = diff(a->fabric, b->fabric);
  if (difference.changes == 0) fmt::print("no difference\n");
  if (difference.changes > 0)
    fmt::print("--- {}\n+++ {}\n{}", options.diff[0], options.diff[1], difference.text);
  return difference.changes > 0;
}

// `taken`: another output is on standard output already.
int show_order(const Options& options, const Reading& reading, const Fabric& fabric, bool taken) {
  for (const SourceReport& source : reading.sources)
    if (!source.error.empty())
      fmt::print(stderr, "sennit topo: source {} failed: {}\n", source.name, source.error);
  const Result<HostOrder> order = read_order(options.order.empty() ? "" : options.order[0], fabric);
  if (!order) return fail(order.status());
  const Result<OrderReport> report = compare_orders(fabric, *order);
  if (!report) return fail(report.status());
  for (const auto& [file, text] : {std::pair(&options.hostfile, &hostfile_text),
                                   {&options.nodelist, &nodelist_text},
                                   {&options.rankfile, &rankfile_text}}) {
    if (file->empty()) continue;
    taken |= *file == "-";
    if (const Status status = write_text(*file, text(report->best)); !status.ok())
      return fail(status);
  }
  fmt::print(taken ? stderr : stdout, "{}", report->text);
  return report->strangers.empty() ? verdict(reading) : 1;
}

int show(const Options& options) {
  if (!options.diff.empty()) return compare(options);
  if (const Status status = check_outputs({{"--json", options.json},
                                           {"--save", options.save},
                                           {"--svg", options.svg},
                                           {"--html", options.html},
                                           {"--hostfile", options.hostfile},
                                           {"--nodelist", options.nodelist},
                                           {"--rankfile", options.rankfile}});
      !status.ok())
    return fail(status);
  Result<Reading> reading = Reading{};
  if (options.probe) {
    Result<std::optional<Reading>> probed = read_job();
    if (!probed) return fail(probed.status());
    if (!probed->has_value()) return 0;
    reading = *std::move(*probed);
  } else {
    reading = options.fabric.empty() ? read_here() : read_one(options.fabric);
  }
  if (!reading) return fail(reading.status());
  const Result<Model> model = make_model(reading->fabric);
  if (!model) return fail(model.status());
  if (const Status status = write_files(options, *reading, *model); !status.ok())
    return fail(status);
  bool taken = false;  // standard output
  for (const std::string* file : {&options.json, &options.save, &options.svg, &options.html})
    taken |= *file == "-";
  if (options.order_given) return show_order(options, *reading, model->fabric, taken);
  if (options.check) {
    fmt::print(taken ? stderr : stdout, "{}", check_text(*reading, *model));
    return model->suspects.empty() ? verdict(*reading) : 1;
  }
  if (!taken) fmt::print("{}", text_of(*reading, *model, color_wanted()));
  return verdict(*reading);
}

}  // namespace

void add_topo_command(CommandLine& line) {
  // the action keeps it
  const auto options = std::make_shared<Options>();
  const Command command =
      line.command("topo", "the tiers of the network, their capacities, and who says so");
  const Argument fabric = command.option(
      "--fabric", options->fabric,
      fmt::format("show this one: a fabric file, what ibnetdiscover (and dump_fts) wrote, a "
                  "topology.conf or .yaml, or a synthetic tree ({})",
                  kSyntheticPresets));
  const Argument files[] = {
      command.option("--json", options->json, "write it for programs; - is standard output"),
      command.option(
          "--save", options->save,
          "write it as a fabric file, for SENNIT_FABRIC or /etc/sennit/fabric; - is standard "
          "output"),
      command.option("--svg", options->svg, "draw it; equal siblings fold"),
      command.option("--html", options->html,
                     "draw it as a self-contained page, with tables and suspects")};
  const Argument probe = command.flag("--probe", options->probe,
                                      "inside a job: measure between its hosts, in seconds "
                                      "(SENNIT_PROBE=1: take what the cache has)");
  probe.excludes(fabric);
  const Argument check = command.flag("--check", options->check,
                                      "list what looks wrong; exit status 1 if anything does");
  const Argument diff = command.option(
      "--diff", options->diff, "what differs between two fabrics; exit status 1 if anything does");
  diff.words(2, 2).excludes(fabric).excludes(probe).excludes(check);
  for (const Argument& file : files) diff.excludes(file);
  const Argument order =
      command.option("--order", options->order,
                     "how often the ranks' order crosses each tier, and the best "
                     "order; FILE: hosts by rank, else the job's");
  order.words(0, 1).value_name("[FILE]").excludes(check).excludes(diff);
  for (const auto& [name, file, help] :
       {std::tuple("--hostfile", &options->hostfile,
                   "write the best order for mpirun --map-by seq --hostfile"),
        {"--nodelist", &options->nodelist,
         "write it for Slurm: SLURM_HOSTFILE with srun -m arbitrary"},
        {"--rankfile", &options->rankfile,
         "write it for mpirun --rankfile; rank i of a host on its core i"}})
    command.option(name, *file, help).needs(order);
  command.action([=] {
    options->order_given = order.given();
    if (!options->order.empty() && options->order[0].empty()) options->order.clear();
    return show(*options);
  });
}

}  // namespace sennit
