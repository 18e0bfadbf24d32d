// replanning_test.cpp: ranks change their plans while they make calls, and every call runs under
// one plan on all of them, with the right result. SWITCHES=10000 changes so often.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "sennit/sennit.h"
#include "tests/support/processes.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"

using namespace std::chrono_literals;
using sennit::SlowBoundary;
using sennit_test::Processes;

namespace {

constexpr int kRanks = 4;
// Each rank is a host of its own, by name, so that there are boundaries to be slow.
const Processes::Environment kEnvironment = {
    {"SENNIT_FABRIC", "synthetic:racks=2x2;nic=400Mbit/s;oversubscription=4"},
    {"SENNIT_STALL", "20"}};  // ranks compare their calls all the time

const std::vector<std::vector<SlowBoundary>> kVersions = {
    {{"h1", true, 250}, {"h1", false, 250}},
    {{"h2", false, 100}},
    {},
    {{"h0", true, 400}, {"h3", false, 300}, {"a boundary of other jobs", true, 10}}};

int switches() {
  const char* const asked = std::getenv("SWITCHES");
  return asked ? std::atoi(asked) : sennit_test::trials(200);
}

sennit_comm_t start(int rank) {
  setenv("SLURMD_NODENAME", fmt::format("h{}", rank).c_str(), 1);
  sennit_comm_t comm = nullptr;
  return sennit_comm_init_env(&comm, nullptr) == SENNIT_OK ? comm : nullptr;
}

// The first thing that went wrong on this rank.
class Judge {
 public:
  void ok(sennit_status_t status, const char* what) {
    if (status != SENNIT_OK && wrong_.empty())
      wrong_ = fmt::format("{}: {}", what, sennit_last_error());
  }
  void same(const std::vector<int32_t>& got, int32_t expected, const char* what) {
    for (size_t i = 0; i < got.size() && wrong_.empty(); i++)
      if (got[i] != expected)
        wrong_ = fmt::format("{}: element {} is {}, not {}", what, i, got[i], expected);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  std::string wrong_;
};

void all_reduce(sennit_comm_t comm, size_t count, int32_t base, Judge& judge) {
  int rank = 0, size = 0;
  sennit_comm_rank(comm, &rank);
  sennit_comm_size(comm, &size);
  std::vector<int32_t> in(count, base + rank), out(count, -1);
  judge.ok(sennit_all_reduce(in.data(), out.data(), count, SENNIT_INT32, SENNIT_SUM, comm),
           "all_reduce");
  judge.same(out, size * base + size * (size - 1) / 2, "all_reduce");
}

void nonblocking(sennit_comm_t comm, int32_t base, Judge& judge, bool grouped) {
  constexpr size_t kWorks = 6, kCount = 4'000;
  int rank = 0, size = 0;
  sennit_comm_rank(comm, &rank);
  sennit_comm_size(comm, &size);
  std::vector<std::vector<int32_t>> in(kWorks), out(kWorks);
  std::vector<sennit_work_t> works(kWorks);
  if (grouped) judge.ok(sennit_group_start(), "group");
  for (size_t w = 0; w < kWorks; w++) {
    in[w].assign(kCount * (w + 1), base + rank + static_cast<int>(w));
    out[w].assign(in[w].size(), -1);
    judge.ok(sennit_all_reduce_start(in[w].data(), out[w].data(), in[w].size(), SENNIT_INT32,
                                     SENNIT_SUM, comm, &works[w]),
             "all_reduce_start");
  }
  if (grouped) judge.ok(sennit_group_end(), "group");
  for (size_t w = kWorks; w-- > 0;) {
    judge.ok(sennit_work_wait(works[w], -1), "wait");
    sennit_work_free(works[w]);
    judge.same(out[w], size * (base + static_cast<int>(w)) + size * (size - 1) / 2, "work");
  }
}

// With counts of their own, which a plan that changes must not lose.
void gather_unequal(sennit_comm_t comm, int32_t base, Judge& judge) {
  int rank = 0;
  sennit_comm_rank(comm, &rank);
  const std::vector<size_t> counts = {3'000, 0, 17, 9'000}, offsets = {9'017, 9'017, 9'000, 0};
  std::vector<int32_t> in(counts[static_cast<size_t>(rank)], base + rank), out(12'017, -1);
  judge.ok(
      sennit_all_gather_v(in.data(), out.data(), counts.data(), offsets.data(), SENNIT_INT32, comm),
      "all_gather_v");
  for (size_t r = 0; r < counts.size(); r++)
    judge.same({out.begin() + static_cast<ptrdiff_t>(offsets[r]),
                out.begin() + static_cast<ptrdiff_t>(offsets[r] + counts[r])},
               base + static_cast<int>(r), "all_gather_v");
}

// A round of calls of many kinds on the communicator of all and on one of some.
void one_round(sennit_comm_t comm, sennit_comm_t part, int round, Judge& judge) {
  for (int i = 0; i < 5; i++) all_reduce(comm, 1, round + i, judge);
  all_reduce(comm, 3'000, round, judge);
  all_reduce(comm, 60'000, round, judge);
  all_reduce(part, 1, round, judge);
  all_reduce(part, 20'000, round, judge);
  gather_unequal(comm, round, judge);
  nonblocking(comm, round, judge, false);
  nonblocking(part, round, judge, true);
  std::vector<int32_t> data(10'000, round);
  judge.ok(sennit_broadcast(data.data(), data.data(), data.size(), SENNIT_INT32, 1, comm),
           "broadcast");
  judge.same(data, round, "broadcast");
  if (round % 10 != 0) return;
  sennit_comm_t young = nullptr;
  judge.ok(sennit_comm_split(comm, 0, 0, &young), "split");
  if (!young) return;
  for (int i = 0; i < 20; i++) all_reduce(young, 500, i, judge);
  judge.ok(sennit_comm_finalize(young), "finalize");
  sennit_comm_destroy(young);
}

// At rank 0: proposes versions one after the other until so many are in force, as calls see it, and
// until the plans have been seen to change, for few versions may come and go within one round.
void propose(sennit::Communicator& communicator, int count, const std::atomic<bool>& seen,
             std::atomic<bool>& over) {
  sennit::Context& context = communicator.context();
  for (int n = 0; n < count || !seen; n++) {
    const uint64_t before = context.replanning().latest()->number;
    context.replanning().propose(kVersions[static_cast<size_t>(n) % kVersions.size()]);
    // Every third is overtaken by the next before ranks have come to it.
    if (n % 3 == 2) continue;
    while (communicator.fabric_version() <= before) std::this_thread::sleep_for(50us);
  }
  over = true;
}

std::string calls_under_change(int rank) {
  sennit_comm_t comm = start(rank), part = nullptr;
  if (!comm) return sennit_last_error();
  if (sennit_comm_split(comm, rank % 2, 0, &part) != SENNIT_OK) return sennit_last_error();
  sennit::Communicator& communicator = sennit::internal(comm);
  std::atomic<bool> over = false, seen = false;
  std::thread proposer;
  if (rank == 0) proposer = std::thread([&] { propose(communicator, switches(), seen, over); });
  Judge judge;
  std::set<uint64_t> plans;
  int32_t go_on = 1;
  for (int round = 0; go_on && judge.wrong().empty(); round++) {
    one_round(comm, part, round, judge);
    sennit::Request request;
    request.collective = sennit::Collective::all_reduce;
    request.count = 60'000;
    if (const auto plan = communicator.plan(request); plan) plans.insert(plan->hash);
    seen = plans.size() > 1;
    go_on = rank != 0 || !over;
    judge.ok(sennit_broadcast(&go_on, &go_on, 1, SENNIT_INT32, 0, comm), "going on");
  }
  if (judge.wrong().empty()) {
    judge.ok(sennit_comm_finalize(part), "finalize");
    judge.ok(sennit_comm_finalize(comm), "finalize");
  }
  if (proposer.joinable()) judge.wrong().empty() ? proposer.join() : proposer.detach();
  sennit_comm_destroy(part);
  sennit_comm_destroy(comm);
  return judge.wrong().empty() ? "well" : judge.wrong();
}

TEST(Replanning, EveryCallRunsUnderOnePlan) {
  Processes ranks(kRanks, calls_under_change, kEnvironment);
  for (const auto& report : ranks.reports(std::chrono::seconds(60 + switches() / 10)))
    EXPECT_EQ(report.value_or("nothing"), "well");
}

// Ranks 1 to 3 have a communicator of their own, and go on when rank 0, who was asking them for
// new plans, ends.
std::string calls_after_the_coordinators_end(int rank, unsigned after_us) {
  sennit_comm_t comm = start(rank), part = nullptr;
  if (!comm) return sennit_last_error();
  if (sennit_comm_split(comm, rank == 0 ? SENNIT_NO_COLOR : 0, 0, &part) != SENNIT_OK)
    return sennit_last_error();
  if (rank == 0) {
    sennit::Replanning& replanning = sennit::internal(comm).context().replanning();
    for (const auto& version : kVersions) replanning.propose(version);
    std::this_thread::sleep_for(std::chrono::microseconds(after_us));
    kill(getpid(), SIGKILL);
  }
  Judge judge;
  const auto end = std::chrono::steady_clock::now() + 1s;
  int32_t go_on = 1;
  while (go_on && judge.wrong().empty()) {
    all_reduce(part, 1, 3, judge);
    all_reduce(part, 5'000, 3, judge);
    int own = 0;
    sennit_comm_rank(part, &own);
    go_on = own != 0 || std::chrono::steady_clock::now() < end;
    judge.ok(sennit_broadcast(&go_on, &go_on, 1, SENNIT_INT32, 0, part), "going on");
  }
  sennit_comm_destroy(part);
  sennit_comm_destroy(comm);
  return judge.wrong().empty() ? "well" : judge.wrong();
}

TEST(Replanning, OutlivesTheCoordinator) {
  std::mt19937_64 random(sennit_test::seed());
  for (int trial = 0; trial < sennit_test::trials(5); trial++) {
    const auto after_us = static_cast<unsigned>(random() % 3'000);
    Processes ranks(
        kRanks, [&](int rank) { return calls_after_the_coordinators_end(rank, after_us); },
        kEnvironment);
    const auto reports = ranks.reports(240s);
    for (size_t r = 1; r < reports.size(); r++)
      EXPECT_EQ(reports[r].value_or("nothing"), "well") << "rank " << r << ", " << after_us;
  }
}

}  // namespace
