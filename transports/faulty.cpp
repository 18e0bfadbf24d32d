// faulty.cpp: see transports/faulty.hpp.
#include "transports/faulty.hpp"

#include <charconv>
#include <csignal>
#include <deque>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/options.hpp"

namespace sennit {
namespace {

// Every message goes through send() and recv() here; whatever else is asked, the inner transport
// answers.
class Faulty final : public Transport {
 public:
  Faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan)
      : inner_(std::move(inner)), plan_(plan), random_(plan.seed) {}

  std::string_view name() const override { return inner_->name(); }
  std::vector<std::byte> address() const override { return inner_->address(); }
  Reach reach(int peer, std::span<const std::byte> address) override {
    return inner_->reach(peer, address);
  }
  std::string obstacle() const override { return inner_->obstacle(); }
  Status add_peer(int peer, std::span<const std::byte> address) override {
    return inner_->add_peer(peer, address);
  }

  void send(SendRequest& request) override {
    if (refuse(request, sends_back_)) return;
    messages_++;
    bytes_ += request.bytes;
    if (messages_ == plan_.kill) std::raise(SIGKILL);
    if (messages_ == plan_.drop) {
      log(LogLevel::warn, "faults: dropping message {}, to rank {}", messages_, request.peer);
      request.status = Status();
      sends_back_.push_back(&request);
      return;
    }
    if (broken_.contains(request.peer)) {
      held_sends_.push_back(&request);
      return;
    }
    if (plan_.delay_ns > 0) {
      const uint64_t delay = plan_.delay_ns / 2 + random_() % plan_.delay_ns;
      delayed_.push_back({now_ns() + delay, &request});
    } else {
      inner_->send(request);
    }
    const bool enough = (plan_.break_after > 0 && messages_ >= plan_.break_after) ||
                        (plan_.break_after_bytes > 0 && bytes_ >= plan_.break_after_bytes);
    if (enough && broken_.empty()) break_connection(request.peer);
  }

  void recv(RecvRequest& request) override {
    if (refuse(request, receives_back_)) return;
    if (broken_.contains(request.peer))
      held_receives_.push_back(&request);
    else
      inner_->recv(request);
  }

  void release(RecvRequest& request) override { inner_->release(request); }
  bool has_come(int peer, const Key& key) override {
    return !broken_.contains(peer) && inner_->has_come(peer, key);
  }

  bool progress(Completions& completions) override {
    bool moved = false;
    const uint64_t now = delayed_.empty() ? 0 : now_ns();
    for (size_t i = 0; i < delayed_.size();) {
      if (delayed_[i].due_ns > now) {
        i++;
        continue;
      }
      SendRequest* request = delayed_[i].request;
      delayed_.erase(delayed_.begin() + static_cast<std::ptrdiff_t>(i));
      inner_->send(*request);
      moved = true;
    }
    if (broken_.empty() && sends_back_.empty() && receives_back_.empty() && events_.empty())
      return inner_->progress(completions) || moved;
    moved |= collect();
    moved |= !sends_back_.empty() || !receives_back_.empty() || !events_.empty();
    completions.sends.insert(completions.sends.end(), sends_back_.begin(), sends_back_.end());
    completions.receives.insert(completions.receives.end(), receives_back_.begin(),
                                receives_back_.end());
    completions.events.insert(completions.events.end(), events_.begin(), events_.end());
    sends_back_.clear();
    receives_back_.clear();
    events_.clear();
    return moved;
  }

  void fail_peer(int peer, const Status& status) override {
    hand_back([peer](const MessageRequest& request) { return request.peer == peer; }, status);
    failed_.emplace(peer, status);
    broken_.erase(peer);
    inner_->fail_peer(peer, status);
  }

  void cancel(uint32_t comm, const Status& status) override {
    hand_back([comm](const MessageRequest& request) { return request.key.comm == comm; }, status);
    cancelled_.emplace(comm, status);
    inner_->cancel(comm, status);
  }

  void forget(const std::function<bool(uint32_t comm)>& over) override {
    std::erase_if(cancelled_, [&](const auto& entry) { return over(entry.first); });
    inner_->forget(over);
  }

  // now_bytes() and what belongs to it stay the base's: there is no short way around the faults.

  int event_fd() const override { return inner_->event_fd(); }
  void stalled() override { inner_->stalled(); }
  bool withdraws_at_once() const override { return inner_->withdraws_at_once(); }
  bool exposes_own_process() const override { return inner_->exposes_own_process(); }
  bool exposes_devices(int peer) override { return inner_->exposes_devices(peer); }
  bool is_mapped(int peer, uint32_t comm, const ExportedMemory& memory) override {
    return inner_->is_mapped(peer, comm, memory);
  }
  bool reads_devices(int peer) const override { return inner_->reads_devices(peer); }
  void takes_exported(int peer, uint32_t comm) override { inner_->takes_exported(peer, comm); }
  std::vector<PeerMemory> unanswered() const override { return inner_->unanswered(); }
  bool answer(const PeerMemory& memory, std::byte* here) override {
    return inner_->answer(memory, here);
  }
  bool prepare_wait() override {
    return delayed_.empty() && sends_back_.empty() && receives_back_.empty() && events_.empty() &&
           inner_->prepare_wait();
  }
  std::optional<WireOverhead> wire_overhead(bool in_memory) const override {
    return inner_->wire_overhead(in_memory);
  }
  void* allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Status register_memory(void* memory, size_t bytes) override {
    return inner_->register_memory(memory, bytes);
  }
  Status deregister_memory(void* memory) override { return inner_->deregister_memory(memory); }
  bool free(void* memory) override { return inner_->free(memory); }
  std::vector<ConnectionStatistics> connections() const override { return inner_->connections(); }
  std::string statistics() const override { return inner_->statistics() + ", with faults"; }

