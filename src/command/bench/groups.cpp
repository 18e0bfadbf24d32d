// groups.cpp: see command/bench/groups.hpp.
#include "command/bench/groups.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <string_view>

#include <fmt/core.h>

#include "base/index.hpp"
#include "concurrent/concurrent.hpp"
#include "forecast/mesh.hpp"

namespace sennit::bench {
namespace {

// nccl-tests' rules, by their names and by their signs.
struct Rule {
  std::string_view name;
  char sign;
  int (*colour)(int rank, int number);
};
constexpr Rule kRules[] = {{"MOD", '%', [](int rank, int number) { return rank % number; }},
                           {"DIV", '/', [](int rank, int number) { return rank / number; }},
                           {"AND", '&', [](int rank, int number) { return rank & number; }},
                           {"OR", '|', [](int rank, int number) { return rank | number; }}};

bool number_of(std::string_view text, int* number) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal) text.remove_prefix(2);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number, hexadecimal ? 16 : 10);
  return error == std::errc() && rest == end && *number >= 0;
}

std::string asked(const Options& options) {
  return fmt::format("{} \"{}\"", options.split_named, options.split);
}

Status no_split(const Options& options) {
  return invalid(
      fmt::format("{}: expected MOD, DIV, AND or OR and a number, such as \"MOD 4\" or "
                  "\"%4\", or a colour for each rank, such as 0,0,1,1",
                  asked(options)));
}

// False: the text is no rule, as "MOD 4" or "%4" are.
bool parse_rule(std::string_view text, const Rule** rule, int* number) {
  for (const Rule& known : kRules) {
    const bool named = text.starts_with(known.name);
    if (!named && !text.starts_with(known.sign)) continue;
    text.remove_prefix(named ? known.name.size() : 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    *rule = &known;
    return number_of(text, number);
  }
  return false;
}

Result<std::vector<int>> colours_by_split(const Options& options, int ranks) {
  const std::string& text = options.split;
  std::vector<int> colours(index(ranks));
  const Rule* rule = nullptr;
  int number = 0;
  if (parse_rule(text, &rule, &number)) {
    if (number == 0 && (rule->name == "MOD" || rule->name == "DIV"))
      return invalid(fmt::format("{}: nothing is divided by 0", asked(options)));
    for (int rank = 0; rank < ranks; rank++) colours[index(rank)] = rule->colour(rank, number);
    return colours;
  }
  const std::vector<std::string> given = list_of(text);
  for (size_t i = 0; i < given.size(); i++) {
    if (!number_of(given[i], &number)) return no_split(options);
    if (i < colours.size()) colours[i] = number;
  }
  if (given.size() != colours.size())
    return invalid(fmt::format("{}: {} colours for {} ranks", asked(options), given.size(), ranks));
  return colours;
}

RankGroups by_colour(const std::vector<int>& colours) {
  std::map<int, std::vector<int>> members;
  for (size_t rank = 0; rank < colours.size(); rank++)
    members[colours[rank]].push_back(static_cast<int>(rank));
  RankGroups groups;
  for (auto& [colour, ranks] : members) groups.push_back(std::move(ranks));
  return groups;
}

Result<RankGroups> by_mesh(const Options& options, int ranks) {
  const Result<forecast::Mesh> mesh = forecast::parse_mesh(options.mesh);
  if (!mesh) return mesh.status();
  if (mesh->gpus() != ranks)
    return invalid(fmt::format("--mesh {}: is of {} ranks, and there are {}", options.mesh,
                               mesh->gpus(), ranks));
  for (const forecast::Axis axis : mesh->order)
    if (options.dimension == forecast::short_name(axis)) return forecast::groups_of(*mesh, {axis});
  return invalid(fmt::format("--dimension {}: expected one of the mesh's, tp, cp, pp or dp",
                             options.dimension));
}

Result<RankGroups> as_asked(const Options& options, int ranks) {
  if (!options.split.empty() && !options.mesh.empty())
    return invalid("--split and --mesh: give one of them");
  if (options.mesh.empty() != options.dimension.empty())
    return invalid(options.mesh.empty()
                       ? "--dimension needs a --mesh, such as --mesh tp2,dp4"
                       : "--mesh needs a --dimension, whose groups are measured: tp, cp, pp or dp");
  if (!options.mesh.empty()) return by_mesh(options, ranks);
  if (!options.split.empty()) {
    const Result<std::vector<int>> colours = colours_by_split(options, ranks);
    if (!colours) return colours.status();
    return by_colour(*colours);
  }
  std::vector<int> all(index(ranks));
  std::iota(all.begin(), all.end(), 0);
  return RankGroups{std::move(all)};
}

}  // namespace

Result<RankGroups> groups_of(const Options& options, int ranks) {
  Result<RankGroups> groups = as_asked(options, ranks);
  if (!groups) return groups;
  for (std::vector<int>& members : *groups) {
    std::ranges::sort(members);
    if (members.size() == 1 && groups->size() > 1)
      return invalid(fmt::format(
          "{}: rank {} is alone in its group; give every group two ranks or more",
          options.split.empty() ? fmt::format("--dimension {}", options.dimension) : asked(options),
          members[0]));
    if (options.root >= static_cast<int>(members.size()))
      return invalid(fmt::format("-r {}: there are {} ranks{}", options.root, members.size(),
                                 groups->size() > 1 ? " in a group" : ""));
  }
  std::ranges::sort(*groups);
  return groups;
}

std::string groups_text(const RankGroups& groups) {
  const auto [least, most] = std::ranges::minmax(
      groups, {}, [](const std::vector<int>& members) { return members.size(); });
  return fmt::format("{} groups of {}", groups.size(),
                     least.size() == most.size()
                         ? std::to_string(most.size())
                         : fmt::format("{} to {}", least.size(), most.size()));
}

Bound bound_of(const Options& options, const RankGroups& groups, const TierTree& tree,
               DataType type, Op op, int root, uint64_t bytes) {
  std::vector<ConcurrentCall> calls;  // one of each group: roots differ in their places
  for (const std::vector<int>& members : groups) {
    const Case what =
        make_case(options, type, op, root, 0, static_cast<int>(members.size()), bytes);
    ConcurrentCall& call = calls.emplace_back();
    call.request.collective = what.collective;
    call.request.type = type;
    call.request.op = op;
    call.request.count = what.count;
    std::vector<int>& positions = call.groups.emplace_back();
    for (const int rank : members) positions.push_back(tree.position_of_rank[index(rank)]);
    const int of_root = is_rooted(what.collective) ? positions[index(root)] : positions[0];
    std::ranges::sort(positions);
    call.request.root = static_cast<int>(std::ranges::find(positions, of_root) - positions.begin());
  }
  return set_bound(tree, calls);
}

}  // namespace sennit::bench
