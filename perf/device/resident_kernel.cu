// resident_kernel: whether one kernel that stays in a stream while a call is out can do the call's
// copies and reductions, told what to do through pinned memory.
//
//     nvcc -O3 -std=c++17 -arch=native -o resident_kernel resident_kernel.cu -lcuda
//     ./resident_kernel
//
// Prints one line a question: what another thread may do while the kernel waits, how long a command
// takes, how fast it copies and adds, what several processes that share the device lose, whether it
// can be captured, and which memory can be shared between processes.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "resident_kernel: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check((call), #call)

enum Work : uint32_t { nothing, copy, sum_float, sum_bf16 };

struct Command {
  uint32_t work;
  void* out;
  const void* a;
  const void* b;
  uint64_t bytes;
};

constexpr int kRing = 64;

// In pinned memory. Words that one side writes have a line of their own.
struct Mailbox {
  alignas(64) volatile uint64_t reached;
  alignas(64) volatile uint64_t posted;
  alignas(64) volatile uint64_t left;
  alignas(64) volatile uint64_t done[kRing];
  alignas(64) Command ring[kRing];
};

struct Counters {  // in device memory, zero
  unsigned long long next[kRing];
  unsigned finished[kRing];
};

__device__ uint64_t load_acquire(const volatile uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void store_release(volatile uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

constexpr uint64_t kTile = 64 * 1024;

__device__ void run_tile(const Command& c, uint64_t from, uint64_t bytes) {
  const size_t vectors = bytes / 16;
  const auto* a = reinterpret_cast<const uint4*>(static_cast<const char*>(c.a) + from);
  const auto* b = reinterpret_cast<const uint4*>(static_cast<const char*>(c.b) + from);
  auto* out = reinterpret_cast<uint4*>(static_cast<char*>(c.out) + from);
  constexpr int kUnroll = 4;
  for (size_t i = threadIdx.x; i < vectors; i += kUnroll * blockDim.x) {
    uint4 x[kUnroll], y[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
      if (const size_t at = i + u * blockDim.x; at < vectors) {
        x[u] = a[at];
        if (c.work != copy) y[u] = b[at];
      }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const size_t at = i + u * blockDim.x;
      if (at >= vectors) continue;
      if (c.work == sum_float) {
        auto* f = reinterpret_cast<float*>(&x[u]);
        const auto* g = reinterpret_cast<const float*>(&y[u]);
        for (int k = 0; k < 4; k++) f[k] += g[k];
      } else if (c.work == sum_bf16) {
        auto* f = reinterpret_cast<__nv_bfloat16*>(&x[u]);
        const auto* g = reinterpret_cast<const __nv_bfloat16*>(&y[u]);
        for (int k = 0; k < 8; k++)
          f[k] = __float2bfloat16(__bfloat162float(f[k]) + __bfloat162float(g[k]));
      }
      out[at] = x[u];
    }
  }
}

// Blocks claim tiles of the command, so that one that is not on the device yet is not waited for.
__global__ void resident(Mailbox* box, Counters* counters) {
  __shared__ uint64_t posted, tile;
  __shared__ bool over, last;
  if (blockIdx.x == 0 && threadIdx.x == 0) store_release(&box->reached, 1);
  for (uint64_t number = 1;; number++) {
    if (threadIdx.x == 0) {
      over = false;
      for (;;) {
        posted = load_acquire(&box->posted);
        if (posted >= number) break;
        if (load_acquire(&box->left)) {
          over = true;
          break;
        }
      }
    }
    __syncthreads();
    if (over) return;
    const int slot = number % kRing;
    const Command command = box->ring[slot];
    const uint64_t tiles = (command.bytes + kTile - 1) / kTile;
    unsigned mine = 0;
    for (;;) {
      __syncthreads();
      if (threadIdx.x == 0) tile = atomicAdd(&counters->next[slot], 1ull);
      __syncthreads();
      if (tile >= tiles) break;
      mine++;
      const uint64_t from = tile * kTile;
      run_tile(command, from, command.bytes - from < kTile ? command.bytes - from : kTile);
    }
    __syncthreads();
    if (threadIdx.x == 0 && mine > 0) {
      __threadfence_system();
      last = atomicAdd(&counters->finished[slot], mine) + mine == tiles;
      if (last) {
        __threadfence_system();
        store_release(&box->done[slot], number);
      }
    }
  }
}

__global__ void touch(int* word) { *word += 1; }

struct Resident {
  Mailbox* box = nullptr;
  Counters* counters = nullptr;
  uint64_t number = 0;
  cudaStream_t stream = nullptr;
  Resident() {
    CHECK(cudaHostAlloc(reinterpret_cast<void**>(&box), sizeof *box, cudaHostAllocMapped));
    CHECK(cudaMalloc(&counters, sizeof *counters));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void prepare() {
    std::memset(box, 0, sizeof *box);
    CHECK(cudaMemset(counters, 0, sizeof *counters));
    CHECK(cudaDeviceSynchronize());
    number = 0;
  }
  void launch(int blocks) { resident<<<blocks, 512, 0, stream>>>(box, counters); }
  bool await_reached(double seconds) const {
    const auto begin = Clock::now();
    while (!__atomic_load_n(&box->reached, __ATOMIC_ACQUIRE))
      if (us_since(begin) > seconds * 1e6) return false;
    return true;
  }
  uint64_t post(const Command& command) {
    number++;
    box->ring[number % kRing] = command;
    __atomic_store_n(&box->posted, number, __ATOMIC_RELEASE);
    return number;
  }
  void await(uint64_t which) const {
    while (__atomic_load_n(&box->done[which % kRing], __ATOMIC_ACQUIRE) < which) {
    }
  }
  void leave() {
    __atomic_store_n(&box->left, 1, __ATOMIC_RELEASE);
    CHECK(cudaStreamSynchronize(stream));
  }
};

// ---- what another thread may do meanwhile ----

void ask(Resident& r, const char* what, const std::function<void()>& action) {
  r.prepare();
  r.launch(8);
  if (!r.await_reached(5)) std::printf("  the kernel never began\n");
  std::atomic<bool> returned{false};
  double took = 0;
  std::thread other([&] {
    const auto begin = Clock::now();
    action();
    took = us_since(begin);
    returned = true;
  });
  const auto begin = Clock::now();
  while (!returned && us_since(begin) < 0.7e6) std::this_thread::yield();
  const bool free = returned;
  // The kernel still does as it is told.
  void* memory = r.counters;
  const auto told = Clock::now();
  r.await(r.post({nothing, memory, memory, memory, 16}));
  const double command_us = us_since(told);
  r.leave();
  other.join();
  if (free)
    std::printf("  %-44s returns after %.1f us\n", what, took);
  else
    std::printf("  %-44s WAITS for the kernel; a command still takes %.1f us\n", what, command_us);
}

void ask_all(Resident& r) {
  std::printf("while a kernel of 8 blocks stays, another thread's\n");
  cudaStream_t other;
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaStream_t blocking;
  CHECK(cudaStreamCreate(&blocking));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int* word;
  CHECK(cudaMalloc(&word, 4096));
  void* pinned;
  CHECK(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocDefault));
  std::vector<char> pageable(1 << 20);
  void* p = nullptr;
  ask(r, "cudaMalloc of 1 MiB", [&] { CHECK(cudaMalloc(&p, 1 << 20)); });
  ask(r, "cudaFree of it", [&] { CHECK(cudaFree(p)); });
  ask(r, "cudaMalloc of 1 GiB", [&] { CHECK(cudaMalloc(&p, 1 << 30)); });
  CHECK(cudaFree(p));
  ask(r, "cudaMallocAsync, its own stream", [&] { CHECK(cudaMallocAsync(&p, 1 << 20, other)); });
  ask(r, "cudaFreeAsync, its own stream", [&] { CHECK(cudaFreeAsync(p, other)); });
  ask(r, "cudaHostAlloc of 1 MiB", [&] { CHECK(cudaHostAlloc(&p, 1 << 20, cudaHostAllocDefault)); });
  ask(r, "cudaFreeHost of it", [&] { CHECK(cudaFreeHost(p)); });
  ask(r, "cudaHostRegister of 1 MiB", [&] { CHECK(cudaHostRegister(pageable.data(), 1 << 20, 0)); });
  ask(r, "cudaHostUnregister of it", [&] { CHECK(cudaHostUnregister(pageable.data())); });
  ask(r, "kernel in its own stream, and its end", [&] {
    touch<<<1, 1, 0, other>>>(word);
    CHECK(cudaStreamSynchronize(other));
  });
  ask(r, "kernel in a blocking stream, and its end", [&] {
    touch<<<1, 1, 0, blocking>>>(word);
    CHECK(cudaStreamSynchronize(blocking));
  });
  ask(r, "kernel in the legacy stream, and its end", [&] {
    touch<<<1, 1>>>(word);
    CHECK(cudaStreamSynchronize(nullptr));
  });
  ask(r, "cudaMemcpy of pinned memory", [&] { CHECK(cudaMemcpy(word, pinned, 4096, cudaMemcpyDefault)); });
  ask(r, "cudaMemcpy of pageable memory", [&] {
    CHECK(cudaMemcpy(word, pageable.data(), 4096, cudaMemcpyDefault));
  });
  ask(r, "cudaMemcpyAsync in its own stream, and its end", [&] {
    CHECK(cudaMemcpyAsync(word, pinned, 4096, cudaMemcpyDefault, other));
    CHECK(cudaStreamSynchronize(other));
  });
  ask(r, "cudaEventRecord and cudaEventQuery", [&] {
    CHECK(cudaEventRecord(event, other));
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
  });
  ask(r, "launch behind it in the same stream", [&] { touch<<<1, 1, 0, r.stream>>>(word); });
  ask(r, "cudaPointerGetAttributes", [&] {
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, word));
  });
  ask(r, "cudaStreamCreate", [&] {
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  });
  ask(r, "cudaIpcGetMemHandle", [&] {
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, word));
  });
  ask(r, "cudaDeviceSynchronize", [&] { CHECK(cudaDeviceSynchronize()); });
}

