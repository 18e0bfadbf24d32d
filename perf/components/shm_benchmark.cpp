// shm_benchmark.cpp: the shm transport between two processes: one-way latency, and exchange of large messages
// by each of its ways, beside memcpy. Names: shm/latency/bytes, shm/exchange/WAY/bytes; an exchange sends and
// receives that much on both sides at once, and delivers it (or, exposed, reads it once).
//   build/release/bin/shm_benchmark
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "shm.hpp"
#include "trace.hpp"

namespace {

using namespace sennit;

enum class Way { any_memory, stream, allocated, exposed };

// One rank of a pair; both run the same exchanges, each message under the next sequence number.
class End {
 public:
  End(int rank, uint64_t job) : rank_(rank) {
    TransportContext context;
    context.rank = rank;
    context.size = 2;
    context.local_ranks = 2;
    context.job = job;
    Result<std::unique_ptr<Transport>> made = shm::ShmTransport::make(context);
    SENNIT_CHECK(made.ok());
    transport_ = std::move(*made);
  }
  void meet(int in, int out) {
    const std::vector<std::byte> mine = transport_->address();
    std::vector<std::byte> theirs(mine.size());
    SENNIT_CHECK(write(out, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size()));
    SENNIT_CHECK(read(in, theirs.data(), theirs.size()) == static_cast<ssize_t>(theirs.size()));
    SENNIT_CHECK(transport_->add_peer(1 - rank_, theirs).ok());
  }
  void prepare(Way way, size_t bytes) {
    if (way == Way::stream) static_cast<shm::ShmTransport&>(*transport_).forbid_direct_reads();
    own_.assign(bytes, std::byte{1});
    in_.assign(bytes, std::byte{2});
    out_ = own_.data();
    if (way == Way::allocated || way == Way::exposed)
      out_ = static_cast<std::byte*>(transport_->allocate(bytes ? bytes : 1));
    if (bytes) std::memset(out_, 3, bytes);
    expose_ = way == Way::exposed;
  }
  void send(size_t bytes) { start_send(bytes), wait(1); }
  void recv(size_t bytes) { start_recv(bytes), wait(1); }
  void exchange(size_t bytes) {
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
  bool expose_ = false;
  Segment from_, to_;
  SendRequest send_;
  RecvRequest recv_;
  uint32_t sent_ = 0, received_ = 0;
  Completions done_;
};

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// The partner is a process that answers until a message of one byte says stop.
void run(benchmark::State& state, Way way, bool exchange) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  int to_partner[2], from_partner[2];
  SENNIT_CHECK(pipe(to_partner) == 0 && pipe(from_partner) == 0);
  const uint64_t job = static_cast<uint64_t>(getpid());
  const pid_t partner = fork();
  End end(partner == 0, job);
  pin(partner == 0);
  end.meet(partner ? from_partner[0] : to_partner[0], partner ? to_partner[1] : from_partner[1]);
  end.prepare(way, bytes + 1);
  // Both sides agree on the number of rounds through a byte before each batch: costs nothing in the middle.
  constexpr int kBatch = 64;
  const int batch = exchange ? 4 : kBatch;
  const auto rounds = [&] {
    for (int i = 0; i < batch; i++)
      if (exchange)
        end.exchange(bytes);
      else if (partner)
        end.send(bytes), end.recv(bytes);
      else
        end.recv(bytes), end.send(bytes);
  };
  char more = 1;
  if (partner == 0) {
    while (read(to_partner[0], &more, 1) == 1 && more) {
      if (write(from_partner[1], &more, 1) != 1) break;
      rounds();
    }
    _exit(0);
  }
  uint64_t done = 0;
  double best_s = 1e9;
  for (auto _ : state) {
    state.PauseTiming();
    SENNIT_CHECK(write(to_partner[1], &more, 1) == 1 && read(from_partner[0], &more, 1) == 1);
    state.ResumeTiming();
    const uint64_t start_ns = now_ns();
    rounds();
    best_s = std::min(best_s, static_cast<double>(now_ns() - start_ns) * 1e-9 / batch);
    done += static_cast<uint64_t>(batch);
  }
  more = 0;
  SENNIT_CHECK(write(to_partner[1], &more, 1) == 1);
  waitpid(partner, nullptr, 0);
  for (const int fd : {to_partner[0], to_partner[1], from_partner[0], from_partner[1]}) close(fd);
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

void run_memcpy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("shm/latency", run, Way::any_memory, false)
      ->Arg(0)
      ->Arg(8)
      ->Arg(64)
      ->Arg(1024)
      ->Arg(8192)
      ->Arg(65536)
      ->UseRealTime();
  constexpr const char* kNames[] = {"any_memory", "stream", "allocated", "exposed"};
  for (const Way way : {Way::any_memory, Way::stream, Way::allocated, Way::exposed})
    benchmark::RegisterBenchmark(("shm/exchange/" + std::string(kNames[static_cast<int>(way)])).c_str(), run,
                                 way, true)
        ->Arg(16 << 10)
        ->Arg(128 << 10)
        ->Arg(1 << 20)
        ->Arg(8 << 20)
        ->UseRealTime();
  benchmark::RegisterBenchmark("memcpy", run_memcpy)->Arg(128 << 10)->Arg(8 << 20)->UseRealTime();
  return 0;
}();

}  // namespace
