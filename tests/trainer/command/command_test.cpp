// command_test.cpp: `sennit train` as processes: both communication back ends take the same
// steps on every kind of mesh, and a call that cannot be honoured is refused once, not by every
// rank.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command sennit_trainer_command
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "tests/trainer/command/train_command.hpp"
#include "trainer/base/files.hpp"

namespace sennit::trainer {
namespace {

using sennit_test::sh;

TEST_F(TrainCommand, BothBackEndsTakeTheSameSteps) {
  if (sh("command -v mpirun").status != 0) GTEST_SKIP() << "no mpirun here";
  if (!std::filesystem::exists(SENNIT_BINARY_DIR "/lib/libsennit_trainer_mpi.so") &&
      !std::filesystem::exists(SENNIT_BINARY_DIR "/bin/libsennit_trainer_mpi.so"))
    GTEST_SKIP() << "built without MPI";
  int number = 0;
  for (const char* mesh : {"--pp 2", "--cp 2", "--pp 2 --stage-chunks 2", "--pp 2 --cp 2",
                           "--tp 2 --zero 1", "--zero 3 --overlap false"}) {
    const int ranks = number % 2 == 0 ? 2 : 4;
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, mesh));
    const std::string ours = folder_ / fmt::format("sennit{}", number),
                      theirs = folder_ / fmt::format("mpi{}", number);
    number++;
    const auto sennit = sh(train(fmt::format("--local {} {} --report-dir {}", ranks, mesh, ours)));
    ASSERT_EQ(sennit.status, 0) << sennit.output;
    const auto mpi =
        sh(fmt::format("mpirun --allow-run-as-root --oversubscribe -np {} {}", ranks,
                       train(fmt::format("--backend mpi {} --report-dir {}", mesh, theirs))));
    ASSERT_EQ(mpi.status, 0) << mpi.output;
    const std::vector<double> a = losses(ours), b = losses(theirs);
    ASSERT_EQ(a.size(), 3u);
    ASSERT_EQ(b.size(), 3u);
    for (size_t i = 0; i < 3; i++) EXPECT_NEAR(a[i], b[i], 1e-5 * a[i]) << "step " << i + 1;
  }
}

// MPI ends the job and with it the rank that had the error: not before that is told.
TEST_F(TrainCommand, AnErrorIsToldBeforeMpiEndsTheJob) {
  if (sh("command -v mpirun").status != 0) GTEST_SKIP() << "no mpirun here";
  if (!std::filesystem::exists(SENNIT_BINARY_DIR "/lib/libsennit_trainer_mpi.so") &&
      !std::filesystem::exists(SENNIT_BINARY_DIR "/bin/libsennit_trainer_mpi.so"))
    GTEST_SKIP() << "built without MPI";
  std::ofstream(folder_ / "rank.sh")
      << "trap '' XFSZ\n[ $OMPI_COMM_WORLD_RANK != $LIMITED ] || ulimit -f 100\nexec "
      << train("--backend mpi --save-every 1 --checkpoint-dir " + folder_ / "run") << "\n";
  for (const auto& [ranks, limited] : {std::pair{1, 0}, std::pair{2, 1}}) {
    SCOPED_TRACE(fmt::format("rank {} of {}", limited, ranks));
    std::filesystem::remove_all(folder_ / "run");
    const auto failed =
        sh(fmt::format("LIMITED={} mpirun --allow-run-as-root --oversubscribe -np {} sh {}",
                       limited, ranks, folder_ / "rank.sh"));
    EXPECT_NE(failed.status, 0) << failed.output;
    EXPECT_NE(failed.output.find("sennit train: checkpoint of step 1: "), std::string::npos)
        << failed.output;
    EXPECT_NE(failed.output.find("cannot be written: File too large"), std::string::npos)
        << failed.output;
  }
}