// ---- times ----

void time_commands(Resident& r) {
  char* memory;
  CHECK(cudaMalloc(&memory, 1 << 20));
  for (const int blocks : {1, 8, 16, 32}) {
    std::vector<double> enqueue, reached, command, small, ended;
    for (int i = 0; i < 200; i++) {
      r.prepare();
      const auto begin = Clock::now();
      r.launch(blocks);
      enqueue.push_back(us_since(begin));
      r.await_reached(5);
      reached.push_back(us_since(begin));
      for (int k = 0; k < 20; k++) {
        const auto posted = Clock::now();
        r.await(r.post({copy, memory, memory + 4096, nullptr, 16}));
        command.push_back(us_since(posted));
        const auto again = Clock::now();
        r.await(r.post({copy, memory, memory + 524288, nullptr, 65536}));
        small.push_back(us_since(again));
      }
      const auto leaves = Clock::now();
      __atomic_store_n(&r.box->left, 1, __ATOMIC_RELEASE);
      CHECK(cudaStreamSynchronize(r.stream));
      ended.push_back(us_since(leaves));
    }
    std::printf(
        "blocks %2d: enqueue %.1f us, reached after %.1f, a command of 16 B %.2f, of 64 KiB %.2f, "
        "leave to the stream's end %.1f\n",
        blocks, median(enqueue), median(reached), median(command), median(small), median(ended));
  }
  CHECK(cudaFree(memory));
}

