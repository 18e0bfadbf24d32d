// network_identity_test.cpp: what is kept for one network is never taken for a later one.
// ctest not-under-tsan: it has one thread
#include "base/net/network_identity.hpp"

#include <sched.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/process.hpp"

namespace sennit {
namespace {

TEST(NetworkIdentity, StaysAndIsInherited) {
  const std::string ours = network_identity();
  EXPECT_EQ(network_identity(), ours);
  EXPECT_EQ(sennit_test::Process([] { return network_identity(); }).outcome(), ours);
}

// One after the other, so that the kernel can give a number of an ended namespace to a later one.
TEST(NetworkIdentity, NoTwoNamespacesShareOneEvenWhenTheFirstIsGone) {
  std::set<std::string> seen{network_identity()};
  for (int i = 1; i <= 40; i++) {
    const std::string identity =
        sennit_test::Process([] {
          if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
            return std::string();
          return network_identity();
        }).outcome();
    if (identity.empty()) GTEST_SKIP() << "SKIPPED: no network namespaces here; run as root";
    if (identity.starts_with("inode "))
      GTEST_SKIP() << "SKIPPED: this kernel has no cookies of namespaces";
    EXPECT_TRUE(seen.insert(identity).second) << identity << " again, at the " << i << "th";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // it takes the namespace down
  }
}

}  // namespace
}  // namespace sennit