TEST_F(TrainCommand, RefusesACallOnceForAllRanks) {
  for (const auto& [options, words] :
       {std::pair{"--tp 4", "--tp 4 does not divide the key/value heads"},
        std::pair{"--precision f16", "f16"}, std::pair{"--data /nowhere", "/nowhere"},
        std::pair{"--report-dir /proc/x", "/proc/x"},
        std::pair{"--checkpoint-dir /proc/x", "/proc/x"}}) {
    const auto refused = sh(train(fmt::format("--local 4 {}", options)));
    EXPECT_EQ(refused.output.find("left the job"), std::string::npos) << refused.output;
    EXPECT_EQ(refused.status, 2) << refused.output;
    const size_t first = refused.output.find(words);
    EXPECT_NE(first, std::string::npos) << refused.output;
    EXPECT_EQ(refused.output.find("sennit train:"), refused.output.rfind("sennit train:"))
        << refused.output;
  }
}

TEST_F(TrainCommand, OneRankTellsOfALossThatIsNoNumber) {
  const auto failed = sh(train("--local 4 --tp 2 --pp 2 --learning-rate 1e30 --warm-up-steps 0"));
  EXPECT_EQ(failed.status, 1) << failed.output;
  const size_t first = failed.output.find("first tensor that is not finite");
  EXPECT_NE(first, std::string::npos) << failed.output;
  EXPECT_EQ(first, failed.output.rfind("first tensor that is not finite")) << failed.output;
}

TEST_F(TrainCommand, SaysWhatToDoWithADamagedCorpus) {
  for (const char* file : {"index.json", "training-00000.tokens", "tokenizer.model"}) {
    const std::string data = folder_ / fmt::format("without-{}", file);
    std::filesystem::copy(folder_ / "data", data);
    if (std::string_view(file) == "index.json")
      change_byte(data + "/index.json", 30, 1);
    else
      std::filesystem::remove(data + "/" + file);
    const auto refused = sh(train("--local 2 --data " + data));
    EXPECT_EQ(refused.status, 2) << refused.output;
    const size_t advice = refused.output.find("Run sennit tokenize again");
    EXPECT_NE(advice, std::string::npos) << refused.output;
    EXPECT_EQ(advice, refused.output.rfind("Run sennit tokenize again")) << refused.output;
  }
}

TEST_F(TrainCommand, SaysThatAllStepsAreDone) {
  const std::string options = "--local 2 --checkpoint-dir " + folder_ / "run";
  EXPECT_EQ(sh(train(options)).status, 0);
  const auto again = sh(train(options));
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("step 3 is reached already: nothing to train with --steps 3"),
            std::string::npos)
      << again.output;
}

TEST_F(TrainCommand, AStopByPatienceHolds) {
  const std::string options =
      "--local 2 --steps 9 --evaluate-every 1 --learning-rate 0 --least-learning-rate 0 "
      "--checkpoint-dir " +
      folder_ / "run" + " --patience ";
  const auto stopped = sh(train(options + "1"));
  EXPECT_EQ(stopped.status, 0) << stopped.output;
  EXPECT_NE(stopped.output.find("no better held-out loss 1 times: stopped"), std::string::npos)
      << stopped.output;
  const auto again = sh(train(options + "1 --report-dir " + folder_ / "again"));
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_NE(again.output.find("the last 1 held-out losses were no better already: nothing to train "
                              "with --patience 1"),
            std::string::npos)
      << again.output;
  EXPECT_EQ(records(folder_ / "again").size(), 0u);
  // With more of it the run goes on.
  const auto more = sh(train(options + "2 --report-dir " + folder_ / "more"));
  EXPECT_EQ(more.status, 0) << more.output;
  EXPECT_EQ(records(folder_ / "more").size(), 1u) << more.output;
}

TEST_F(TrainCommand, RanksAreLaunchedWhereSennitCanStartThem) {
  const auto batch_script = sh("SLURM_PROCID=0 SLURM_NTASKS=4 " + train("--local 2"));
  EXPECT_EQ(batch_script.status, 0) << batch_script.output;
  EXPECT_NE(batch_script.output.find("dp 2 "), std::string::npos) << batch_script.output;
  const auto half = sh("RANK=0 " + train(""));
  EXPECT_EQ(half.status, 0) << half.output;
  EXPECT_NE(half.output.find("dp 1 "), std::string::npos) << half.output;
}