void time_copies(Resident& r) {
  constexpr uint64_t kBytes = 256ull << 20;
  char *a, *b, *c, *pinned;
  CHECK(cudaMalloc(&a, kBytes));
  CHECK(cudaMalloc(&b, kBytes));
  CHECK(cudaMalloc(&c, kBytes));
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, cudaHostAllocMapped));
  CHECK(cudaMemset(a, 0, kBytes));
  CHECK(cudaMemset(b, 0, kBytes));
  const auto rate_of = [&](const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = 0; i < 7; i++) {
      const auto begin = Clock::now();
      work();
      times.push_back(us_since(begin));
    }
    return kBytes / median(times) / 1e3;
  };
  const auto memcpy_rate = [&](void* to, void* from) {
    return rate_of([&] {
      CHECK(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, r.stream));
      CHECK(cudaStreamSynchronize(r.stream));
    });
  };
  std::printf("GB/s of 256 MiB, bytes of the result: cudaMemcpy device %.0f, to pinned %.1f, from pinned %.1f\n",
              memcpy_rate(b, a), memcpy_rate(pinned, a), memcpy_rate(b, pinned));
  for (const int blocks : {1, 4, 8, 16, 32, 64, 132, 264}) {
    r.prepare();
    r.launch(blocks);
    const auto rate = [&](const Command& command) {
      return rate_of([&] { r.await(r.post(command)); });
    };
    // A slot's counters serve once.
    struct {
      double copy, sum, bf16, to, from, mixed;
    } g;
    g.copy = rate({copy, c, a, nullptr, kBytes});
    g.sum = rate({sum_float, c, a, b, kBytes});
    g.bf16 = rate({sum_bf16, c, a, b, kBytes});
    g.to = rate({copy, pinned, a, nullptr, kBytes});
    g.from = rate({copy, c, pinned, nullptr, kBytes});
    g.mixed = rate({sum_float, c, a, pinned, kBytes});
    r.leave();
    std::printf(
        "blocks %3d: copy %.0f, float sum %.0f, bf16 sum %.0f, to pinned %.1f, from pinned %.1f, "
        "sum with pinned %.1f\n",
        blocks, g.copy, g.sum, g.bf16, g.to, g.from, g.mixed);
  }
  for (void* p : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)})
    CHECK(cudaFree(p));
  CHECK(cudaFreeHost(pinned));
}

