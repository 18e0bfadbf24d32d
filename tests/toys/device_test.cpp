// device_test.cpp: a device that is one file (tests/toys/device.cpp) trains as the processor does,
// where it is named. This program also runs the suites that try every device there is, which find
// the toy by themselves, but for long sequences, since it cuts nothing into blocks. It takes no
// memory but its own, so they hold the trainer and those suites to that.
//
// ctest needs: TRAINER
// ctest links: trainer_objects
// ctest runs: sennit_trainer_with_toys sennit_command sennit_trainer_command
// ctest compiles: tests/toys/device.cpp tests/trainer/device/device_test.cpp
// ctest compiles: tests/trainer/device/ops_test.cpp tests/trainer/device/attention_test.cpp
// ctest variable: GTEST_FILTER=*toy*:Toy*-*LongSequences*:*Attention.TheSame*
// ctest not-under-tsan: it has one thread
#include "tests/trainer/command/train_command.hpp"

namespace sennit::trainer {
namespace {

class ToyDeviceCommand : public TrainCommand {
 protected:
  static constexpr const char* kWithToys = SENNIT_BINARY_DIR "/bin/sennit_trainer_with_toys";

  // The losses of three steps on a mesh that has every kind of transfer but a pipeline's.
  std::vector<double> losses_on(const std::string& device) {
    const std::string report = folder_ / device;
    const sennit_test::Outcome done = sennit_test::sh(
        fmt::format("{} train {} --device {} --report-dir {} --local 4 --tp 2 --zero 3 2>&1",
                    kWithToys, folder_ / "config.json", device, report));
    EXPECT_EQ(done.status, 0) << done.output;
    return losses(report);
  }
};

TEST_F(ToyDeviceCommand, TrainsAsTheProcessorDoes) {
  constexpr double kTolerance = 1e-5;
  const std::vector<double> toy = losses_on("toy"), cpu = losses_on("cpu");
  ASSERT_EQ(toy.size(), 3u);
  ASSERT_EQ(cpu.size(), 3u);
  for (size_t step = 0; step < toy.size(); step++)
    EXPECT_NEAR(toy[step], cpu[step], kTolerance * cpu[step]) << "step " << step;
}

TEST_F(ToyDeviceCommand, AnUnknownOneIsToldOfIt) {
  const sennit_test::Outcome refused = sennit_test::sh(
      fmt::format("{} train {} --device abacus 2>&1", kWithToys, folder_ / "config.json"));
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_NE(refused.output.find("there are: cpu, toy"), std::string::npos) << refused.output;
}

}  // namespace
}  // namespace sennit::trainer