TEST_F(TrainCommand, PlansForTheRanksThatTheCallWouldStart) {
  const auto planned = sh(train("--dry-run --local 8 --tp 2"));
  EXPECT_EQ(planned.status, 0) << planned.output;
  EXPECT_NE(planned.output.find("dp 4 x pp 1 x cp 1 x tp 2 on 1 host,"), std::string::npos)
      << planned.output;
  EXPECT_NE(planned.output.find(" 1 micro-batch of 2"), std::string::npos) << planned.output;
  // Under a launcher: one answer, for all that were started.
  const auto first = sh("RANK=0 WORLD_SIZE=4 " + train("--dry-run"));
  EXPECT_EQ(first.status, 0) << first.output;
  EXPECT_NE(first.output.find("mesh     dp 4 "), std::string::npos) << first.output;
  const auto second = sh("RANK=1 WORLD_SIZE=4 " + train("--dry-run"));
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.output, "");
}

TEST_F(TrainCommand, OptionsOfADryRunAloneAreRefusedElsewhere) {
  for (const char* option : {"--ranks 2", "--fabric synthetic:meta24k", "--memory-per-rank 64G"}) {
    const auto refused = sh(train(option));
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_NE(refused.output.find("requires --dry-run"), std::string::npos) << refused.output;
  }
  EXPECT_EQ(sh(train("--dry-run --local 2 --ranks 4")).status, 2);
}

// Of ranks that take turns on the cores: 32 for each core have a 32nd of one each. A core's rate is
// measured, and other tests may have the core just then: the best of a few is what it can do.
TEST_F(TrainCommand, APlanSharesTheCoresOfAHostWithThreadsGiven) {
  const auto peak = [&](int ranks) {
    const auto planned =
        sh(train(fmt::format("--dry-run --ranks {} --batch {}", ranks, 2 * ranks)));
    EXPECT_EQ(planned.status, 0) << planned.output;
    const size_t at = planned.output.find("this machine's ");
    return at == std::string::npos ? 0 : std::atof(planned.output.c_str() + at + 15);
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  constexpr int kTries = 5;
  const double crowded = peak(32 * cores);
  double alone = 0;
  for (int i = 0; i < kTries && crowded >= alone / 4; i++) alone = std::max(alone, peak(1));
  EXPECT_GT(crowded, 0);
  EXPECT_LT(crowded, alone / 4);
}

// The memory of this machine says nothing about another one's.
TEST_F(TrainCommand, APlanForAnotherFabricIsHeldAgainstTheMemoryItIsToldOf) {
  std::ofstream(folder_ / "large.json") << fmt::format(
      R"({{"model": {{"model_type": "llama", "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 512,
          "num_attention_heads": 512, "num_key_value_heads": 8, "max_position_embeddings": 64}},
          "data": "{}", "sequence": 32, "batch": 8, "threads": 1}})",
      folder_ / "data");
  const std::string plan = fmt::format("{} train {} --dry-run ", kSennit, folder_ / "large.json");
  const auto here = sh(plan);
  EXPECT_EQ(here.status, 3) << here.output;
  EXPECT_NE(here.output.find("it still needs"), std::string::npos) << here.output;
  const auto there = sh(plan + "--fabric meta24k --ranks 8 2>&1");
  EXPECT_EQ(there.status, 0) << there.output;
  EXPECT_NE(there.output.find("--memory-per-rank says what"), std::string::npos) << there.output;
  const auto told = sh(plan + "--fabric meta24k --ranks 8 --memory-per-rank 80G");
  EXPECT_EQ(told.status, 3) << told.output;
  EXPECT_NE(told.output.find("80.0 GB are there for it"), std::string::npos) << told.output;
}

TEST_F(TrainCommand, SaysByItsOwnNameThatARankWasKilled) {
  const auto killed = sh(fmt::format(
      "(timeout 100 {} & job=$!; children() {{ cat /proc/$1/task/$1/children; }}; "
      "until set -- $(children $job) && [ $1 ]; do sleep 0.05; done; job=$1; "
      "until set -- $(children $job) && [ $1 ]; do sleep 0.05; done; kill -9 $1; wait) 2>&1",
      train("--local 2 --steps 1000000 --log-every 1000000")));
  EXPECT_NE(killed.output.find("sennit train: rank 0 was killed by signal 9"), std::string::npos)
      << killed.output;
  EXPECT_EQ(killed.output.find("sennit bench"), std::string::npos) << killed.output;
}