// ---- order ----

// What is written before a word that is released is seen by whoever acquires it, both ways.
void check_order(Resident& r) {
  constexpr uint64_t kBytes = 4096;
  uint32_t *pinned, *back;
  char* device;
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, cudaHostAllocMapped));
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&back), kBytes, cudaHostAllocMapped));
  CHECK(cudaMalloc(&device, kBytes));
  uint64_t wrong = 0, rounds = 0;
  for (int launch = 0; launch < 200; launch++) {
    r.prepare();
    r.launch(8);
    for (int k = 0; k < 30; k++) {
      const uint32_t value = static_cast<uint32_t>(++rounds);
      for (size_t i = 0; i < kBytes / 4; i++) pinned[i] = value + i;
      r.await(r.post({copy, device, pinned, nullptr, kBytes}));
      r.await(r.post({copy, back, device, nullptr, kBytes}));
      for (size_t i = 0; i < kBytes / 4; i++) wrong += back[i] != value + i;
    }
    r.leave();
  }
  std::printf("order: %llu round trips through the device, %llu wrong words\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(wrong));
}

// ---- several on one device ----

// `ranks` kernels of `blocks`, each waiting for a word of the one before: hand-overs a second.
void time_ring_of_threads(int ranks, int blocks) {
  std::vector<Resident> all(static_cast<size_t>(ranks));
  char* memory;
  CHECK(cudaMalloc(&memory, 4096));
  for (Resident& r : all) r.prepare();
  for (Resident& r : all) r.launch(blocks);
  for (Resident& r : all)
    if (!r.await_reached(5)) {
      std::printf("threads: of %d kernels of %d blocks not all are on the device\n", ranks, blocks);
      for (Resident& s : all) __atomic_store_n(&s.box->left, 1, __ATOMIC_RELEASE);
      CHECK(cudaDeviceSynchronize());
      return;
    }
  const auto begin = Clock::now();
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; round++)
    for (Resident& r : all) r.await(r.post({copy, memory, memory + 64, nullptr, 16}));
  std::printf("threads: %d kernels of %d blocks at once, a hand-over takes %.1f us\n", ranks, blocks,
              us_since(begin) / kRounds / ranks);
  for (Resident& r : all) r.leave();
}

