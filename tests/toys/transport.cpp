// transport.cpp: a toy of a transport, between ranks of one process. One file is all that a new one
// needs.
//
// What is sent waits with its sender; who receives looks there, copies, and says so. One lock holds
// for all instances, and a look goes through all receives, so it is slow.
#include <unistd.h>

#include <cstring>
#include <list>
#include <map>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/process/forked.hpp"
#include "transports/cancelled.hpp"
#include "transports/matcher.hpp"
#include "transports/returns.hpp"
#include "transports/segments.hpp"
#include "transports/transport.hpp"

namespace sennit {
namespace {

class Toy;
struct Process {  // all instances of this one
  Mutex mutex;
  std::map<uint64_t, Toy*> toys SENNIT_GUARDED_BY(mutex);
  uint64_t next SENNIT_GUARDED_BY(mutex) = 1;
  static Process& instance() {
    static auto* const process = new Process;
    return *process;
  }

 private:
  Process() { hold_across_fork(mutex); }
};

struct ToyAddress {
  int64_t process = 0;
  uint64_t id = 0;
};

class Toy final : public Transport {
 public:
  explicit Toy(const TransportContext& context)
      : rank_(context.rank), peers_(static_cast<size_t>(context.size)) {
    const MutexLock lock(process_.mutex);
    id_ = process_.next++;
    process_.toys[id_] = this;
  }
  ~Toy() override {
    const MutexLock lock(process_.mutex);
    process_.toys.erase(id_);
  }

  std::string_view name() const override { return "toy"; }
  std::vector<std::byte> address() const override {
    const ToyAddress address = {getpid(), id_};
    const auto* const bytes = reinterpret_cast<const std::byte*>(&address);
    return {bytes, bytes + sizeof address};
  }
  Reach reach(int, std::span<const std::byte> bytes) override {
    ToyAddress address;
    if (bytes.size() != sizeof address) return Reach::none;
    std::memcpy(&address, bytes.data(), sizeof address);
    return address.process == getpid() ? Reach::same_process : Reach::none;
  }
  Status add_peer(int peer, std::span<const std::byte> bytes) override {
    ToyAddress address;
    std::memcpy(&address, bytes.data(), sizeof address);
    at(peer).id = address.id;
    return {};
  }

  void send(SendRequest& request) override {
    at(request.peer).used = true;
    if (const Status* status = refusal(request)) return returns_.add(request, *status);
    const MutexLock lock(process_.mutex);
    waiting_.insert(&request);
  }
  void recv(RecvRequest& request) override {
    at(request.peer).used = true;
    request.exposed = nullptr;
    if (const Status* status = refusal(request)) return returns_.add(request, *status);
    receives_.push_back(&request);
  }
  void release(RecvRequest&) override {}
  bool has_come(int peer, const Key& key) override {
    at(peer).used = true;
    const MutexLock lock(process_.mutex);
    const auto found = process_.toys.find(at(peer).id);
    return found != process_.toys.end() && found->second->waiting_.find(rank_, key) != nullptr;
  }

  bool progress(Completions& completions) override {
    const MutexLock lock(process_.mutex);
    for (auto request = receives_.begin(); request != receives_.end();)
      request = take(**request) ? receives_.erase(request) : std::next(request);
    for (SendRequest* request : taken_) returns_.add(*request);
    taken_.clear();
    for (size_t p = 0; p < peers_.size(); p++) {
      ToyPeer& peer = peers_[p];
      if (!peer.used || peer.told || process_.toys.contains(peer.id)) continue;
      peer.told = true;
      returns_.add_event(static_cast<int>(p), {SENNIT_PEER_FAILED, "its toy is gone"});
    }
    return returns_.hand_over(completions);
  }

  void fail_peer(int peer, const Status& status) override {
    at(peer).failed = status;
    hand_back([peer](const MessageRequest& request) { return request.peer == peer; }, status);
  }
  void cancel(uint32_t comm, const Status& status) override {
    cancelled_.add(comm, status);
    hand_back([comm](const MessageRequest& request) { return request.key.comm == comm; }, status);
  }
  void forget(const std::function<bool(uint32_t comm)>& over) override { cancelled_.forget(over); }

 private:
  struct ToyPeer {
    uint64_t id = 0;
    bool used = false;
    bool told = false;  // that it is gone
    Status failed;
  };
  ToyPeer& at(int peer) { return peers_[static_cast<size_t>(peer)]; }
  const Status* refusal(const MessageRequest& request) {
    const ToyPeer& peer = at(request.peer);
    return peer.failed.ok() ? cancelled_.find(request.key.comm) : &peer.failed;
  }

  // Whether the message was there.
  bool take(RecvRequest& request) SENNIT_REQUIRES(process_.mutex) {
    const auto found = process_.toys.find(at(request.peer).id);
    if (found == process_.toys.end()) return false;
    Toy& sender = *found->second;
    SendRequest* const sent = sender.waiting_.remove(rank_, request.key);
    if (sent == nullptr) return false;
    request.ready_ns = request.first_ns = now_ns();
    request.status = Status();
    if (check_match(request, sent->signature, sent->bytes))
      copy_segments(request.segments, sent->segments);
    returns_.add_checked(request);
    sender.taken_.push_back(sent);
    return true;
  }

  template <typename Which>
  void hand_back(Which which, const Status& status) {
    const MutexLock lock(process_.mutex);
    waiting_.remove_if(which, [&](SendRequest& request) { returns_.add(request, status); });
    receives_.remove_if([&](RecvRequest* request) {
      if (!which(*request)) return false;
      returns_.add(*request, status);
      return true;
    });
  }

  Process& process_ = Process::instance();
  const int rank_;
  uint64_t id_ = 0;
  std::vector<ToyPeer> peers_;
  // Others' business as well: under the process's lock.
  KeyTable<SendRequest> waiting_;
  std::vector<SendRequest*> taken_;
  // Its own.
  std::list<RecvRequest*> receives_;
  Cancelled cancelled_;
  Returns returns_;
};

}  // namespace

SENNIT_TRANSPORT_ENTRY(toy, 10, Reach::same_process,
                       [](const TransportContext& context) -> Result<std::unique_ptr<Transport>> {
                         return std::unique_ptr<Transport>(std::make_unique<Toy>(context));
                       })

}  // namespace sennit