TEST_F(TrainCommand, LocalRanksAreNotAnotherLaunchers) {
  const std::string launched = "RANK=0 WORLD_SIZE=1 ";
  for (const auto& [before, words] :
       {std::pair{std::string("RANK=0 WORLD_SIZE=3 "),
                  "--local 2, but a launcher started 3: leave --local out"},
        std::pair{launched, "--local 2 in the only task of a launcher"}}) {
    const auto refused = sh(before + train("--local 2"));
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_NE(refused.output.find(words), std::string::npos) << refused.output;
  }
  // What it says then is true.
  EXPECT_NE(sh(launched + train("--local 2")).output.find("env -u RANK sennit train"),
            std::string::npos);
  const auto alone = sh(launched + "env -u RANK " + train("--local 2"));
  EXPECT_EQ(alone.status, 0) << alone.output;
  const auto planned = sh(launched + train("--local 2 --dry-run"));
  EXPECT_EQ(planned.status, 0) << planned.output;
  EXPECT_NE(planned.output.find("mesh     dp 2 x"), std::string::npos) << planned.output;
}

TEST_F(TrainCommand, AnEmptyTextOverridesTheFile) {
  std::string text = *read_file(folder_ / "config.json");
  text.insert(text.rfind('}'), R"(, "report_dir": "/nowhere/r", "checkpoint_dir": "/nowhere/c")");
  std::ofstream(folder_ / "config.json") << text;
  const auto trained = sh(train("--report-dir '' --checkpoint-dir \"\""));
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(sh(train("--local ''")).output.find("--local: expected a value and found none"),
            std::string::npos);
  const auto refused = sh(train("--data ''"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("no data"), std::string::npos) << refused.output;
}

// MPI that was not started by its own launcher is a job of one rank in each process.
TEST_F(TrainCommand, RanksThatMpiDoesNotKnowOfDoNotTrainAlone) {
  const std::string probe = train("--backend mpi --steps 1");
  if (sh(probe).output.find("cannot be opened") != std::string::npos)
    GTEST_SKIP() << "built without MPI";
  const auto local = sh(train("--backend mpi --local 2"));
  EXPECT_EQ(local.status, 2) << local.output;
  EXPECT_NE(local.output.find("--backend mpi: --local starts no MPI"), std::string::npos)
      << local.output;
  // One after another: Open MPI makes its folder on a host without care for who else makes it.
  const auto first = sh("RANK=0 WORLD_SIZE=2 " + probe),
             second = sh("RANK=1 WORLD_SIZE=2 " + probe);
  EXPECT_EQ(first.status, 2) << first.output;
  EXPECT_NE(first.output.find("the launcher started 2 ranks, and MPI sees 1"), std::string::npos)
      << first.output;
  EXPECT_EQ(second.status, 2) << second.output;
  EXPECT_EQ(second.output.find("the launcher"), std::string::npos) << second.output;
}

TEST_F(TrainCommand, ThePageOfAnyRunIsThere) {
  const std::string into = "--checkpoint-dir " + folder_ / "run" + " --report-dir ";
  const auto made = sh(train("--evaluate-every 2 " + into + folder_ / "first"));
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("tokens/s, MFU"), std::string::npos) << made.output;
  const std::string page = *read_file(folder_ / "first/report.html");
  for (const char* const fact :
       {"throughput</td><td>", " FLOP: 6 a parameter", "matrix peak", "copy to save"})
    EXPECT_NE(page.find(fact), std::string::npos) << fact;
  // Nothing is left to train, and nothing is known of the steps before.
  const auto over = sh(train(into + folder_ / "second"));
  ASSERT_EQ(over.status, 0) << over.output;
  EXPECT_NE(read_file(folder_ / "second/report.html")->find("memory of a rank"), std::string::npos);
  const auto failed = sh(
      train("--learning-rate 1e30 --warm-up-steps 0 --steps 9 --report-dir " + folder_ / "third"));
  EXPECT_EQ(failed.status, 1) << failed.output;
  EXPECT_NE(read_file(folder_ / "third/report.html")->find("ended</td><td>step 2: the loss is"),
            std::string::npos);
}

