// start_thread_test.cpp: where the system has no thread left the trainer works with those that
// there are, or says what it has none for. The process goes on.
#include "trainer/base/start_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <vector>

#include "tests/support/making_threads.hpp"
#include "tests/trainer/checkpoint/cases.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/tokenize.hpp"
#include "trainer/device/device.hpp"

namespace {

std::atomic<int> g_threads_left{1 << 20};

int before_thread() { return g_threads_left-- > 0 ? 0 : EAGAIN; }
[[maybe_unused]] const bool g_asks = (sennit_test::g_before_thread = before_thread, true);

}  // namespace

namespace sennit::trainer {
namespace {

class ThreadsLeft {
 public:
  explicit ThreadsLeft(int threads) { g_threads_left = threads; }
  ~ThreadsLeft() { g_threads_left = 1 << 20; }
};

constexpr const char* kNoneLeft = "the system has no thread left for ";

TEST(StartThread, ADeviceComputesWithThoseThatThereAre) {
  for (const int left : {0, 1, 2}) {
    SCOPED_TRACE(left);
    const ThreadsLeft only(left);
    const Result<std::unique_ptr<Device>> device = open_device("cpu", 8);
    ASSERT_TRUE(device.ok()) << device.status().text();
    const std::vector<float> twos(100'000, 2.0f);
    EXPECT_EQ((*device)->sum_of_squares(twos.data(), twos.size()), 400'000.0);
  }
}

TEST(StartThread, ACheckpointIsWrittenOrSaysThatItIsNot) {
  const TestFolder folder;
  std::vector<float> values(5 << 20, 1.0f);  // so large that others help with the copy
  const std::vector<TensorPiece> pieces = {
      {.name = "t", .shape = {5 << 20}, .offset = {0}, .extent = {5 << 20}, .data = values.data()}};
  const auto writer =
      CheckpointWriter::open({.folder = folder / "saved", .attempt = "a", .copy_threads = 2});
  ASSERT_TRUE(writer.ok()) << writer.status().text();
  const auto save = [&](int64_t step) {
    return (*writer)->save(step, std::nullopt, {}, "{}", "", pieces);
  };
  {
    const ThreadsLeft none(0);
    const std::string text = save(1).text();
    EXPECT_EQ(text.find(std::string("checkpoint of step 1: ") + kNoneLeft), 0u) << text;
    EXPECT_FALSE((*writer)->busy());
    const auto nothing = (*writer)->wait();
    EXPECT_TRUE(nothing.ok() && !*nothing);
  }
  {
    const ThreadsLeft only(2);  // for the copy and to write; none for the checksums
    const Status saved = save(2);
    ASSERT_TRUE(saved.ok()) << saved.text();
    const auto report = (*writer)->wait();
    ASSERT_TRUE(report.ok()) << report.status().text();
  }
  const auto checkpoint = Checkpoint::open(folder / "saved/step-00000002");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  EXPECT_EQ(checkpoint->verify([](const std::string& what) { ADD_FAILURE() << what; }), 0);
}

TEST(StartThread, ACorpusIsWrittenAndItsReaderSaysWhyItCannotRead) {
  const TestFolder folder;
  std::filesystem::create_directories(folder / "texts");
  for (int document = 0; document < 20; document++)
    std::ofstream(folder / fmt::format("texts/{}.txt", document))
        << fmt::format("a text of the number {}\n", document * 37);
  TokenizeOptions options;
  options.inputs = {folder / "texts"};
  options.folder = folder / "learned";
  options.vocabulary = 290;
  options.threads = 4;
  const auto learned = tokenize(options, [](const std::string&) {});
  ASSERT_TRUE(learned.ok()) << learned.status().text();
  options.folder = folder / "data";
  options.tokenizer = folder / "learned/tokenizer.model";
  const ThreadsLeft only(1);
  const auto written = tokenize(options, [](const std::string&) {});
  ASSERT_TRUE(written.ok()) << written.status().text();
  EXPECT_EQ(written->tokens[0], learned->tokens[0]);
  EXPECT_EQ(written->threads, 1);
  const auto data = Dataset::open(options.folder);
  ASSERT_TRUE(data.ok()) << data.status().text();
  const auto loader = Loader::open(*data, {.length = 4, .batch = 1});
  EXPECT_EQ(loader.status().kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_EQ(loader.status().text().find(std::string(kNoneLeft) + "reading batches ahead"), 0u);
}

}  // namespace
}  // namespace sennit::trainer
