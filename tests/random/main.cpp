// main.cpp: the command random_programs. Exit codes: 0 all went well, 1 a program failed, 2 the
// call was off.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/random/shrink.hpp"
#include "tests/random/soak.hpp"

using namespace random_programs;  // NOLINT: this is its command

namespace {

constexpr char kUsage[] =
    "usage: random_programs [--programs N] [--kills N] [--minutes M] [--seed S] [--transports "
    "shm,tcp,...] "
    "[--ranks 2:9]\n"
    "         [--without FEATURE,...] [--at-once N] [--limit SECONDS] [--keep-going] "
    "[--no-shrink]\n"
    "       random_programs --dry ...            makes the programs and their models, and runs "
    "none\n"
    "       random_programs --show SEED ...      prints the program of that seed, and does not run "
    "it\n"
    "       random_programs --replay FILE [--times N] [--shrink]\n"
    "Random programs, each with what it must do worked out beforehand; the first that does "
    "otherwise ends it "
    "and is made smaller.\n"
    "--kills: so many more, in which a rank is killed. --minutes: until they are over.\n";

struct Command {
  SoakOptions soak;
  std::string replay;
  int times = 1;
  bool show = false, dry = false, shrink = false;
};

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');) all.push_back(word);
  return all;
}

void parse_ranks(const std::string& text, SoakOptions* options) {
  const size_t colon = text.find(':');
  options->least_ranks = std::stoi(text);
  options->most_ranks =
      colon == text.npos ? options->least_ranks : std::stoi(text.substr(colon + 1));
  if (options->least_ranks < 1 || options->most_ranks > kMostRanks ||
      options->least_ranks > options->most_ranks)
    throw std::invalid_argument("--ranks: expected LEAST:MOST, from 1 to 16");
}

void parse_transports(const std::string& text, SoakOptions* options) {
  options->transports = words(text);
  for (const std::string& name : options->transports) sennit_test::transport_named(name);
}

void parse_features(const std::string& text, SoakOptions* options) {
  for (const std::string& feature : words(text)) {
    if (feature_names().count(feature) == 0) {
      std::string all;
      for (const std::string& name : feature_names()) all += " " + name;
      throw std::invalid_argument("--without " + feature + ": expected of" + all);
    }
    options->without.insert(feature);
  }
}

Command parse_arguments(int argc, char** argv) {
  Command command;
  SoakOptions& soak = command.soak;
  soak.programs = 1000;
  soak.seed = std::random_device{}();
  soak.run.at_once = 2 * static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::invalid_argument(name + ": expected a value");
      return argv[++i];
    };
    if (name == "--programs")
      soak.programs = std::stoi(value());
    else if (name == "--kills")
      soak.kills = std::stoi(value());
    else if (name == "--minutes")
      soak.minutes = std::stod(value());
    else if (name == "--seed")
      soak.seed = std::stoull(value());
    else if (name == "--show") {
      soak.seed = std::stoull(value());
      command.show = true;
    } else if (name == "--transports")
      parse_transports(value(), &soak);
    else if (name == "--ranks")
      parse_ranks(value(), &soak);
    else if (name == "--without")
      parse_features(value(), &soak);
    else if (name == "--at-once")
      soak.run.at_once = std::stoi(value());
    else if (name == "--limit")
      soak.run.limit = std::chrono::seconds(std::stoi(value()));
    else if (name == "--times")
      command.times = std::stoi(value());
    else if (name == "--replay")
      command.replay = value();
    else if (name == "--keep-going")
      soak.keep_going = true;
    else if (name == "--dry")
      command.dry = true;
    else if (name == "--no-shrink")
      soak.shrink = false;
    else if (name == "--shrink")
      command.shrink = true;
    else
      throw std::invalid_argument(name + ": not an option");
  }
  return command;
}

int replay(const Command& command) {
  std::ifstream file(command.replay);
  if (!file) throw std::invalid_argument("cannot read " + command.replay);
  std::stringstream text;
  text << file.rdbuf();
  const Program program = parse(text.str());
  Runner runner(command.soak.run);
  int failed = 0;
  for (int i = 0; i < command.times; i++) {
    const Outcome outcome = runner.run(program);
    if (outcome.ok) continue;
    if (failed++ == 0) std::printf("%s\n", outcome.what.c_str());
    if (!command.shrink) continue;
    const Shrunk small = shrink(runner, program, outcome, 20, std::chrono::seconds(300));
    std::printf("%s\n%s\n", to_text(small.program).c_str(), small.outcome.what.c_str());
    break;
  }
  std::printf("%d of %d failed\n", failed, command.times);
  return failed > 0;
}

int dry(const SoakOptions& options) {
  int invalid = 0;
  size_t events = 0;
  for (int n = 0; n < options.programs + options.kills; n++) {
    const Program program = program_of(options, n);
    events += program.events.size();
    if (const Model model = make_model(parse(to_text(program)));
        !model.invalid.empty() && invalid++ < 5)
      std::printf("seed %llu: %s\n%s\n", static_cast<unsigned long long>(program.seed),
                  model.invalid.c_str(), to_text(program).c_str());
  }
  std::printf("%d of %d are no programs; %zu events\n", invalid, options.programs + options.kills,
              events);
  return invalid > 0;
}

int run(const Command& command) {
  if (command.dry) return dry(command.soak);
  if (!command.replay.empty()) return replay(command);
  if (command.show) {
    std::printf("%s", to_text(program_of(command.soak, 0)).c_str());
    return 0;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(command.soak.seed));
  std::fflush(stdout);
  const SoakResult result = soak(command.soak, stdout);
  std::printf("%s%d programs, %d with a rank killed, %d failed", result.text.c_str(),
              result.programs, result.kills, result.failed);
  if (result.ended_by_ucx > 0)
    std::printf(
        "; %d of which an assertion of UCX's own ended a rank, as another died or connected",
        result.ended_by_ucx);
  std::printf("\n");
  return result.failed > 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "random_programs: %s\n%s", error.what(), kUsage);
    return 2;
  }
}
