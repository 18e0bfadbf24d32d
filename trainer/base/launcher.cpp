// launcher.cpp: see trainer/base/launcher.hpp.
#include "trainer/base/launcher.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace sennit::trainer {
namespace {

// NULL where it is not set, or empty.
const char* variable(const char* name) {
  const char* const value = name ? std::getenv(name) : nullptr;
  return value && *value ? value : nullptr;
}

int number(const char* name) {
  const char* const text = variable(name);
  return text ? std::max(0, std::atoi(text)) : 0;
}

bool in_slurm_step() {
  return variable("SLURM_PROCID") && (variable("SLURM_STEP_ID") || variable("SLURM_STEP_NODELIST"));
}

// The variables of one launcher. NULL: it has none.
struct LauncherVariables {
  const char* rank = nullptr;
  const char* ranks = nullptr;
  const char* ranks_here = nullptr;
};

constexpr LauncherVariables kPmi = {"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE"};
bool under_pmi() { return variable("PMI_RANK") && variable("PMI_SIZE"); }

// Within a step of Slurm the ranks of another launcher inherit the variables of the one task that
// started them.
bool only_inherits(const LauncherVariables& slurm) {
  return under_pmi() &&
         (number("PMI_RANK") != number(slurm.rank) || number("PMI_SIZE") != number(slurm.ranks));
}

// Who is asked first is asked first in src/api/start/launch.cpp as well.
LauncherVariables launchers_variables() {
  const bool open_mpi = variable("OMPI_COMM_WORLD_RANK");
  const bool torchrun = variable("TORCHELASTIC_RUN_ID"), by_hand = variable("WORLD_SIZE");
  if (variable("RANK") && (torchrun || (by_hand && !open_mpi)))
    return {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
  if (open_mpi)
    return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  const char* const slurms =
      variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (variable("PMIX_RANK") && variable("PMIX_NAMESPACE")) return {"PMIX_RANK", slurms};
  const LauncherVariables slurm = {"SLURM_PROCID", slurms};
  if (in_slurm_step() && !only_inherits(slurm)) return slurm;
  return under_pmi() ? kPmi : LauncherVariables{};
}

bool read_number(std::string_view text, int* value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return failed == std::errc() && end == text.data() + text.size() && *value > 0;
}

// Of "2(x3),1", the tasks of each node in turn. 0: it says nothing of that node.
int tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    const size_t times = part.find("(x");
    const bool repeats = times != part.npos;
    int tasks = 0, nodes = 1;
    if (!read_number(part.substr(0, times), &tasks) || (repeats && part.back() != ')')) return 0;
    if (repeats && !read_number(part.substr(times + 2, part.size() - times - 3), &nodes)) return 0;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return 0;
}

int slurms_tasks_here() {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (const char* const list = variable(name)) return tasks_of_node(list, number("SLURM_NODEID"));
  return number("SLURM_NTASKS_PER_NODE");
}

}  // namespace

bool launched() { return launchers_variables().rank != nullptr; }

std::vector<std::string> variables_of_launchers() {
  std::vector<std::string> set;
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", kPmi.rank})
    if (variable(name)) set.emplace_back(name);
  return set;
}

std::string launchers_rank() {
  const char* const rank = variable(launchers_variables().rank);
  return rank ? rank : "";
}

int launchers_ranks() { return number(launchers_variables().ranks); }

int launchers_ranks_here() {
  const LauncherVariables variables = launchers_variables();
  if (!variables.rank) return 0;
  const int said = number(variables.ranks_here);
  const bool slurm_may_say = in_slurm_step() && variables.ranks_here != kPmi.ranks_here;
  return said == 0 && slurm_may_say ? slurms_tasks_here() : said;
}

}  // namespace sennit::trainer
