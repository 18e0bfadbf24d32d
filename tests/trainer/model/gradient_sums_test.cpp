// gradient_sums_test.cpp: which gradients are reduced when: once a step with zero 0 and 1, the
// embedding's in parts; after each micro-batch, and two units at a time, with zero 2 and 3.
// ctest not-under-tsan: it has one thread
#include "trainer/model/gradient_sums.hpp"

#include "tests/trainer/model/recording_group.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kManyLayers = 12;

class GradientSumsTest : public RecordedParameters {
 protected:
  // The backward pass of a micro-batch: each unit is opened and closed, from the last on.
  std::string backward(GradientSums& gradients, const ParameterShards& kept, bool last) {
    for (size_t u = kept.units(); u-- > 0;) {
      gradients.open(static_cast<int>(u));
      gradients.close(static_cast<int>(u), last);
    }
    return gradients_group_->take();
  }
};

TEST_F(GradientSumsTest, Zero0ReducesInTheLastMicroBatchAndTheEmbeddingInParts) {
  const auto kept = shards(0);
  GradientSums gradients(*kept, mesh_, *pool_);
  gradients.clear();
  EXPECT_EQ(backward(gradients, *kept, false), "");
  EXPECT_EQ(backward(gradients, *kept, true), std::string(kept->units() - 1, 'a') + "r");
  gradients.finish();
  EXPECT_EQ(gradients_group_->take(), "");
  gradients.gather_rest();
  EXPECT_EQ(gradients_group_->take(), "g");
}

TEST_F(GradientSumsTest, Zero1ReduceScattersInTheLastMicroBatch) {
  const auto kept = shards(1);
  GradientSums gradients(*kept, mesh_, *pool_);
  gradients.clear();
  EXPECT_EQ(backward(gradients, *kept, false), "");
  EXPECT_EQ(backward(gradients, *kept, true), std::string(kept->units(), 'r'));
  gradients.finish();
  gradients.gather_rest();
  EXPECT_EQ(gradients_group_->take(), "");
}

// However many units there are, few have memory of the pool, and always the same.
TEST_F(GradientSumsTest, Zero2And3ReduceScatterEachMicroBatchInFewUnitsMemory) {
  for (const int zero : {2, 3}) {
    const auto kept = shards(zero, kManyLayers);
    Pool pool(*device_);
    GradientSums gradients(*kept, mesh_, pool);
    gradients.clear();
    EXPECT_EQ(backward(gradients, *kept, false), std::string(kept->units(), 'r'));
    const size_t held = pool.bytes();
    EXPECT_EQ(backward(gradients, *kept, true), std::string(kept->units(), 'r'));
    EXPECT_EQ(pool.bytes(), held);
    size_t all = 0;
    for (size_t u = 0; u < kept->units(); u++)
      all += static_cast<size_t>(kept->size(u)) * bytes_of(Type::f32);
    EXPECT_LT(held, all);
    gradients.finish();
    gradients.gather_rest();
    EXPECT_EQ(gradients_group_->take(), "");
  }
}

// What a layer adds between open() and close() is there until the sum is.
TEST_F(GradientSumsTest, WithZero0TheWholeUnitIsOpenAndClearedOnceAStep) {
  const auto kept = shards(0);
  GradientSums gradients(*kept, mesh_, *pool_);
  gradients.clear();
  gradients.open(1);
  float* const mine = gradients.at({1, 3});
  EXPECT_EQ(mine, (*kept)[1].gradients + 3);
  const float seven = 7;
  device_->upload(mine, &seven, sizeof seven);
  gradients.close(1, false);
  gradients.open(1);
  float back = 0;
  device_->download(&back, gradients.at({1, 3}), sizeof back);
  EXPECT_EQ(back, 7) << "micro-batches add up";
  gradients.clear();
  device_->download(&back, gradients.at({1, 3}), sizeof back);
  EXPECT_EQ(back, 0);
}

}  // namespace
}  // namespace sennit::trainer
