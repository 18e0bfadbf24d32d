// fake_network.hpp: a network that only writes down what it is told, for one rank of which the
// objects are tried by messages and times alone: no threads, no sockets, no clock.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "control/channels.hpp"
#include "control/messages.hpp"
#include "control/self.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control::test {

// Rank r listens on port kFirstPort + r of the loopback.
inline constexpr uint16_t kFirstPort = 1000;
inline Address address_of(int rank) {
  return *parse_address("127.0.0.1", static_cast<uint16_t>(kFirstPort + rank));
}

// A rank of a job on the loopback, where ranks have 10 s to come and 4 s of silence are a death.
// All ranks have the same secret.
inline BootstrapOptions options_of(int rank, int size) {
  BootstrapOptions options;
  options.rank = rank;
  options.size = size;
  options.root_host = "127.0.0.1";
  options.root_port = kFirstPort;
  options.secret.assign(32, std::byte{1});
  options.job = 77;
  options.arrival_timeout_ms = 10'000;
  options.heartbeat_timeout_ms = 4000;
  return options;
}

// What was said to whom, and by which frame.
struct Said {
  int rank = -1;
  ReceivedFrame message;
};

// What the frame says, in a job of `size` ranks. Where it does not hold a T the test fails, and
// this gives T{}.
template <typename T>
T read(const ReceivedFrame& message, int size) {
  const Result<T> value = decode<T>(message.payload, size);
  EXPECT_TRUE(value.ok()) << value.status().text();
  return value.ok() ? *value : T{};
}

// One rank's channels and door. What it sends is written down in `said`, and nothing comes of it.
// The test plays the peers: add() and open_last() make channels stand, say() lets a message arrive,
// drop() and lost() end a channel. The time is `self.now_ms`, which the test sets.
class FakeNetwork final : public Channels, public Door {
 public:
  explicit FakeNetwork(Self& self) : self_(self) {}

  Owner* owner = nullptr;  // null: nobody asks
  std::set<int> nobody;    // ranks at whose address nobody listens
  std::vector<Said> said;
  std::vector<int> connects;  // ranks that this one tried to reach, whether or not it could
  bool door_open = false;
  // Where connections go from and to, where that is not the loopback.
  std::optional<Address> near;
  std::map<int, Address> far;

  // A channel that stands.
  Channel& add(Role role, int rank) {
    Channel& channel = make(role, rank);
    channel.proven = true;
    channel.last_in_ms = channel.last_out_ms = self_.now_ms;
    return channel;
  }
  // The last one that this rank has made to `rank`; it is proven from now on.
  Channel* open_last(int rank) {
    for (auto it = links_.rbegin(); it != links_.rend(); ++it)
      if (it->second.rank == rank && it->second.outgoing && !it->second.proven) {
        it->second.proven = true;
        it->second.last_in_ms = it->second.last_out_ms = self_.now_ms;
        owner->opened(it->second);
        return find(it->first);
      }
    return nullptr;
  }
  template <typename T>
  void say(Channel& channel, const T& message) {
    owner->arrived(channel, open_frame(encode(message)));
  }
  // All that was said of this type, to whom; it is forgotten.
  template <typename T>
  std::vector<std::pair<int, T>> take() {
    std::vector<std::pair<int, T>> taken;
    for (const Said& one : said)
      if (one.message.type == T::kType)
        taken.emplace_back(one.rank, read<T>(one.message, self_.size));
    std::erase_if(said, [](const Said& one) { return one.message.type == T::kType; });
    return taken;
  }

  // Channels
  Channel* find(uint64_t id) override {
    const auto it = links_.find(id);
    return it == links_.end() ? nullptr : &it->second;
  }
  void for_each(const std::function<void(Channel&)>& visit) override {
    for (auto& [id, channel] : links_) visit(channel);
  }
  Channel* connect(const Address& address, Role role, int rank, int* error) override {
    connects.push_back(rank);
    if (nobody.count(address.port - kFirstPort)) {
      *error = ECONNREFUSED;
      return nullptr;
    }
    Channel& channel = make(role, rank);
    channel.outgoing = true;
    channel.other = address;
    return &channel;
  }
  void send(Channel& channel, const EncodedFrame& frame) override {
    if (shut_.count(channel.id)) return;
    channel.last_out_ms = self_.now_ms;
    said.push_back({channel.rank, open_frame(frame)});
  }
  void shut(Channel& channel) override { shut_.insert(channel.id); }
  void settle(Channel& channel, Role role, int rank) override {
    channel.role = role;
    channel.rank = rank;
    channel.deadline_ms = 0;
  }
  void drop(uint64_t id) override {
    Channel* const channel = find(id);
    if (!channel) return;
    if (owner) owner->dropped(*channel);
    links_.erase(id);
  }
  void lost(uint64_t id, End end, const std::string& reason) override {
    Channel* const channel = find(id);
    if (!channel) return;
    const Ending ending{channel->role,   channel->rank, channel->said_goodbye,
                        channel->joined, end,           reason};
    drop(id);
    if (owner) owner->ended(ending);
  }
  Address near_end(const Channel&) const override { return near.value_or(address_of(self_.rank)); }
  Address far_end(const Channel& channel) const override {
    const auto elsewhere = far.find(channel.rank);
    return elsewhere == far.end() ? address_of(channel.rank) : elsewhere->second;
  }
  bool has_spare_descriptor() const override { return true; }

  // Door
  Status open(const Address&) override {
    door_open = true;
    return {};
  }
  void take_over(int) override { door_open = true; }
  bool is_open() const override { return door_open; }
  Address address() const override { return address_of(self_.rank); }
  uint16_t port() const override { return address().port; }
  Status move() override { return {}; }
  void close() override { door_open = false; }

 private:
  Channel& make(Role role, int rank) {
    const uint64_t id = next_id_++;
    Channel& channel = links_[id];
    channel.id = id;
    channel.role = role;
    channel.rank = rank;
    channel.since_ms = self_.now_ms;
    return channel;
  }

  Self& self_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Channel> links_;
  std::set<uint64_t> shut_;
};

// The two ways in the tree, for objects that need no more.
class FakeSender final : public Sender {
 public:
  explicit FakeSender(int size) : size_(size) {}

  bool has_parent = true;
  std::vector<ReceivedFrame> up, down;

  bool send_up(const EncodedFrame& frame) override {
    if (has_parent) up.push_back(open_frame(frame));
    return has_parent;
  }
  void flood_down(const EncodedFrame& frame, uint64_t) override {
    down.push_back(open_frame(frame));
  }

  template <typename T>
  std::vector<T> take_up() {
    return take<T>(up);
  }
  template <typename T>
  std::vector<T> take_down() {
    return take<T>(down);
  }

 private:
  template <typename T>
  std::vector<T> take(std::vector<ReceivedFrame>& messages) {
    std::vector<T> taken;
    for (const ReceivedFrame& message : messages)
      if (message.type == T::kType) taken.push_back(read<T>(message, size_));
    std::erase_if(messages, [](const ReceivedFrame& message) { return message.type == T::kType; });
    return taken;
  }
  int size_;
};

}  // namespace sennit::control::test
