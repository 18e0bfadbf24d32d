// Latency and bandwidth of each transport, beside raw sockets moving the same bytes the same way:
// two ranks as two threads, one ping-pong per iteration. SIZE is bytes each way; bytes_per_second
// counts both ways. Transports that cannot be made on this machine are left out. Where there are
// fewer cores than threads the numbers are those of the scheduler.
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transports/transport.hpp"

namespace sennit {
namespace {

// One end: posts one send and one receive at a time.
class End {
 public:
  End(const TransportFactory& factory, int rank) : rank_(rank) {
    TransportContext context;
    context.rank = rank;
    context.size = 2;
    context.asked_for = true;
    context.job = static_cast<uint64_t>(getpid());
    context.secret.assign(32, std::byte{1});
    context.host_interface = "127.0.0.1";
    context.local_ranks = 2;
    Result<std::unique_ptr<Transport>> made = factory.make(context);
    if (made) transport_ = std::move(*made);
  }

  Transport* transport() const { return transport_.get(); }

  bool meet(const End& other) {
    if (!transport_ || !other.transport_) return false;
    const std::vector<std::byte> address = other.transport_->address();
    return transport_->reach(other.rank_, address) != Reach::none &&
           transport_->add_peer(other.rank_, address).ok();
  }

  void size(size_t bytes) {
    out_.resize(bytes);
    in_.resize(bytes);
    out_segment_ = {out_.data(), bytes};
    in_segment_ = {in_.data(), bytes};
  }

  void post_recv(uint32_t seq) {
    prepare(recv_, seq, in_segment_);
    recv_.may_expose = false;
    received_ = false;
    transport_->recv(recv_);
  }
  void post_send(uint32_t seq) {
    prepare(send_, seq, out_segment_);
    sent_ = false;
    transport_->send(send_);
  }
  // True when both are done.
  bool poll() {
    completions_.clear();
    moved_ = transport_->progress(completions_);
    if (!completions_.sends.empty()) sent_ = true;
    if (!completions_.receives.empty()) received_ = true;
    return sent_ && received_;
  }
  // False if the other end has stopped.
  bool wait(const std::atomic<bool>& stop) {
    while (!poll()) {
      if (!moved_) std::this_thread::yield();
      if (stop.load(std::memory_order_relaxed)) return false;
    }
    return true;
  }

 private:
  void prepare(MessageRequest& request, uint32_t seq, const Segment& segment) {
    request.peer = 1 - rank_;
    request.key = {1, seq, 0, 0};
    request.segments = {&segment, 1};
    request.bytes = segment.bytes;
  }

  const int rank_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> out_, in_;
  Segment out_segment_, in_segment_;
  SendRequest send_;
  RecvRequest recv_;
  bool sent_ = true, received_ = true, moved_ = false;
  Completions completions_;
};

void ping_pong(benchmark::State& state, const TransportFactory& factory, bool threads) {
  auto a = std::make_unique<End>(factory, 0);
  auto b = std::make_unique<End>(factory, 1);
  if (!a->meet(*b) || !b->meet(*a)) {
    state.SkipWithError("not on this machine, or not within one process");
    return;
  }
  const auto bytes = static_cast<size_t>(state.range(0));
  a->size(bytes);
  b->size(bytes);
  state.SetLabel(threads ? "" : "see CPU time");
  if (!threads) {
    uint32_t number = 0;
    b->post_recv(0);
    for (auto _ : state) {
      a->post_recv(number);
      a->post_send(number);
      while (!b->poll()) a->poll();
      b->post_recv(number + 1);
      b->post_send(number);
      while (!a->poll()) b->poll();
      number++;
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 2 * state.range(0));
    return;
  }
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    b->post_recv(0);
    for (uint32_t seq = 0; b->wait(stop); seq++) {
      b->post_recv(seq + 1);
      b->post_send(seq);
      // The next receive is on its way while this answer is sent: wait for both in the next round.
    }
  });
  uint32_t seq = 0;
  const std::atomic<bool> never = false;
  for (auto _ : state) {
    a->post_recv(seq);
    a->post_send(seq);
    a->wait(never);
    seq++;
  }
  stop = true;
  echo.join();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 2 * state.range(0));
}

// Bytes over a plain TCP connection, both ends polling.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  ~RawSocket() { close(fd_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  // What fits now.
  size_t try_move(char* data, size_t bytes, bool sending) const {
    const ssize_t moved = sending ? send(fd_, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : recv(fd_, data, bytes, MSG_DONTWAIT);
    return moved > 0 ? static_cast<size_t>(moved) : 0;
  }
  bool move(char* data, size_t bytes, bool sending, const std::atomic<bool>& stop) const {
    size_t done = 0;
    while (done < bytes) {
      const size_t moved = try_move(data + done, bytes - done, sending);
      done += moved;
      if (moved == 0) std::this_thread::yield();
      if (stop.load(std::memory_order_relaxed)) return false;
    }
    return true;
  }

 private:
  const int fd_;
};

void raw_ping_pong(benchmark::State& state, bool threads) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) < 0 ||
      listen(listener, 1) < 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) < 0) {
    state.SkipWithError("no socket");
    return;
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) < 0) {
    state.SkipWithError("no connection");
    return;
  }
  const RawSocket a(fd), b(accept(listener, nullptr, nullptr));
  close(listener);
  const auto bytes = static_cast<size_t>(state.range(0));
  if (!threads) {
    std::vector<char> from(bytes), to(bytes);
    const auto cross = [&](const RawSocket& sender, const RawSocket& receiver) {
      size_t sent = 0, received = 0;
      while (received < bytes) {
        if (sent < bytes) sent += sender.try_move(from.data() + sent, bytes - sent, true);
        received += receiver.try_move(to.data() + received, bytes - received, false);
      }
    };
    for (auto _ : state) {
      cross(a, b);
      cross(b, a);
    }
    state.SetLabel("see CPU time");
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 2 * state.range(0));
    return;
  }
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    std::vector<char> data(bytes);
    while (b.move(data.data(), bytes, false, stop) && b.move(data.data(), bytes, true, stop)) {
    }
  });
  std::vector<char> data(bytes);
  const std::atomic<bool> never = false;
  for (auto _ : state) {
    a.move(data.data(), bytes, true, never);
    a.move(data.data(), bytes, false, never);
  }
  stop = true;
  echo.join();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * 2 * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(8)->Arg(1024)->Arg(8192)->Arg(65536)->Arg(524288)->Arg(4194304);
}

}  // namespace
}  // namespace sennit

int main(int argc, char** argv) {
  using namespace sennit;
  benchmark::Initialize(&argc, argv);
  for (const bool threads : {false, true}) {
    const std::string prefix = threads ? "threads/" : "one_thread/";
    sizes(benchmark::RegisterBenchmark(
        (prefix + "raw_socket").c_str(),
        [threads](benchmark::State& state) { raw_ping_pong(state, threads); }));
    for (const TransportFactory& factory : transports())
      sizes(benchmark::RegisterBenchmark(
          (prefix + std::string(factory.name)).c_str(),
          [&factory, threads](benchmark::State& state) { ping_pong(state, factory, threads); }));
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
