// kill_test.cpp: SIGKILL while checkpoints are being saved, at random moments, again and
// again: what is left under a checkpoint's name loads, bit for bit, and the next run goes on from
// it.
//
// ctest not-under-tsan: others try its threads as well
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include <fmt/core.h>

#include "tests/trainer/checkpoint/cases.hpp"

namespace sennit::trainer {
namespace {

// Large enough that a kill often meets a file half written.
const std::vector<GlobalTensor> kTensors = {
    {"weight", Type::f32, {2048, 192}},
    {"optimizer.first_moment.weight", Type::f32, {2048, 192}},
    {"norm", Type::f32, {64}},
    {"half", Type::bf16, {64, 3}}};

// The newest step there is, or 0.
int64_t newest_step(const std::string& folder) {
  const auto newest = newest_checkpoint(folder);
  if (!newest.ok() || !*newest) return 0;
  const auto checkpoint = Checkpoint::open(**newest);
  return checkpoint.ok() ? checkpoint->step() : -1;
}

// A rank of a run that does nothing but save: from the step behind the newest on, until it is
// killed.
[[noreturn]] void run_rank(const std::string& folder, int rank, int ranks, int attempt) {
  const int64_t first = newest_step(folder) + 1;
  std::vector<OwnedPiece> owned;
  for (const GlobalTensor& tensor : kTensors) {
    owned.push_back(own(tensor, whole_box(tensor.shape), nullptr));
    owned.back().piece.replica = rank;
    owned.back().piece.replicas = ranks;
  }
  const auto writer = CheckpointWriter::open({.folder = folder,
                                              .rank = rank,
                                              .ranks = ranks,
                                              .attempt = "run" + std::to_string(attempt),
                                              .keep_last = 2});
  if (!writer.ok()) _exit(3);
  for (int64_t step = first;; step++) {
    for (size_t i = 0; i < owned.size(); i++) fill(kTensors[i], owned[i].piece, step);
    if (!(*writer)->save(step, {}, {{"step", step}}, "{}", "", pieces_of(owned)).ok()) _exit(4);
  }
}

void start_ranks(const std::string& folder, int ranks, int round, std::vector<pid_t>* children) {
  for (int rank = 0; rank < ranks; rank++) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) run_rank(folder, rank, ranks, round);
    children->push_back(child);
  }
}

void kill_all(const std::vector<pid_t>& children) {
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a rank ended by itself with " << WEXITSTATUS(status);
  }
}

// Each checkpoint that has its name is whole. *hidden: a save was left half done.
void expect_all_whole(const TestFolder& folder, bool* hidden) {
  *hidden = false;
  for (const std::string& name : names_in(folder.path())) {
    *hidden = *hidden || name[0] == '.';
    if (name[0] == '.') continue;
    const auto checkpoint = Checkpoint::open(folder / name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    ASSERT_EQ(checkpoint->state()["step"], checkpoint->step());
    expect_whole(*checkpoint, kTensors);
  }
}

// Ranks' runs, killed at a random moment: all at once, or one of them (the others wait for it in
// vain).
void kill_rounds(int ranks, int rounds, unsigned seed) {
  const TestFolder folder;
  std::mt19937 random(seed);
  int64_t before = 0, progressed = 0, met_hidden = 0;
  unsigned longest = 0;  // us until a kill: twice what the first run took to its first checkpoint
  // A save takes milliseconds, and few kills may all miss it: then some more strike.
  constexpr int kMostMore = 4;
  const auto enough = [&](int round) {
    return round >= rounds && (met_hidden > 0 || round >= kMostMore * rounds);
  };
  for (int round = 0; !enough(round); round++) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", seed, round));
    std::vector<pid_t> children;
    ASSERT_NO_FATAL_FAILURE(start_ranks(folder.path(), ranks, round, &children));
    if (round == 0) {
      const auto began = std::chrono::steady_clock::now();
      for (int tries = 0; tries < 60'000 && newest_step(folder.path()) < 1; tries++) usleep(1000);
      const auto took = std::chrono::steady_clock::now() - began;
      longest = 2 * static_cast<unsigned>(
                        std::chrono::duration_cast<std::chrono::microseconds>(took).count()) +
                1;
    }
    usleep(random() % longest);
    if (ranks > 1 && random() % 2) {
      ASSERT_EQ(kill(children[random() % children.size()], SIGKILL), 0);
      usleep(random() % 20'000);
    }
    ASSERT_NO_FATAL_FAILURE(kill_all(children));
    bool hidden = false;
    ASSERT_NO_FATAL_FAILURE(expect_all_whole(folder, &hidden));
    met_hidden += hidden;
    const int64_t step = newest_step(folder.path());
    ASSERT_GE(step, before);
    progressed += step > before;
    // about half of the runs get to save
    longest = longest * (step > before ? 90u : 115u) / 100u + 1;
    before = step;
  }
  std::printf(
      "[ %d ranks ] %d kills: %d left a save half done, %d came after new checkpoints; step %d\n",
      ranks, rounds, static_cast<int>(met_hidden), static_cast<int>(progressed),
      static_cast<int>(before));
  EXPECT_GT(before, 0);
  EXPECT_GT(met_hidden, 0);
  // The next run clears what was left.
  const auto writer = CheckpointWriter::open({.folder = folder.path(), .attempt = "last"});
  ASSERT_TRUE(writer.ok());
  for (const std::string& name : names_in(folder.path())) EXPECT_NE(name[0], '.') << name;
}

#ifdef SENNIT_SANITIZED
constexpr int kFewer = 4;  // the same paths, at a pace that a sanitizer can keep
#else
constexpr int kFewer = 1;
#endif

TEST(TrainerKill, OneRankAHundredTimes) { kill_rounds(1, 100 / kFewer, 17); }
TEST(TrainerKill, TwoRanksFiftyTimes) { kill_rounds(2, 50 / kFewer, 18); }

}  // namespace
}  // namespace sennit::trainer
