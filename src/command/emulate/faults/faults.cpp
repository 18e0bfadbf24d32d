// `sennit emulate slow`, `lose`, `delay`, `cut` and `heal`: faults on a link of a tree that is up.
//
//   sennit emulate slow h2 150Mbit/s
//   sennit emulate lose rack1 2 --direction out
//   sennit emulate heal h2
//
// What is in force stands in the tree's state file, under whose lock each of these commands works.
// Should one be killed on its way, the file names a fault too many and none too few, so that `heal`
// takes all of it away.
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "command/commands.hpp"
#include "command/emulate/faults/link.hpp"
#include "command/emulate/state.hpp"
#include "topology/fabric/units.hpp"

namespace sennit {
namespace {

using namespace emulate;  // NOLINT: this file is the commands themselves

constexpr double kPpmPerPercent = 1e4;
// What netem and a person's patience bear.
constexpr uint64_t kMostDelayNs = 10'000'000'000;
constexpr uint64_t kLeastDelayNs = 1'000;

struct Options {
  std::string name = "default";
  std::string link;
  std::string amount;  // a rate, a share or a time, as the command has it
  std::string direction = "both";
};

// What a command does to the fault of one direction of a link.
using Change = std::function<Status(const LinkDirection& direction, Fault* fault)>;

Result<Instance> find_up(const std::string& name) {
  Result<Instance> instance = find(name);
  if (!instance && geteuid() != 0)
    return Status(instance.status().kind(),
                  instance.status().text() +
                      ". Trees that others brought up are theirs: to change "
                      "one of root's takes root");
  if (instance) SENNIT_RETURN_IF_ERROR(check_up(*instance));
  return instance;
}

// The same change of the directions that were asked for, or the error of one.
Result<LinkFaults> changed(const TreeLink& link, const std::string& directions,
                           const Change& change) {
  LinkFaults faults = *link.faults;
  if (directions != "in") SENNIT_RETURN_IF_ERROR(change(link.out, &faults.out));
  if (directions != "out") SENNIT_RETURN_IF_ERROR(change(link.in, &faults.in));
  return faults;
}

Status enforce_both(const TreeLink& link, const LinkFaults& before, const LinkFaults& after) {
  SENNIT_RETURN_IF_ERROR(enforce(link.out, before.out, after.out).with_context(link.name));
  return enforce(link.in, before.in, after.in).with_context(link.name);
}

using Links = std::vector<TreeLink>;

// What is in force, by link.
std::vector<LinkFaults> faults_of(const Links& links) {
  std::vector<LinkFaults> faults;
  faults.reserve(links.size());
  for (const TreeLink& link : links) faults.push_back(*link.faults);
  return faults;
}

void write_down(const Links& links, const std::vector<LinkFaults>& faults) {
  for (size_t i = 0; i < links.size(); i++) *links[i].faults = faults[i];
}

// The first error of all; it holds up none of the other links.
Status enforce_all(const Links& links, const std::vector<LinkFaults>& before,
                   const std::vector<LinkFaults>& after) {
  Status first;
  for (size_t i = 0; i < links.size(); i++) {
    const Status status = enforce_both(links[i], before[i], after[i]);
    if (first.ok()) first = status;
  }
  return first;
}

// A new fault is written down before it is in force, and taken back if it cannot be.
Status inflict(const Options& options, Instance* instance, const Links& links,
               const std::vector<LinkFaults>& after) {
  for (size_t i = 0; i < links.size(); i++)
    for (const Fault& fault : {after[i].out, after[i].in})
      SENNIT_RETURN_IF_ERROR(check_support(instance->keeper, fault).with_context(links[i].name));
  const std::vector<LinkFaults> before = faults_of(links);
  write_down(links, after);
  SENNIT_RETURN_IF_ERROR(write_state(*instance));
  const Status done = enforce_all(links, before, after);
  if (done.ok()) return done;
  if (!enforce_all(links, after, before).ok())
    return {done.kind(),
            done.text() + "; `sennit emulate heal " + options.link + "` mends the link"};
  write_down(links, before);
  SENNIT_RETURN_IF_ERROR(write_state(*instance));
  return done;
}

// A fault stays written down until it is out of force.
Status mend(Instance* instance, const Links& links, const std::vector<LinkFaults>& after) {
  SENNIT_RETURN_IF_ERROR(enforce_all(links, faults_of(links), after));
  write_down(links, after);
  return write_state(*instance);
}

// Says what each of the links has afterwards, a line each.
Result<std::string> change_links(const Options& options, bool heals, const Change& change) {
  signal(SIGPIPE, SIG_IGN);  // of `tc` and `nft` that end early
  StateLock lock;
  SENNIT_RETURN_IF_ERROR(lock.take());
  Result<Instance> instance = find_up(options.name);
  if (!instance) return instance.status();
  const Result<Links> links = find_links(&*instance, options.link);
  if (!links) return links.status();
  const std::vector<LinkFaults> before = faults_of(*links);
  std::vector<LinkFaults> after;
  for (const TreeLink& link : *links) {
    const Result<LinkFaults> faults = changed(link, options.direction, change);
    if (!faults) return faults.status();
    after.push_back(*faults);
  }
  SENNIT_RETURN_IF_ERROR(join_owner(*instance));
  SENNIT_RETURN_IF_ERROR(heals ? mend(&*instance, *links, after)
                               : inflict(options, &*instance, *links, after));
  std::string said;
  for (size_t i = 0; i < links->size(); i++) {
    const TreeLink& link = (*links)[i];
    said += fmt::format("{} of '{}': {}{}\n", link.name, instance->name,
                        describe(*link.faults, link.bits_per_s),
                        after[i] == before[i] ? ", as it was before" : "");
  }
  return said;
}

int run(const Options& options, bool heals, const Change& change) {
  const Result<std::string> said = change_links(options, heals, change);
  if (!said) return fail(said.status());
  fmt::print("{}", *said);
  return 0;
}

// ---- what each command does to a direction ----

Status slow(const Options& options, const LinkDirection& direction, Fault* fault) {
  const std::optional<uint64_t> bits_per_s = link_rate(options.amount);
  if (!bits_per_s || *bits_per_s >= direction.bits_per_s)
    return invalid(fmt::format(
        "slow {} {}: expected a rate below the {} of the link, such as 10Mbit/s or 1MB/s, and at "
        "least 80kbit/s; `sennit emulate heal {}` gives it its own back",
        options.link, options.amount, readable_rate(direction.bits_per_s), options.link));
  fault->bits_per_s = *bits_per_s;
  return {};
}

Status lose(const Options& options, const LinkDirection&, Fault* fault) {
  const char* const begin = options.amount.data();
  const char* end = begin + options.amount.size();
  if (end != begin && end[-1] == '%') end--;
  double percent = 0;
  const auto [stopped, error] = std::from_chars(begin, end, percent);
  const double ppm = std::round(percent * kPpmPerPercent);
  if (error != std::errc() || stopped != end || !(ppm >= 1) || !(percent <= 100))
    return invalid(
        fmt::format("lose {} {}: expected which percentage of the packets is lost, from 0.0001 to "
                    "100; `sennit emulate heal {}` loses none",
                    options.link, options.amount, options.link));
  fault->lost_ppm = static_cast<uint32_t>(ppm);
  return {};
}

Status delay(const Options& options, const LinkDirection&, Fault* fault) {
  const std::optional<uint64_t> delay_ns = parse_time(options.amount);
  if (!delay_ns || *delay_ns < kLeastDelayNs || *delay_ns > kMostDelayNs)
    return invalid(
        fmt::format("delay {} {}: expected a time from {} to {}, such as 5ms; `sennit emulate heal "
                    "{}` takes the delay away",
                    options.link, options.amount, format_time(kLeastDelayNs),
                    format_time(kMostDelayNs), options.link));
  fault->delay_ns = *delay_ns;
  return {};
}

Status cut(const Options&, const LinkDirection&, Fault* fault) {
  fault->cut = true;
  return {};
}

Status heal(const Options&, const LinkDirection&, Fault* fault) {
  *fault = {};
  return {};
}

// One of the commands: `amount` is what it calls its second argument, "" if it has none.
struct FaultCommand {
  const char* name;
  const char* amount;
  const char* amount_help;
  Status (*change)(const Options&, const LinkDirection&, Fault*);
  const char* help;
};

constexpr FaultCommand kCommands[] = {
    {"slow", "rate", "below that of the link, such as 150Mbit/s", slow,
     "give a link of a tree that is up a lower rate"},
    {"lose", "percent", "of the packets, such as 2 or 0.5", lose,
     "lose some of a link's packets, picked at random"},
    {"delay", "time", "each direction, such as 5ms: a round trip takes twice that longer", delay,
     "make a link's packets late"},
    {"cut", "", "", cut,
     "let nothing through a link, whatever else is wrong with it; connections over it stay, and "
     "wait"},
    {"heal", "", "", heal, "take all faults of a link away"}};

void add(const Command& emulate, const FaultCommand& fault, Options* options) {
  const bool heals = fault.change == heal;
  const bool has_amount = *fault.amount != '\0';
  const Command command = emulate.command(
      fault.name, std::string(fault.help) +
                      (has_amount ? "; replaces its last such fault, and adds to its others" : ""));
  command
      .option(
          "link", options->link,
          "a host (h0) or a switch (rack1): what joins it to the switch above it, on every rail; "
          "or on one (h0/eth1, h0.1, rack1.1)")
      .required();
  if (has_amount) command.option(fault.amount, options->amount, fault.amount_help).required();
  command
      .option("--direction", options->direction,
              "out: upwards, from the host or the switch; in: down to it; or both")
      .one_of({"out", "in", "both"})
      .show_default();
  add_name(command, &options->name);
  command.action([=, &fault] {
    return run(*options, heals, [&](const LinkDirection& direction, Fault* one) {
      return fault.change(*options, direction, one);
    });
  });
}

}  // namespace

void add_fault_commands(const Command& emulate) {
  static Options kept;  // lives as long as the process, as the values of options must
  for (const FaultCommand& fault : kCommands) add(emulate, fault, &kept);
}

}  // namespace sennit
