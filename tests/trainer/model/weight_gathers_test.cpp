// weight_gathers_test.cpp: which weights are gathered when: none with zero 0; after an update in
// the order of their use and a few at a time with zero 1 and 2; before each use with zero 3.
// ctest not-under-tsan: it has one thread
#include "trainer/model/weight_gathers.hpp"

#include "tests/trainer/model/recording_group.hpp"

namespace sennit::trainer {
namespace {

using WeightGathersTest = RecordedParameters;

TEST_F(WeightGathersTest, Zero0GathersNothing) {
  const auto kept = shards(0);
  WeightGathers weights(*kept, mesh_, *pool_);
  weights.publish();
  weights.acquire(0, 1);
  EXPECT_EQ(weights.at({0, 5}), static_cast<float*>((*kept)[0].weights) + 5);
  weights.release(0);
  weights.begin_update();
  weights.start_first();
  EXPECT_EQ(weights_group_->take(), "");
}

TEST_F(WeightGathersTest, Zero1And2GatherAFewAheadAndOnceAnUpdate) {
  for (const int zero : {1, 2}) {
    const auto kept = shards(zero);
    WeightGathers weights(*kept, mesh_, *pool_);
    weights.publish();
    EXPECT_EQ(weights_group_->take(), "g");  // the first unit's
    weights.acquire(0, 1);
    EXPECT_EQ(weights_group_->take(), "gg");  // two units ahead
    weights.release(0);
    weights.acquire(1, 2);
    EXPECT_EQ(weights_group_->take(), "g");
    weights.release(1);
    weights.acquire(0, 1);
    EXPECT_EQ(weights_group_->take(), "") << "it is there";
    weights.release(0);
    weights.begin_update();
    weights.start_first();
    EXPECT_EQ(weights_group_->take(), "g") << "the first unit's are new";
  }
}

TEST_F(WeightGathersTest, Zero3GathersBeforeEachUseIntoThePoolsMemory) {
  const auto kept = shards(3);
  WeightGathers weights(*kept, mesh_, *pool_);
  weights.publish();
  EXPECT_EQ(weights_group_->take(), "");
  weights.acquire(0, 1);
  EXPECT_EQ(weights_group_->take(), "gg");  // its own and the next one's
  weights.acquire(0, 1);
  EXPECT_EQ(weights_group_->take(), "") << "calls nest";
  const void* const whole = weights.at({0, 0});
  weights.release(0);
  EXPECT_EQ(weights.at({0, 0}), whole);
  weights.release(0);
  weights.acquire(1, -1);
  EXPECT_EQ(weights_group_->take(), "") << "it was asked for ahead";
  weights.release(1);
  const size_t held = pool_->bytes();
  weights.acquire(0, 1);
  EXPECT_EQ(weights_group_->take(), "gg") << "both were forgotten";
  EXPECT_EQ(pool_->bytes(), held);
  weights.release(0);
}

}  // namespace
}  // namespace sennit::trainer
