// link_failures_test.cpp: a connection that broke between two living ranks is announced once, told
// to the user of every rank, and ends what callers wait for.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/link_failures.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::FakeSender;
using test::options_of;

constexpr int kSize = 8;

struct One {
  std::vector<std::pair<int, int>> links;  // as the user was told
  std::vector<int> dead;
  Status status;
  Self self;
  Census census{self};
  FakeSender sender{kSize};
  Announcements announcements;
  Callers callers;
  LinkFailures failures{self, census, sender, announcements, callers};

  explicit One(int rank, bool tells_links = true)
      : self(options_of(rank, kSize), callbacks(tells_links)), announcements(rank) {}
  Control::Callbacks callbacks(bool tells_links) {
    Control::Callbacks result;
    if (tells_links)
      result.link_failed = [this](int a, int b, const Status& what) {
        links.emplace_back(a, b);
        status = what;
      };
    result.peers_failed = [this](const std::vector<int>& failed, const Status& what) {
      dead = failed;
      status = what;
    };
    return result;
  }
};

using Links = std::vector<std::pair<int, int>>;

TEST(LinkFailures, AreAnnouncedDownAndToldToTheUser) {
  One root(0);
  root.failures.announce(3, 5, "connection reset");
  const std::string text =
      "the connection between rank 3 and rank 5 broke while both live: connection reset";
  const auto down = root.sender.take_down<LinkDown>();
  ASSERT_EQ(down.size(), 1u);
  EXPECT_EQ(down[0].a, 3);
  EXPECT_EQ(down[0].b, 5);
  EXPECT_EQ(down[0].status.kind(), SENNIT_LINK_FAILED);
  EXPECT_EQ(down[0].status.text(), text);
  EXPECT_EQ(root.links, (Links{{3, 5}}));
  EXPECT_EQ(root.callers.failure().text(), text);
}

TEST(LinkFailures, APairIsAnnouncedOnceWhicheverEndSaysSo) {
  One root(0);
  root.failures.announce(3, 5, "reset");
  root.failures.announce(5, 3, "broken pipe");
  root.failures.announce(3, 6, "reset");
  EXPECT_EQ(root.sender.take_down<LinkDown>().size(), 2u);
  EXPECT_EQ(root.links, (Links{{3, 5}, {3, 6}}));
}

TEST(LinkFailures, ArePassedOnOnceThoughTheyComeTwice) {
  One inner(1);
  const LinkDown message{7, 2, 4, {SENNIT_LINK_FAILED, "it broke"}};
  inner.failures.on_link_down(message);
  inner.failures.on_link_down(message);
  EXPECT_EQ(inner.sender.take_down<LinkDown>().size(), 1u);
  EXPECT_EQ(inner.links, (Links{{2, 4}}));
  EXPECT_EQ(inner.status.text(), "it broke");
}

TEST(LinkFailures, ASuccessorDoesNotAnnounceWhatItHasHeard) {
  One heir(1);
  heir.failures.on_link_down({7, 2, 4, {SENNIT_LINK_FAILED, "it broke"}});
  heir.sender.down.clear();
  heir.failures.announce(4, 2, "reset");
  EXPECT_TRUE(heir.sender.down.empty());
  EXPECT_EQ(heir.links.size(), 1u);
}

TEST(LinkFailures, WhoDoesNotAskForThemHearsOfFailedPeers) {
  One inner(1, false);
  inner.census.dead = {6};
  inner.failures.on_link_down({7, 2, 4, {SENNIT_LINK_FAILED, "it broke"}});
  EXPECT_EQ(inner.dead, std::vector<int>{6});
  EXPECT_EQ(inner.status.kind(), SENNIT_LINK_FAILED);
}

TEST(LinkFailures, DoNotHideADeathThatCallersWereTold) {
  One inner(1);
  inner.callers.fail({SENNIT_PEER_FAILED, "rank 6 died"});
  inner.failures.on_link_down({7, 2, 4, {SENNIT_LINK_FAILED, "it broke"}});
  EXPECT_EQ(inner.callers.failure().text(), "rank 6 died");
}

}  // namespace
}  // namespace sennit::control
