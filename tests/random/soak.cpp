// soak.cpp: see tests/random/soak.hpp: which seed runs on which transport, and what is told of a
// failure.
#include "tests/random/soak.hpp"

#include <chrono>

#include <fmt/core.h>

#include "tests/random/shrink.hpp"

namespace random_programs {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRepeats = 12;
constexpr auto kShrinkFor = std::chrono::seconds(120);

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

bool kills(const Program& program) {
  for (const Event& event : program.events)
    if (event.action == Action::kill) return true;
  return false;
}

}  // namespace

Program program_of(const SoakOptions& options, int n) {
  GeneratorOptions generator;
  generator.least_ranks = options.least_ranks;
  generator.most_ranks = options.most_ranks;
  generator.without = options.without;
  generator.kill = options.minutes > 0 ? n % 11 == 10 : n >= options.programs;
  std::vector<std::string> transports = options.transports;
  if (generator.kill) {  // of what may share a process, nobody would be left
    std::erase_if(transports, sennit_test::within_one_process);
    for (const sennit::TransportFactory& factory : sennit::transports())
      if (transports.empty() && !sennit_test::within_one_process(factory.name))
        transports.emplace_back(factory.name);
  }
  generator.transport = transports[static_cast<size_t>(n) % transports.size()];
  return generate(options.seed + static_cast<uint64_t>(n), generator);
}

std::string describe_failure(Runner& runner, const SoakOptions& options, const Program& program,
                             const Outcome& outcome) {
  std::string text =
      fmt::format("FAILED: program of seed {}, {} ranks over {}:\n{}\n{}", program.seed,
                  program.ranks(), program.transport, to_text(program), outcome.what);
  if (!options.shrink) return text;
  const Shrunk small = shrink(runner, program, outcome, kRepeats, kShrinkFor);
  text += fmt::format(
      "\nthe smallest that still fails, after {} tries (random_programs --replay FILE runs "
      "it):\n{}\n{}",
      small.tries, to_text(small.program), small.outcome.what);
  return text;
}

SoakResult soak(const SoakOptions& options, std::FILE* log) {
  SoakResult result;
  std::vector<std::pair<Program, Outcome>> failures;
  const auto begun = Clock::now();
  const int all = options.programs + options.kills;
  Runner runner(options.run);
  int next = 0;
  double said = 0;
  const auto draw = [&]() -> std::optional<Program> {
    if (options.minutes > 0 ? seconds_since(begun) > 60 * options.minutes : next >= all) return {};
    return program_of(options, next++);
  };
  const auto done = [&](const Program& program, const Outcome& outcome) {
    result.programs++;
    result.kills += kills(program);
    result.ended_by_ucx += outcome.ended_by_ucx;
    if (!outcome.ok) {
      failures.emplace_back(program, outcome);
      result.failed++;
    }
    if (log && (seconds_since(begun) - said > 30 || !outcome.ok)) {
      said = seconds_since(begun);
      std::fprintf(log, "%d programs, %d with a rank killed, %d failed; %.0f s\n", result.programs,
                   result.kills, result.failed, said);
      if (!outcome.ok)
        std::fprintf(log, "seed %llu over %s:\n%s\n", static_cast<unsigned long long>(program.seed),
                     program.transport.c_str(), outcome.what.c_str());
      std::fflush(log);
    }
    return outcome.ok || options.keep_going;
  };
  runner.run(draw, done);
  for (size_t i = 0; i < failures.size() && i < 3; i++)
    result.text += describe_failure(runner, options, failures[i].first, failures[i].second) + "\n";
  return result;
}

}  // namespace random_programs
