// sharing_test.cpp: whether a new job finds an older one that all its ranks are in: which claims
// count, who becomes which, and when it is hopeless. many_communicators_test has whole jobs.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/sharing.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

constexpr uint64_t kOlder = 500, kOther = 400;

Membership membership(uint64_t job, int rank, std::byte secret = std::byte{9}) {
  return {job, rank, 8, std::vector<std::byte>(32, secret), static_cast<uint32_t>(10 + rank)};
}

// A rank of a new job of three, which is in these already.
Self rank_in(int rank, std::vector<Membership> memberships) {
  BootstrapOptions options = test::options_of(rank, 3);
  options.memberships = std::move(memberships);
  return {options, {}};
}

TEST(Sharing, FindsTheJobOfAllInTheirOrder) {
  const Self self = rank_in(0, {membership(kOther, 0), membership(kOlder, 5)});
  Sharing sharing(self);
  sharing.begin();
  EXPECT_TRUE(sharing.possible());
  sharing.hear(2, claims_of(rank_in(2, {membership(kOlder, 1)})));
  sharing.hear(1, claims_of(rank_in(1, {membership(kOther, 1), membership(kOlder, 7)})));
  ASSERT_TRUE(sharing.possible());
  const auto found = sharing.choose();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job, kOlder);
  EXPECT_EQ(found->number, 15u) << "rank 5's of that job";
  EXPECT_EQ(found->members, (std::vector<int>{5, 7, 1}));
  EXPECT_FALSE(sharing.possible()) << "it was chosen";
}

TEST(Sharing, OfThreadsTakesEachMembershipOnce) {
  const std::vector<Membership> process = {membership(kOlder, 3), membership(kOlder, 2)};
  const Self self = rank_in(0, process);
  Sharing sharing(self);
  sharing.begin();
  sharing.hear(1, claims_of(rank_in(1, process)));
  sharing.hear(2, claims_of(rank_in(2, {membership(kOlder, 0)})));
  const auto found = sharing.choose();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(found->number, 12u);
}

TEST(Sharing, IsHopelessOnceARankIsNotInIt) {
  const Self self = rank_in(0, {membership(kOlder, 0)});
  Sharing sharing(self);
  sharing.begin();
  sharing.hear(1, {});
  EXPECT_FALSE(sharing.possible());
  sharing.hear(1, claims_of(rank_in(1, {membership(kOlder, 1)})));
  EXPECT_FALSE(sharing.possible()) << "those that waited have been told their parents";
}

TEST(Sharing, NeedsAsManyRanksThereAsHere) {
  const Self self = rank_in(0, {membership(kOlder, 0)});
  Sharing sharing(self);
  sharing.begin();
  sharing.hear(1, claims_of(rank_in(1, {membership(kOlder, 0)})));
  sharing.hear(2, claims_of(rank_in(2, {membership(kOlder, 1)})));
  EXPECT_FALSE(sharing.choose()) << "two claim to be rank 0 of it";
}

TEST(Sharing, BelievesNoClaimWithoutProof) {
  const auto possible_with = [](const std::vector<Claim>& claims) {
    const Self self = rank_in(0, {membership(kOlder, 0)});
    Sharing sharing(self);
    sharing.begin();
    sharing.hear(1, claims);
    return sharing.possible();
  };
  const std::vector<Claim> good = claims_of(rank_in(1, {membership(kOlder, 1)}));
  EXPECT_TRUE(possible_with(good));
  EXPECT_FALSE(possible_with(claims_of(rank_in(1, {membership(kOlder, 1, std::byte{8})}))))
      << "another secret";
  EXPECT_FALSE(possible_with(claims_of(rank_in(2, {membership(kOlder, 1)}))))
      << "another rank's claim";
  EXPECT_FALSE(possible_with(claims_of(rank_in(1, {membership(kOlder, 8)}))))
      << "no rank of that job";
  std::vector<Claim> other_rank = good;
  other_rank[0].rank = 2;
  EXPECT_FALSE(possible_with(other_rank));
}

TEST(Sharing, IsNotForJobsWithoutANumber) {
  BootstrapOptions options = test::options_of(0, 3);
  options.memberships = {membership(kOlder, 0)};
  options.job = 0;
  const Self self(options, {});
  EXPECT_TRUE(claims_of(self).empty());
  Sharing sharing(self);
  sharing.begin();
  EXPECT_FALSE(sharing.possible());
}

}  // namespace
}  // namespace sennit::control
