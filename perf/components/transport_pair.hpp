// transport_pair.hpp: benchmarks of a transport between two processes, one on each core: one-way
// latency, and exchanges, in which both send and receive that much at once. `best` is of the
// fastest batch, which other load on the machine disturbs least. The partner is a fork that runs a
// batch whenever it is told to.
#pragma once

#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "transports/transport.hpp"

namespace sennit::perf {

// What two processes do with each other; made in each of them.
class Pair {
 public:
  virtual ~Pair() = default;
  virtual std::vector<std::byte> address() = 0;
  virtual void meet(const std::vector<std::byte>& address) = 0;
  virtual void send(size_t bytes) = 0;
  virtual void recv(size_t bytes) = 0;
  virtual void exchange(size_t bytes) = 0;
};

// A rank with a transport; each message goes under the next number.
class TransportPair : public Pair {
 public:
  TransportPair(int rank, std::unique_ptr<Transport> transport, size_t most_bytes, bool allocate,
                bool expose)
      : rank_(rank),
        transport_(std::move(transport)),
        own_(most_bytes, std::byte{1}),
        in_(most_bytes),
        expose_(expose) {
    out_ = allocate ? static_cast<std::byte*>(transport_->allocate(most_bytes)) : own_.data();
    std::memset(out_, 3, most_bytes);
  }
  std::vector<std::byte> address() override { return transport_->address(); }
  void meet(const std::vector<std::byte>& address) override {
    SENNIT_CHECK(transport_->add_peer(1 - rank_, address).ok());
  }
  void send(size_t bytes) override {
    start_send(bytes);
    wait(1);
  }
  void recv(size_t bytes) override {
    start_recv(bytes);
    wait(1);
  }
  void exchange(size_t bytes) override {
    start_recv(bytes);
    start_send(bytes);
    wait(2);
  }

 private:
  void start_send(size_t bytes) {
    from_ = {out_, bytes};
    set(send_, from_, sent_++);
    transport_->send(send_);
  }
  void start_recv(size_t bytes) {
    to_ = {in_.data(), bytes};
    set(recv_, to_, received_++);
    recv_.may_expose = expose_;
    transport_->recv(recv_);
  }
  template <typename Request>
  void set(Request& request, const Segment& segment, uint32_t number) {
    request.peer = 1 - rank_;
    request.key = {1, number, 0, 0};
    request.segments = {&segment, 1};
    request.bytes = segment.bytes;
  }
  void wait(size_t count) {
    while (count > 0) {
      transport_->progress(done_);
      if (!done_.receives.empty() && recv_.exposed) {
        const std::byte* data = recv_.exposed;
        uint64_t sum = 0;
        for (size_t i = 0; i + 8 <= recv_.bytes; i += 8) {
          uint64_t word;
          std::memcpy(&word, data + i, 8);
          sum += word;
        }
        benchmark::DoNotOptimize(sum);
        transport_->release(recv_);
      }
      SENNIT_CHECK(done_.events.empty());
      count -= done_.sends.size() + done_.receives.size();
      done_.clear();
    }
  }

  int rank_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> own_, in_;
  std::byte* out_ = nullptr;
  bool expose_;
  Segment from_, to_;
  SendRequest send_;
  RecvRequest recv_;
  uint32_t sent_ = 0, received_ = 0;
  Completions done_;
};

// Keeps the calling thread on this core. Where that is not allowed, nothing happens.
inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// A process that does what this one does, from the other side, and the bytes between them by which
// both begin each batch at once. That costs nothing in the middle of a batch.
class Partner {
 public:
  Partner() {
    SENNIT_CHECK(pipe(there_) == 0 && pipe(back_) == 0);
    process_ = fork();
    pin(is_partner());
  }
  bool is_partner() const { return process_ == 0; }
  // Hands the other side this one's address, and gives its address.
  std::vector<std::byte> swap(const std::vector<std::byte>& mine) const {
    std::vector<std::byte> theirs(mine.size());
    const int in = is_partner() ? there_[0] : back_[0], out = is_partner() ? back_[1] : there_[1];
    SENNIT_CHECK(write(out, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size()));
    SENNIT_CHECK(read(in, theirs.data(), theirs.size()) == static_cast<ssize_t>(theirs.size()));
    return theirs;
  }
  // The partner's part: a batch each time that it is told to.
  [[noreturn]] void follow(const std::function<void()>& batch) const {
    char more = 1;
    while (read(there_[0], &more, 1) == 1 && more && write(back_[1], &more, 1) == 1) batch();
    _exit(0);
  }
  void start_both() const {
    char more = 1;
    SENNIT_CHECK(write(there_[1], &more, 1) == 1 && read(back_[0], &more, 1) == 1);
  }
  void end() const {
    const char no_more = 0;
    SENNIT_CHECK(write(there_[1], &no_more, 1) == 1);
    waitpid(process_, nullptr, 0);
    for (const int fd : {there_[0], there_[1], back_[0], back_[1]}) close(fd);
  }

 private:
  int there_[2] = {}, back_[2] = {};
  pid_t process_ = -1;
};

// `make` makes this process's end, as rank 0 or 1.
inline void run_pair(benchmark::State& state, bool exchange,
                     const std::function<std::unique_ptr<Pair>(int rank, size_t bytes)>& make) {
  constexpr int kExchanges = 4, kRoundTrips = 16;
  const size_t bytes = static_cast<size_t>(state.range(0));
  const Partner partner;
  const std::unique_ptr<Pair> end = make(partner.is_partner() ? 0 : 1, bytes + 1);
  end->meet(partner.swap(end->address()));
  const int batch = exchange ? kExchanges : kRoundTrips;
  const auto rounds = [&] {
    for (int i = 0; i < batch; i++) {
      if (exchange) {
        end->exchange(bytes);
        continue;
      }
      if (!partner.is_partner()) end->send(bytes);
      end->recv(bytes);
      if (partner.is_partner()) end->send(bytes);
    }
  };
  if (partner.is_partner()) partner.follow(rounds);
  partner.start_both();  // the first batch connects
  rounds();
  uint64_t done = 0;
  double best_s = 1e9;
  for (auto _ : state) {
    state.PauseTiming();
    partner.start_both();
    state.ResumeTiming();
    const uint64_t start_ns = now_ns();
    rounds();
    best_s = std::min(best_s, static_cast<double>(now_ns() - start_ns) * 1e-9 / batch);
    done += static_cast<uint64_t>(batch);
  }
  partner.end();
  // `best`: of the fastest batch, which other load on the machine disturbs least.
  if (exchange) {
    state.SetBytesProcessed(static_cast<int64_t>(done * bytes));
    state.counters["best_bytes_per_s"] = static_cast<double>(bytes) / best_s;
  } else {
    state.counters["one_way_s"] = benchmark::Counter(
        2.0 * static_cast<double>(done), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["best_s"] = best_s / 2;
  }
}

}  // namespace sennit::perf
