// fake_network.hpp: a network that only writes down what it is told, for one rank of which the
// objects are tried by messages and times alone: no threads, no sockets, no clock.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "control/messages.hpp"
#include "control/network.hpp"
#include "control/self.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control::test {

// Rank r listens on port kFirstPort + r of the loopback.
inline constexpr uint16_t kFirstPort = 1000;
inline Address address_of(int rank) {
  return *parse_address("127.0.0.1", static_cast<uint16_t>(kFirstPort + rank));
}

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
  Message message;
};

template <typename T>
T read(const Message& message, int size) {
  const Result<T> value = decode<T>(message.payload, size);
  EXPECT_TRUE(value.ok()) << value.status().text();
  return value.ok() ? *value : T{};
}

class FakeNetwork final : public Network, public Door {
 public:
  explicit FakeNetwork(Self& self) : self_(self) {}

  Owner* owner = nullptr;  // null: nobody asks
  std::set<int> nobody;    // ranks at whose address nobody listens
  std::vector<Said> said;
  std::vector<int> connects;  // ranks that this one tried to reach, whether or not it could
  bool door_open = false;

  // A link that stands.
  Link& add(Role role, int rank) {
    Link& link = make(role, rank);
    link.proven = true;
    link.last_in_ms = link.last_out_ms = self_.now_ms;
    return link;
  }
  // The last one that this rank has made to `rank`; it is proven from now on.
  Link* open_last(int rank) {
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
  void say(Link& link, const T& message) {
    owner->arrived(link, open_frame(encode(message)));
  }
  // All that was said of this type, to whom; it is forgotten.
  template <typename T>
  std::vector<std::pair<int, T>> take() {
    std::vector<std::pair<int, T>> taken;
    for (const Said& one : said)
      if (one.message.frame == T::kFrame)
        taken.emplace_back(one.rank, read<T>(one.message, self_.size));
    std::erase_if(said, [](const Said& one) { return one.message.frame == T::kFrame; });
    return taken;
  }

  // Network
  Link* find(uint64_t id) override {
    const auto it = links_.find(id);
    return it == links_.end() ? nullptr : &it->second;
  }
  void for_each(const std::function<void(Link&)>& visit) override {
    for (auto& [id, link] : links_) visit(link);
  }
  Link* connect(const Address& address, Role role, int rank, int* error) override {
    connects.push_back(rank);
    if (nobody.count(address.port - kFirstPort)) {
      *error = ECONNREFUSED;
      return nullptr;
    }
    Link& link = make(role, rank);
    link.outgoing = true;
    link.other = address;
    return &link;
  }
  void send(Link& link, const Buffer& frame) override {
    if (shut_.count(link.id)) return;
    link.last_out_ms = self_.now_ms;
    said.push_back({link.rank, open_frame(frame)});
  }
  void shut(Link& link) override { shut_.insert(link.id); }
  void settle(Link& link, Role role, int rank) override {
    link.role = role;
    link.rank = rank;
    link.deadline_ms = 0;
  }
  void drop(uint64_t id) override {
    Link* const link = find(id);
    if (!link) return;
    if (owner) owner->dropped(*link);
    links_.erase(id);
  }
  void lost(uint64_t id, End end, const std::string& reason) override {
    Link* const link = find(id);
    if (!link) return;
    const Ending ending{link->role, link->rank, link->said_goodbye, link->joined, end, reason};
    drop(id);
    if (owner) owner->ended(ending);
  }
  Address near_end(const Link&) const override { return address_of(self_.rank); }
  Address far_end(const Link& link) const override { return address_of(link.rank); }
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
  Link& make(Role role, int rank) {
    const uint64_t id = next_id_++;
    Link& link = links_[id];
    link.id = id;
    link.role = role;
    link.rank = rank;
    link.since_ms = self_.now_ms;
    return link;
  }

  Self& self_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Link> links_;
  std::set<uint64_t> shut_;
};

// The two ways in the tree, for objects that need no more.
class FakeSender final : public Sender {
 public:
  explicit FakeSender(int size) : size_(size) {}

  bool has_parent = true;
  std::vector<Message> up, down;

  bool send_up(const Buffer& frame) override {
    if (has_parent) up.push_back(open_frame(frame));
    return has_parent;
  }
  void flood_down(const Buffer& frame, uint64_t) override { down.push_back(open_frame(frame)); }

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
  std::vector<T> take(std::vector<Message>& messages) {
    std::vector<T> taken;
    for (const Message& message : messages)
      if (message.frame == T::kFrame) taken.push_back(read<T>(message, size_));
    std::erase_if(messages, [](const Message& message) { return message.frame == T::kFrame; });
    return taken;
  }
  int size_;
};

}  // namespace sennit::control::test
