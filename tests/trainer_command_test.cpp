// trainer_command_test.cpp: `sennit train` as processes: both communication back ends take the same steps on
// every kind of mesh, and a call that cannot be honoured is refused once, not by every rank.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "shell.hpp"
#include "test_folder.hpp"
#include "train_log.hpp"

namespace sennit::trainer {
namespace {

using sennit_test::sh;

constexpr const char* kSennit = SENNIT_BINARY_DIR "/bin/sennit";

// A corpus and a configuration of a few seconds.
class TrainerCommand : public testing::Test {
 protected:
  void SetUp() override {
#ifdef SENNIT_SANITIZED
    GTEST_SKIP() << "many processes, and MPI's; the trainer's other tests run this code in threads";
#endif
    std::filesystem::create_directories(folder_ / "texts");
    for (int document = 0; document < 60; document++) {
      std::ofstream text(folder_ / fmt::format("texts/{}.txt", document));
      for (int line = 0; line < 40; line++)
        text << fmt::format("line {} of document {} says {}\n", line, document, line * document % 17);
    }
    const auto tokenized = sh(fmt::format("{} tokenize --output {} --vocabulary 320 {} 2>&1", kSennit,
                                          folder_ / "data", folder_ / "texts"));
    ASSERT_EQ(tokenized.status, 0) << tokenized.output;
    std::ofstream(folder_ / "config.json") << fmt::format(
        R"({{"model": {{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}},
            "data": "{}", "sequence": 32, "batch": 8, "micro_batch": 2, "steps": 3, "sample_tokens": 0,
            "threads": 1, "precision": "f32", "warm_up_steps": 1}})",
        folder_ / "data");
  }
  std::string train(const std::string& options) const {
    return fmt::format("{} train {} {} 2>&1", kSennit, folder_ / "config.json", options);
  }
  // Losses of the steps.
  std::vector<double> losses(const std::string& report) const {
    std::ifstream file(report + "/steps.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(file, line);) losses.push_back(StepRecord::from_json(line)->loss);
    return losses;
  }
  TestFolder folder_;
};

TEST_F(TrainerCommand, BothBackEndsTakeTheSameSteps) {
  if (sh("command -v mpirun").status != 0) GTEST_SKIP() << "no mpirun here";
  if (!std::filesystem::exists(SENNIT_BINARY_DIR "/lib/libsennit_trainer_mpi.so") &&
      !std::filesystem::exists(SENNIT_BINARY_DIR "/bin/libsennit_trainer_mpi.so"))
    GTEST_SKIP() << "built without MPI";
  int number = 0;
  for (const char* mesh : {"--pp 2", "--cp 2", "--pp 2 --stage-chunks 2", "--pp 2 --cp 2", "--tp 2 --zero 1",
                           "--zero 3 --overlap false"}) {
    const int ranks = number % 2 == 0 ? 2 : 4;
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, mesh));
    const std::string ours = folder_ / fmt::format("sennit{}", number),
                      theirs = folder_ / fmt::format("mpi{}", number);
    number++;
    const auto sennit = sh(train(fmt::format("--local {} {} --report-dir {}", ranks, mesh, ours)));
    ASSERT_EQ(sennit.status, 0) << sennit.output;
    const auto mpi = sh(fmt::format("mpirun --allow-run-as-root --oversubscribe -np {} {}", ranks,
                                    train(fmt::format("--backend mpi {} --report-dir {}", mesh, theirs))));
    ASSERT_EQ(mpi.status, 0) << mpi.output;
    const std::vector<double> a = losses(ours), b = losses(theirs);
    ASSERT_EQ(a.size(), 3u);
    ASSERT_EQ(b.size(), 3u);
    for (size_t i = 0; i < 3; i++) EXPECT_NEAR(a[i], b[i], 1e-5 * a[i]) << "step " << i + 1;
  }
}

TEST_F(TrainerCommand, RefusesACallOnceForAllRanks) {
  for (const auto& [options, words] :
       {std::pair{"--tp 4", "--tp 4 does not divide the key/value heads"},
        std::pair{"--precision f16", "f16"}, std::pair{"--data /nowhere", "/nowhere"}}) {
    const auto refused = sh(train(fmt::format("--local 4 {}", options)));
    EXPECT_EQ(refused.status, 2) << refused.output;
    const size_t first = refused.output.find(words);
    EXPECT_NE(first, std::string::npos) << refused.output;
    EXPECT_EQ(refused.output.find("sennit train:"), refused.output.rfind("sennit train:")) << refused.output;
  }
}

}  // namespace
}  // namespace sennit::trainer
