// failure_test.cpp: a rank dies or a transfer fails: all ranks learn it at once and say the
// same, and no weight is changed by what did not come.
//
// ctest quiet: it judges what happens within seconds of a kill
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command sennit_trainer_command
#include "tests/trainer/command/train_command.hpp"

#include <chrono>
#include <climits>

#include "base/net/reserved_port.hpp"
#include "tests/support/eventually.hpp"
#include "trainer/base/files.hpp"
#include "trainer/model/parameters.hpp"

namespace sennit::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// ---- a transfer that fails ----

class Answer : public Work {
 public:
  explicit Answer(Status status) : status_(std::move(status)) {}
  Result<bool> test() override { return false; }  // seen by wait() alone
  Status wait() override { return status_; }

 private:
  Status status_;
};

// A group whose other ranks send nothing, and whose all-gathers fail once as many as `good_gathers`
// were started.
class Scripted : public Communicator {
 public:
  Scripted(int size, Traffic* traffic) : Communicator(0, size, traffic) {}
  Result<int> fabric_position() override { return 0; }
  Result<std::unique_ptr<Communicator>> split(int, int) override { return invalid("not here"); }
  void abort() override { aborts++; }
  int aborts = 0, good_gathers = INT_MAX;

 protected:
  static Started done(const Status& status) {
    return std::shared_ptr<Work>(std::make_shared<Answer>(status));
  }
  Started start_all_reduce(void*, size_t, Element, Reduction) override { return done({}); }
  Started start_reduce_scatter(const void*, void*, size_t, Element) override { return done({}); }
  Started start_all_gather(const void*, void*, size_t, Element) override {
    return done(good_gathers-- > 0 ? Status() : Status(SENNIT_PEER_FAILED, "rank 1 died"));
  }
  Started start_broadcast(void*, size_t, int) override { return done({}); }
  Started start_send(const void*, size_t, Element, int) override { return done({}); }
  Started start_receive(void*, size_t, Element, int) override { return done({}); }
};

// Of those that decay: an update without gradients changes them.
std::vector<std::vector<float>> masters(const Parameters& parameters) {
  std::vector<std::vector<float>> all;
  for (const TensorPiece& piece : parameters.pieces(State::master)) {
    if (piece.name.find("norm") != std::string::npos) continue;
    size_t elements = 1;
    for (const int64_t extent : piece.extent) elements *= static_cast<size_t>(extent);
    const auto* const data = static_cast<const float*>(piece.data);
    all.emplace_back(data, data + elements);
  }
  return all;
}

// With zero 0 the gradient of the embedding, unit 0 and the last to be updated, is still on its way
// when the update begins; with 1 to 3 the old weights of unit 1 and those behind it may be. Neither
// the unit that waits for what failed nor any behind it may be updated.
TEST(TrainerFailure, AnUpdateEndsWhereATransferHasFailed) {
  LlamaConfig model;
  model.layers = 1;
  model.hidden = model.ffn = 16;
  model.heads = model.kv_heads = 2;
  model.head_size = 8;
  model.vocabulary = 32;
  for (int zero = 0; zero <= 3; zero++) {
    SCOPED_TRACE(zero);
    Traffic traffic;
    Mesh mesh;
    mesh.shape.data = 2;
    const auto group = [&](int size) { return std::make_unique<Scripted>(size, &traffic); };
    mesh.job = group(2);
    mesh.world = group(2);
    mesh.tensor = group(1);
    mesh.context = group(1);
    auto replica = group(2), weights = group(2);
    Scripted &gradients_group = *replica, &weights_group = *weights;
    mesh.replica = std::move(replica);
    mesh.replica_weights = std::move(weights);
    Result<std::unique_ptr<Device>> device = open_device("cpu", 1);
    ASSERT_TRUE(device.ok()) << device.status().text();
    Pool pool(**device);
    const ParameterLayout layout = make_layout(model, mesh.shape, mesh.at, 0);
    Result<std::unique_ptr<Parameters>> made =
        Parameters::create(layout, mesh, **device, pool, Type::f32, zero, 1);
    ASSERT_TRUE(made.ok()) << made.status().text();
    Parameters& parameters = **made;
    traffic.finish();
    parameters.clear_gradients();
    gradients_group.good_gathers = 0;
    weights_group.good_gathers = zero == 3 ? 1 : 0;
    if (zero > 0) {
      parameters.acquire(0, 1);
      parameters.release(0);
    }
    ASSERT_FALSE(traffic.failed());
    const auto before = masters(parameters);
    AdamW adamw;
    adamw.learning_rate = 0.1f;
    adamw.weight_decay = 0.1f;
    parameters.update(adamw);
    EXPECT_EQ(traffic.status().text(), "rank 1 died");
    EXPECT_GT(gradients_group.aborts, 0);  // this rank takes part in nothing any more
    const auto after = masters(parameters);
    for (size_t i = 0; i < before.size(); i++)  // the first is the embedding
      EXPECT_EQ(before[i] == after[i], (i == 0) == (zero == 0)) << i;
  }
}

// ---- a rank that dies ----

// On dp 2 x tp 2 a rank shares a group with two of the others, and with the third only the job.
// Weights that are gathered and forgotten keep all of them waiting in groups nearly always.
class TrainerDeath : public TrainCommand {
 protected:
  // How long it took until the others had ended.
  std::chrono::milliseconds kill_one(int victim) {
    const ReservedPort port;
    const std::string folder = folder_ / fmt::format("of{}", victim);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::vector<std::unique_ptr<Behind>> ranks;
    for (int rank = 0; rank < 4; rank++)
      ranks.push_back(std::make_unique<Behind>(
          fmt::format(
              "env RANK={0} LOCAL_RANK={0} WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 "
              "MASTER_PORT={1} SENNIT_SECRET=0123456789abcdef {2} train {3} --steps 1000000 --tp 2 "
              "--zero 3 --batch 64 --report-dir {4}",
              rank, port.number(), kSennit, folder_ / "config.json", folder),
          fmt::format("{}/said{}", folder, rank)));
    const auto said = [&](int rank) { return *read_file(fmt::format("{}/said{}", folder, rank)); };
    EXPECT_TRUE(ranks[0]->await([&] { return records(folder).size() >= 2; })) << said(0);
    ranks[static_cast<size_t>(victim)]->signal(SIGKILL);
    const Clock::time_point killed = Clock::now();
    const std::string words = fmt::format("sennit train: rank {} (host ", victim);
    for (int rank = 0; rank < 4; rank++) {
      const int status = ranks[static_cast<size_t>(rank)]->wait();
      if (rank == victim) continue;
      EXPECT_EQ(status, 1) << rank;
      const size_t at = said(rank).find(words);
      EXPECT_NE(at, std::string::npos) << rank << ": " << said(rank);
      EXPECT_NE(said(rank).find(") died: ", at), std::string::npos) << rank << ": " << said(rank);
    }
    return std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - killed);
  }
};

TEST_F(TrainerDeath, AllRanksKnowAtOnceWhoDied) {
  constexpr auto kAtOnce = std::chrono::seconds(4);  // 0.2 s where nothing else runs
  for (int victim = 0; victim < 4; victim++) {
    SCOPED_TRACE(fmt::format("rank {} is killed", victim));
    EXPECT_LT(sennit_test::least_time(kAtOnce, [&] { return kill_one(victim); }), kAtOnce);
  }
}

}  // namespace
}  // namespace sennit::trainer
