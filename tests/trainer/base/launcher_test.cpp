// launcher_test.cpp: by which variables a process is a rank, and what its share of the host is.
//
// ctest not-under-tsan: its threads run one after the other
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>

#include "trainer/base/launcher.hpp"
#include "trainer/base/local_ranks.hpp"

namespace sennit::trainer {
namespace {

using Variables = std::map<std::string, std::string>;

// Sets these variables and no other of any launcher's; puts everything back afterwards.
class LaunchersEnvironment {
 public:
  explicit LaunchersEnvironment(const Variables& variables) {
    for (char** entry = environ; *entry; entry++) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix :
           {"OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_"})
        if (name.starts_with(prefix)) before_[name] = text.substr(name.size() + 1);
    }
    for (const auto& [name, value] : before_) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    set_ = variables;
  }
  ~LaunchersEnvironment() {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  LaunchersEnvironment(const LaunchersEnvironment&) = delete;
  LaunchersEnvironment& operator=(const LaunchersEnvironment&) = delete;

 private:
  Variables before_, set_;
};

const Variables kStep = {{"SLURM_PROCID", "3"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_NTASKS", "64"},
                         {"SLURM_STEP_NUM_TASKS", "8"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(TrainerLauncher, WhatStartsNoRankLaunchesNone) {
  for (const Variables& variables : {Variables{},
                                     {{"RANK", "0"}},
                                     {{"WORLD_SIZE", "2"}},
                                     {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}},
                                     {{"SLURM_STEP_ID", "0"}},
                                     {{"PMIX_RANK", "0"}},
                                     {{"PMI_RANK", "0"}},
                                     {{"RANK", ""}, {"WORLD_SIZE", "2"}}}) {
    const LaunchersEnvironment environment(variables);
    EXPECT_FALSE(launched());
    EXPECT_EQ(launchers_rank(), "");
    EXPECT_EQ(launchers_ranks(), 0);
    EXPECT_EQ(ranks_on_this_host(), 1);
  }
}

TEST(TrainerLauncher, SaysRankAndRanks) {
  const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"LOCAL_WORLD_SIZE", "2"}};
  const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "7"},
                              {"OMPI_COMM_WORLD_SIZE", "9"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  const Variables pmix = {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "n"}};
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_LOCAL_SIZE", "4"}};
  struct Case {
    Variables variables;
    const char* rank;
    int ranks, here;
  };
  for (const Case& c :
       {Case{torchrun, "5", 6, 2}, Case{open_mpi, "7", 9, 3},
        Case{with(open_mpi, torchrun), "7", 9, 3},
        Case{with(with(open_mpi, torchrun), {{"TORCHELASTIC_RUN_ID", "r"}}), "5", 6, 2},
        Case{pmix, "2", 0, 1}, Case{with(kStep, pmix), "2", 8, 1}, Case{kStep, "3", 8, 1},
        Case{with(kStep, torchrun), "5", 6, 2}, Case{pmi, "1", 4, 4},
        Case{with(kStep, pmi), "1", 4, 4},
        Case{with(kStep, {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}), "3", 8, 1}}) {
    const LaunchersEnvironment environment(c.variables);
    EXPECT_TRUE(launched());
    EXPECT_EQ(launchers_rank(), c.rank);
    EXPECT_EQ(launchers_ranks(), c.ranks) << c.rank;
    EXPECT_EQ(ranks_on_this_host(), c.here) << c.rank;
  }
}

// In a step, whoever started its ranks and whatever the job has asked for.
TEST(TrainerLauncher, SlurmSaysHowManyTasksThisNodeHas) {
  struct Case {
    const char *list, *node;
    int here;
  };
  for (const Case& c :
       {Case{"8", "0", 8}, Case{"2(x3),1", "0", 2}, Case{"2(x3),1", "2", 2},
        Case{"2(x3),1", "3", 1}, Case{"2(x3),1", "4", 1}, Case{"2(x3),5,7", "3", 5},
        Case{"4,6(x2)", "2", 6}, Case{"2(x", "0", 1}, Case{"2(x)", "0", 1}, Case{"many", "0", 1}}) {
    const Variables lists = {{"SLURM_STEP_TASKS_PER_NODE", c.list},
                             {"SLURM_NODEID", c.node},
                             {"SLURM_TASKS_PER_NODE", "64"},
                             {"SLURM_NTASKS_PER_NODE", "64"}};
    const Variables by_hand = {{"RANK", "0"}, {"WORLD_SIZE", "8"}};
    const Variables pmix = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "n"}};
    for (const Variables& more : {Variables{}, by_hand, pmix}) {
      const LaunchersEnvironment environment(with(with(kStep, lists), more));
      EXPECT_EQ(ranks_on_this_host(), c.here) << c.list << " of node " << c.node;
    }
  }
  const LaunchersEnvironment of_the_job(with(kStep, {{"SLURM_TASKS_PER_NODE", "4(x2)"}}));
  EXPECT_EQ(ranks_on_this_host(), 4);
}

TEST(TrainerLauncher, ARankHasItsShareOfTheCoresAndNoMoreThanItMayRunOn) {
  const int cores = cores_of_this_host();
  std::thread([cores] {
    const Variables ranks = {
        {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", std::to_string(2 * cores)}};
    {
      const LaunchersEnvironment environment(ranks);
      EXPECT_EQ(threads_of_a_rank(0), 1);
      EXPECT_EQ(threads_of_a_rank(3), 3);
    }
    const LaunchersEnvironment alone({});
    EXPECT_EQ(threads_of_a_rank(0), std::min(cores, cores_of_this_process()));
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    int core = 0;
    while (!CPU_ISSET(core, &all)) core++;
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // of this thread
    EXPECT_EQ(cores_of_this_process(), 1);
    EXPECT_EQ(threads_of_a_rank(0), 1);
  }).join();
}

}  // namespace
}  // namespace sennit::trainer