 private:
  struct Delayed {
    uint64_t due_ns;
    SendRequest* request;
  };

  // For a peer that failed, or a communicator that was cancelled: at once, without faults.
  template <typename Request>
  bool refuse(Request& request, std::vector<Request*>& back) {
    const auto failed = failed_.find(request.peer);
    const auto cancelled = cancelled_.find(request.key.comm);
    if (failed == failed_.end() && cancelled == cancelled_.end()) return false;
    request.status = failed != failed_.end() ? failed->second : cancelled->second;
    back.push_back(&request);
    return true;
  }

  void break_connection(int peer) {
    log(LogLevel::warn, "faults: breaking the connection to rank {}", peer);
    const Status status(SENNIT_LINK_FAILED,
                        fmt::format("connection to rank {}: broken by SENNIT_FAULTS", peer));
    broken_.insert(peer);
    for (const Delayed& delayed : delayed_)
      if (delayed.request->peer == peer) held_sends_.push_back(delayed.request);
    std::erase_if(delayed_,
                  [peer](const Delayed& delayed) { return delayed.request->peer == peer; });
    inner_->fail_peer(peer, status);
    events_.push_back({peer, status});
  }

  // Handed back by the inner transport because the connection broke: whoever asked is not to know
  // yet.
  bool is_held(const MessageRequest& request) const {
    return !request.status.ok() && request.status.kind() == SENNIT_LINK_FAILED &&
           broken_.contains(request.peer);
  }

  // Moves the inner transport and sorts out what it hands back.
  bool collect() {
    inside_.clear();
    const bool moved = inner_->progress(inside_);
    for (SendRequest* request : inside_.sends)
      (is_held(*request) ? held_sends_ : sends_back_).push_back(request);
    for (RecvRequest* request : inside_.receives)
      (is_held(*request) ? held_receives_ : receives_back_).push_back(request);
    for (const PeerEvent& event : inside_.events)
      if (!broken_.contains(event.peer)) events_.push_back(event);
    return moved;
  }

  template <typename Which>
  void hand_back(Which which, const Status& status) {
    // What the inner transport has on its way out belongs to one or the other.
    if (!broken_.empty()) collect();
    const auto back = [&](auto& from, auto& to) {
      for (auto* request : from) {
        if (!which(*request)) continue;
        request->status = status;
        to.push_back(request);
      }
      std::erase_if(from, [&](auto* request) { return which(*request); });
    };
    for (const Delayed& delayed : delayed_) {
      if (!which(*delayed.request)) continue;
      delayed.request->status = status;
      sends_back_.push_back(delayed.request);
    }
    std::erase_if(delayed_, [&](const Delayed& delayed) { return which(*delayed.request); });
    back(held_sends_, sends_back_);
    back(held_receives_, receives_back_);
  }

  std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  std::mt19937_64 random_;
  uint64_t messages_ = 0, bytes_ = 0;
  std::deque<Delayed> delayed_;
  std::unordered_set<int> broken_;
  std::unordered_map<int, Status> failed_;
  std::unordered_map<uint32_t, Status> cancelled_;
  std::vector<SendRequest*> held_sends_, sends_back_;
  std::vector<RecvRequest*> held_receives_, receives_back_;
  std::vector<PeerEvent> events_;
  Completions inside_;
};

bool parse_number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_time(std::string_view text, uint64_t& out_ns) {
  struct Unit {
    std::string_view name;
    uint64_t ns;
  };
  constexpr uint64_t kSecond = 1'000'000'000, kMost = 3600 * kSecond;
  // "s" ends all of them, so it comes last.
  for (const Unit& unit :
       {Unit{"ns", 1}, Unit{"us", 1'000}, Unit{"ms", 1'000'000}, Unit{"s", kSecond}}) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    if (!parse_number(text, out_ns) || out_ns > kMost / unit.ns) return false;
    out_ns *= unit.ns;
    return true;
  }
  return false;
}

}  // namespace

Result<FaultPlan> parse_faults(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const std::string_view value =
        equals == item.npos ? std::string_view() : item.substr(equals + 1);
    const auto wrong = [&](std::string_view expected) {
      return invalid(fmt::format("SENNIT_FAULTS: '{}': expected {}", item, expected));
    };
    uint64_t* count = name == "drop"    ? &plan.drop
                      : name == "break" ? &plan.break_after
                      : name == "kill"  ? &plan.kill
                      : name == "seed"  ? &plan.seed
                                        : nullptr;
    if (count) {
      if (!parse_number(value, *count)) return wrong(fmt::format("{}=NUMBER", name));
    } else if (name == "rank") {
      uint64_t rank = 0;
      if (!parse_number(value, rank) || rank > INT32_MAX) return wrong("rank=NUMBER");
      plan.rank = static_cast<int>(rank);
    } else if (name == "transport") {
      if (value.empty()) return wrong("transport=NAME");
      plan.transport = value;
    } else if (name == "delay") {
      if (!parse_time(value, plan.delay_ns))
        return wrong("delay=TIME such as 200us or 5ms, at most an hour");
    } else if (name == "break_bytes") {
      const Result<uint64_t> bytes = parse_bytes(value);
      if (!bytes) return wrong("break_bytes=SIZE such as 4096 or 1M");
      plan.break_after_bytes = *bytes;
    } else {
      return wrong(
          "rank, transport, delay, drop, break, break_bytes, kill or seed, each with =VALUE");
    }
  }
  return plan;
}

std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan) {
  return std::make_unique<Faulty>(std::move(inner), plan);
}

}  // namespace sennit