TEST_F(TrainCommand, WithoutHeldOutTextPatienceIsRefused) {
  const auto tokenized =
      sh(fmt::format("{} tokenize --output {} --vocabulary 320 --validation 0 {}", kSennit,
                     folder_ / "all", folder_ / "texts"));
  ASSERT_EQ(tokenized.status, 0) << tokenized.output;
  const std::string data = "--local 2 --evaluate-every 1 --data " + folder_ / "all";
  const auto told = sh(train(data));
  EXPECT_EQ(told.status, 0) << told.output;
  EXPECT_NE(
      told.output.find("held-out part of 0 tokens has not one sequence of 32: no held-out losses"),
      std::string::npos)
      << told.output;
  const auto refused = sh(train(data + " --patience 2"));
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_NE(refused.output.find("--patience has no loss to go by"), std::string::npos)
      << refused.output;
}

TEST_F(TrainCommand, SizesBelowOneByteAreRefused) {
  const std::string sennit = kSennit;
  for (const std::string& call :
       {train("--dry-run --memory-per-rank -1"), train("--dry-run --memory-per-rank 0"),
        sennit + " tokenize --output " + folder_ / "o" + " --sample -1 " + folder_ / "texts" +
            " 2>&1",
        sennit + " tokenize --output " + folder_ / "o" + " --min-length -1 " + folder_ / "texts" +
            " 2>&1",
        sennit + " checkpoint bench --size -1 --folder " + folder_.path() + " 2>&1",
        sennit + " checkpoint bench --size 1M --folder " + folder_ / "none" + " 2>&1"}) {
    const auto refused = sh(call);
    EXPECT_EQ(refused.status, 2) << call << "\n" << refused.output;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
}

TEST_F(TrainCommand, VerifyTellsOfANewerCheckpointThatDoesNotOpen) {
  ASSERT_EQ(sh(train("--save-every 1 --checkpoint-dir " + folder_ / "run")).status, 0);
  const std::string verify = fmt::format("{} checkpoint verify {} 2>&1", kSennit, folder_ / "run");
  EXPECT_EQ(sh(verify).status, 0);
  std::filesystem::remove(folder_ / "run/step-00000003/manifest.json");
  const auto passed_over = sh(verify);
  EXPECT_EQ(passed_over.status, 1) << passed_over.output;
  EXPECT_NE(passed_over.output.find("step-00000003: passed over"), std::string::npos)
      << passed_over.output;
  EXPECT_NE(passed_over.output.find("every checksum is right"), std::string::npos)
      << passed_over.output;
  const auto resumed = sh(train("--resume nowhere --checkpoint-dir " + folder_ / "run"));
  EXPECT_EQ(resumed.status, 2) << resumed.output;
  EXPECT_NE(resumed.output.find("--resume takes yes, no or a checkpoint's folder"),
            std::string::npos)
      << resumed.output;
}

TEST_F(TrainCommand, ALimitOfTheAddressSpaceIsALimitOfMemory) {
  std::ofstream(folder_ / "large.json") << fmt::format(
      R"({{"model": {{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8,
          "max_position_embeddings": 64}}, "data": "{}", "sequence": 32, "threads": 1}})",
      folder_ / "data");
  const auto refused =
      sh(fmt::format("ulimit -v 1500000; {} train {} 2>&1", kSennit, folder_ / "large.json"));
  EXPECT_EQ(refused.status, 3) << refused.output;
  EXPECT_NE(refused.output.find("are there for it"), std::string::npos) << refused.output;
}

TEST_F(TrainCommand, EveryHeldOutLossIsOfTheSameText) {
  const auto made =
      sh(train("--learning-rate 0 --least-learning-rate 0 --batch 2 --evaluate-every 1 "
               "--evaluate-batches 1 --report-dir " +
               folder_ / "report"));
  ASSERT_EQ(made.status, 0) << made.output;
  const std::vector<StepRecord> steps = records(folder_ / "report");
  ASSERT_EQ(steps.size(), 3u);
  for (const StepRecord& step : steps) EXPECT_EQ(step.held_out, steps[0].held_out);
  EXPECT_TRUE(steps[0].held_out);
}

}  // namespace
}  // namespace sennit::trainer
