// spare_descriptor_test.cpp: one descriptor is there when all others are gone, once.
//
// ctest not-under-tsan: it has one thread
#include "control/spare_descriptor.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/control/descriptor_limit.hpp"

namespace sennit::control {
namespace {

TEST(SpareDescriptor, IsGivenOnceWhenThereAreNoOthers) {
  Poller poller;
  ASSERT_TRUE(poller.open());
  SpareDescriptor spare(poller);
  EXPECT_FALSE(spare.held());
  EXPECT_FALSE(spare.give()) << "there is none";
  ASSERT_TRUE(spare.hold());
  EXPECT_TRUE(spare.held());
  EXPECT_TRUE(spare.hold()) << "it is held already";
  EXPECT_FALSE(spare.give()) << "there are others";
  sennit::test::NoDescriptors none;
  ASSERT_TRUE(spare.give());
  EXPECT_FALSE(spare.held());
  EXPECT_FALSE(spare.give());
  EXPECT_EQ(none.take_again(), 1u) << "room for one";
  EXPECT_FALSE(spare.hold());
  EXPECT_EQ(errno, EMFILE);
}

TEST(SpareDescriptor, IsTakenAgainWhenThereAreOthers) {
  Poller poller;
  ASSERT_TRUE(poller.open());
  SpareDescriptor spare(poller);
  ASSERT_TRUE(spare.hold());
  {
    const sennit::test::NoDescriptors none;
    ASSERT_TRUE(spare.give());
  }
  EXPECT_TRUE(spare.hold());
}

}  // namespace
}  // namespace sennit::control
