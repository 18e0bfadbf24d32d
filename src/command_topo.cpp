// `sennit topo`: what network is this, who says so, and what looks wrong in it.
//
//   sennit topo                              the tree, from all sources at hand
//   sennit topo --fabric FILE --check        suspects of a fabric file; exit status 1 if there are any
//   sennit topo --save /etc/sennit/fabric    what every job will read
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>

#include "command_topo.hpp"
#include "commands.hpp"

namespace sennit {
namespace {

using namespace topo;  // NOLINT: this file is the command itself

struct Options {
  std::string fabric, json, save;
  bool check = false;
};

int fail(const Status& status) {
  fmt::print(stderr, "sennit: topo: {}\n", status.text());
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
  if (!options.save.empty()) SENNIT_RETURN_IF_ERROR(write_text(options.save, model.fabric.to_text()));
  if (!options.json.empty()) SENNIT_RETURN_IF_ERROR(write_text(options.json, json_of(reading, model)));
  return {};
}

int show(const Options& options) {
  Result<Reading> reading = options.fabric.empty() ? read_here() : read_one(options.fabric);
  if (!reading) return fail(reading.status());
  const Result<Model> model = make_model(reading->fabric);
  if (!model) return fail(model.status());
  if (const Status status = write_files(options, *reading, *model); !status.ok()) return fail(status);
  const bool taken = options.json == "-" || options.save == "-";  // standard output
  if (options.check) {
    fmt::print(taken ? stderr : stdout, "{}", check_text(*model));
    return model->suspects.empty() ? verdict(*reading) : 1;
  }
  if (!taken) fmt::print("{}", text_of(*reading, *model, color_wanted()));
  return verdict(*reading);
}

}  // namespace

void add_topo_command(CLI::App& app, int* exit_code) {
  auto* options = new Options;  // lives as long as the process: CLI11 keeps references into it
  CLI::App* command =
      app.add_subcommand("topo", "the tiers of the network, their capacities, and who says so");
  command->add_option("--fabric", options->fabric,
                      "show this one: a fabric file, a topology.conf, or a synthetic tree (meta24k)");
  command->add_option("--json", options->json, "write it for programs; - is standard output");
  command->add_option(
      "--save", options->save,
      "write it as a fabric file, for SENNIT_FABRIC or /etc/sennit/fabric; - is standard output");
  command->add_flag("--check", options->check, "list what looks wrong; exit status 1 if anything does");
  command->callback([=] { *exit_code = show(*options); });
}

}  // namespace sennit