// The same, a process each, which share the device by time slices.
void time_ring_of_processes(int ranks) {
  struct Shared {
    alignas(64) std::atomic<int> ready;
    alignas(64) std::atomic<int> turn;
  };
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  constexpr int kRounds = 20;
  std::vector<pid_t> children;
  std::fflush(stdout);
  for (int rank = 0; rank < ranks; rank++) {
    const pid_t child = fork();
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    alarm(60);
    Resident r;
    char* memory;
    CHECK(cudaMalloc(&memory, 4096));
    r.prepare();
    shared->ready++;
    while (shared->ready < ranks) std::this_thread::yield();
    r.launch(4);
    r.await_reached(20);
    shared->ready++;
    while (shared->ready < 2 * ranks) std::this_thread::yield();
    const auto begin = Clock::now();
    for (int round = 0; round < kRounds; round++) {
      while (shared->turn != round * ranks + rank) std::this_thread::yield();
      r.await(r.post({copy, memory, memory + 64, nullptr, 16}));
      shared->turn++;
    }
    if (rank == ranks - 1)
      std::printf("processes: %d share the device, a hand-over takes %.0f us\n", ranks,
                  us_since(begin) / kRounds / ranks);
    std::fflush(stdout);
    r.leave();
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
      std::printf("processes: one of %d ended with %d\n", ranks, status);
  }
}

// ---- graphs ----

__global__ void resident_of_graph(Mailbox* box, Counters* counters, uint64_t* replays) {
  __shared__ uint64_t mine;
  if (threadIdx.x == 0) {
    mine = *replays + 1;
    store_release(&box->reached, mine);
    while (load_acquire(&box->left) < mine) {
    }
    *replays = mine;
  }
  __syncthreads();
}

void time_graph(Resident& r) {
  r.prepare();
  uint64_t* replays;
  CHECK(cudaMalloc(&replays, 8));
  CHECK(cudaMemset(replays, 0, 8));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
  resident_of_graph<<<1, 32, 0, r.stream>>>(r.box, r.counters, replays);
  CHECK(cudaStreamEndCapture(r.stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::atomic<bool> over{false};
  std::thread host([&] {  // answers whatever replay comes
    while (!over) {
      const uint64_t reached = __atomic_load_n(&r.box->reached, __ATOMIC_ACQUIRE);
      if (__atomic_load_n(&r.box->left, __ATOMIC_RELAXED) < reached)
        __atomic_store_n(&r.box->left, reached, __ATOMIC_RELEASE);
    }
  });
  constexpr int kReplays = 1000;
  const auto begin = Clock::now();
  for (int i = 0; i < kReplays; i++) CHECK(cudaGraphLaunch(exec, r.stream));
  CHECK(cudaStreamSynchronize(r.stream));
  std::printf("graph: %d replays, %.1f us each, %llu seen\n", kReplays, us_since(begin) / kReplays,
              static_cast<unsigned long long>(r.box->left));
  over = true;
  host.join();
}

// ---- shared memory between processes ----

void try_sharing() {
  void* p;
  cudaIpcMemHandle_t handle;
  CHECK(cudaMalloc(&p, 4 << 20));
  std::printf("share: cudaMalloc %s", cudaGetErrorString(cudaIpcGetMemHandle(&handle, p)));
  void* base;
  size_t size;
  cuMemGetAddressRange(reinterpret_cast<CUdeviceptr*>(&base), &size,
                       reinterpret_cast<CUdeviceptr>(p) + 1000);
  std::printf(" (range of %zu, base %s)", size, base == p ? "right" : "wrong");
  CHECK(cudaMallocAsync(&p, 4 << 20, nullptr));
  CHECK(cudaDeviceSynchronize());
  std::printf("; cudaMallocAsync %s", cudaGetErrorString(cudaIpcGetMemHandle(&handle, p)));
  cudaGetLastError();
  CHECK(cudaMallocManaged(&p, 4 << 20));
  std::printf("; managed %s\n", cudaGetErrorString(cudaIpcGetMemHandle(&handle, p)));
  cudaGetLastError();
  // From one process to another, by the handle.
  int to[2];
  if (pipe(to) != 0) return;
  std::fflush(stdout);
  // A child that forks from a process with a context cannot use the device: two that start anew.
  const pid_t reader = fork();
  if (reader == 0) {
    execl("/proc/self/exe", "resident_kernel", "--read-handle", std::to_string(to[0]).c_str(), nullptr);
    _exit(9);
  }
  CHECK(cudaMalloc(&p, 4 << 20));
  CHECK(cudaMemset(p, 7, 4 << 20));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaIpcGetMemHandle(&handle, p));
  if (write(to[1], &handle, sizeof handle) != sizeof handle) return;
  // One more, which is opened while the reader's kernel stays.
  CHECK(cudaMalloc(&p, 4 << 20));
  CHECK(cudaIpcGetMemHandle(&handle, p));
  if (write(to[1], &handle, sizeof handle) != sizeof handle) return;
  int status = 0;
  waitpid(reader, &status, 0);
  if (status) std::printf("share: the reader ended with %d\n", status);
}

int read_handle(int fd) {
  cudaIpcMemHandle_t handle;
  if (read(fd, &handle, sizeof handle) != sizeof handle) return 8;
  void* p;
  CHECK(cudaFree(nullptr));
  const auto begin = Clock::now();
  CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
  const double open_us = us_since(begin);
  Resident r;
  char* back;
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&back), 4 << 20, cudaHostAllocMapped));
  r.prepare();
  r.launch(8);
  r.await(r.post({copy, back, p, nullptr, 4 << 20}));
  r.leave();
  std::printf("share: another process opens the handle in %.0f us and its kernel reads %s\n", open_us,
              std::count(back, back + (4 << 20), 7) == 4 << 20 ? "what was written" : "SOMETHING ELSE");
  if (read(fd, &handle, sizeof handle) != sizeof handle) return 8;
  ask(r, "cudaIpcOpenMemHandle", [&] {
    CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
  });
  ask(r, "cudaIpcCloseMemHandle", [&] { CHECK(cudaIpcCloseMemHandle(p)); });
  return 0;
}

