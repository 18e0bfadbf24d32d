// fake_rank.hpp: one rank's whole control plane on a network that only writes down what it is told.
#pragma once

#include "control/rank/plane.hpp"
#include "control/tree/shape.hpp"
#include "tests/control/fake_network.hpp"

namespace sennit::control::test {

struct FakeRank {
  Self self;
  FakeNetwork network{self};
  Callers callers;
  Plane plane;
  std::vector<int> dead;  // as the user was told
  Status failure, link_failure;

  FakeRank(int rank, int size)
      : self(options_of(rank, size), callbacks()), plane(self, network, network, callers) {
    self.now_ms = 1000;
    network.owner = &plane;
  }
  // What the user of this rank is told.
  Control::Callbacks callbacks() {
    Control::Callbacks result;
    result.peers_failed = [this](const std::vector<int>& failed, const Status& status) {
      dead = failed;
      failure = status;
    };
    result.link_failed = [this](int, int, const Status& status) { link_failure = status; };
    return result;
  }
  // The start is complete: the neighbours are there, and everybody listens where address_of() says.
  void start() {
    plane.bootstrap().begin();
    if (self.rank == 0) {
      all_come();
    } else {
      self.phase = Phase::joining;
      Table table{self.options.job, {}};
      for (int r = 0; r < self.size; r++) table.members.push_back(member(r));
      int error = 0;
      Channel* const parent = network.connect(address_of(0), Role::enlisting, 0, &error);
      parent->proven = true;
      network.say(*parent, Parent{self.options.job, static_parent(self.rank), address_of(0)});
      if (Channel* const above = network.open_last(static_parent(self.rank)))
        channel_to_parent = above->id;
      else
        channel_to_parent = parent->id;
      for_each_static_child(self.rank, self.size, [&](int child) { attach(child, false); });
      network.say(parent_channel(), table);
    }
    EXPECT_EQ(self.phase, Phase::running);
    network.said.clear();
    network.connects.clear();
  }
  static Member member(int rank) { return {address_of(rank), 100 + rank, "a host"}; }

  // Rank 0: all enlist, and then the subtrees are complete.
  void all_come() {
    std::vector<uint64_t> children;
    for (int r = 1; r < self.size; r++) {
      Channel& channel = network.add(Role::stranger, r);
      network.say(channel, Enlist{r, self.size, self.options.job, member(r), {}});
      if (channel.role == Role::child) children.push_back(channel.id);
    }
    for (const uint64_t id : children) network.say(*network.find(id), Joined{});
  }
  // A child hangs itself below this rank.
  Channel& attach(int rank, bool running, const std::set<int>& left = {}) {
    Channel& channel = network.add(Role::stranger, rank);
    network.say(channel, Attach{rank, self.size, self.options.job, running, left, {}, {}});
    if (!running && channel.role == Role::child) network.say(channel, Joined{});
    return channel;
  }
  Channel& channel_of(Role role, int rank) {
    Channel* found = nullptr;
    network.for_each([&](Channel& channel) {
      if (channel.role == role && channel.rank == rank) found = &channel;
    });
    EXPECT_TRUE(found) << "no channel to rank " << rank;
    return *found;
  }
  Channel& parent_channel() { return *network.find(channel_to_parent); }
  bool has_channel(Role role, int rank) {
    bool found = false;
    network.for_each([&](const Channel& channel) {
      found = found || (channel.role == role && channel.rank == rank);
    });
    return found;
  }
  // `ms` later, with everybody's heartbeats.
  void after(int64_t ms) {
    self.now_ms += ms;
    network.for_each([&](Channel& channel) { channel.last_in_ms = self.now_ms; });
    self.next_due_ms = INT64_MAX;
    plane.tick();
  }

  uint64_t channel_to_parent = 0;
};

}  // namespace sennit::control::test
