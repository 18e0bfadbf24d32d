// train_command.hpp: `sennit train` as a process, on a corpus and a model of a few milliseconds a
// step.
#pragma once

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {

constexpr const char* kSennit = SENNIT_BINARY_DIR "/bin/sennit";

// A command line that runs behind the test; what it says goes into a file.
class Behind {
 public:
  Behind(const std::string& command, const std::string& output) : pid_(fork()) {
    if (pid_ != 0) return;
    ::signal(SIGINT, SIG_DFL);  // which a shell's background jobs ignore, and so may this test
    const std::string line = fmt::format("exec {} >{} 2>&1", command, output);
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  ~Behind() {
    if (over_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Behind(const Behind&) = delete;
  Behind& operator=(const Behind&) = delete;

  // Until something is there; false: the command ended before.
  bool await(const std::function<bool()>& there) {
    while (!there()) {
      if (waitpid(pid_, &status_, WNOHANG) == pid_) over_ = true;
      if (over_) return there();
      usleep(1000);
    }
    return true;
  }
  void signal(int number) const { kill(pid_, number); }
  // The exit status, or 128 + the signal that ended it.
  int wait() {
    if (!over_) waitpid(pid_, &status_, 0);
    over_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t pid_;
  bool over_ = false;
  int status_ = 0;
};

// A folder with a corpus (data), and a config.json of a small model that takes three steps on it.
// train() is the command line, run() waits for its end, and records() and losses() read its report
// folder. Skipped under sanitizers.
class TrainCommand : public testing::Test {
 protected:
  void SetUp() override {
#ifdef SENNIT_SANITIZED
    GTEST_SKIP() << "many processes, and MPI's; the trainer's other tests run this code in threads";
#endif
    std::filesystem::create_directories(folder_ / "texts");
    for (int document = 0; document < 60; document++) {
      std::ofstream text(folder_ / fmt::format("texts/{}.txt", document));
      for (int line = 0; line < 40; line++)
        text << fmt::format("line {} of document {} says {}\n", line, document,
                            line * document % 17);
    }
    const auto tokenized =
        sennit_test::sh(fmt::format("{} tokenize --output {} --vocabulary 320 {}", kSennit,
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
  sennit_test::Outcome run(const std::string& options) const {
    return sennit_test::sh(train(options));
  }

  std::vector<StepRecord> records(const std::string& report) const {
    std::ifstream file(report + "/steps.jsonl");
    std::vector<StepRecord> records;
    for (std::string line; std::getline(file, line);)
      if (const auto record = StepRecord::from_json(line)) records.push_back(*record);
    return records;
  }
  std::vector<double> losses(const std::string& report) const {
    std::vector<double> losses;
    for (const StepRecord& record : records(report)) losses.push_back(record.loss);
    return losses;
  }
  TestFolder folder_;
};

}  // namespace sennit::trainer