// ---- costs of asking ----

void time_asking() {
  void *device, *pinned, *managed;
  CHECK(cudaMalloc(&device, 1 << 20));
  CHECK(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocDefault));
  CHECK(cudaMallocManaged(&managed, 1 << 20));
  std::vector<char> plain(1 << 20);
  const std::pair<const char*, void*> memories[] = {
      {"device", device}, {"pinned", pinned}, {"managed", managed}, {"plain", plain.data()}};
  std::printf("cuPointerGetAttributes of three attributes:");
  for (const auto& [name, p] : memories) {
    unsigned type = 0, managed_too = 0;
    int ordinal = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* to[] = {&type, &managed_too, &ordinal};
    CUresult result = CUDA_SUCCESS;
    constexpr int kTimes = 20000;
    const auto begin = Clock::now();
    for (int i = 0; i < kTimes; i++)
      result = cuPointerGetAttributes(3, which, to, reinterpret_cast<CUdeviceptr>(p));
    std::printf(" %s %.0f ns (result %d, type %u, managed %u, device %d);", name,
                us_since(begin) * 1e3 / kTimes, static_cast<int>(result), type, managed_too, ordinal);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 3 && std::string(argv[1]) == "--read-handle") return read_handle(std::atoi(argv[2]));
  if (argc == 2 && std::string(argv[1]) == "--processes") {
    for (const int ranks : {2, 4, 8}) time_ring_of_processes(ranks);
    return 0;
  }
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  CHECK(cudaDriverGetVersion(&driver));
  std::printf("%s, %d multiprocessors, driver API %d, CUDA_DEVICE_MAX_CONNECTIONS=%s, CUDA_LAUNCH_BLOCKING=%s\n",
              properties.name, properties.multiProcessorCount, driver,
              std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") ? std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") : "",
              std::getenv("CUDA_LAUNCH_BLOCKING") ? std::getenv("CUDA_LAUNCH_BLOCKING") : "");
  Resident r;
  // Loads the kernels; what is loaded at its first launch would wait for those that run.
  r.prepare();
  r.launch(1);
  r.leave();
  int* word;
  CHECK(cudaMalloc(&word, 4));
  touch<<<1, 1, 0, r.stream>>>(word);
  CHECK(cudaDeviceSynchronize());
  ask_all(r);
  if (argc == 2 && std::string(argv[1]) == "--ask") return 0;
  time_commands(r);
  time_copies(r);
  check_order(r);
  for (const auto& [ranks, blocks] : {std::pair<int, int>{2, 16}, {8, 16}, {8, 32}, {16, 32}, {32, 32}})
    time_ring_of_threads(ranks, blocks);
  time_graph(r);
  time_asking();
  try_sharing();
  return 0;
}
