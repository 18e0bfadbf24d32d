// worker: whether the kernel of CUDA devices is right and how fast it is, by itself.
//
//     nvcc -O3 -std=c++20 -fmad=false -arch=native -Isrc -Iinclude -o worker perf/device/worker.cu
//     ./worker [check] [latency] [rate] [launches]      without a word: all of them
//
// Prints how many results differ from the processor's, how long a command takes, how many bytes a
// second its blocks copy and add up beside cudaMemcpyAsync, and whether launches end as they
// should. The exit code is 1 where anything was wrong.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "accelerator/cuda/worker_kernel.cu"

namespace {

using namespace sennit;
using namespace sennit::cuda;
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
  std::fprintf(stderr, "worker: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check((call), #call)

char* device_memory(size_t bytes) {
  void* p;
  CHECK(cudaMalloc(&p, bytes));
  return static_cast<char*>(p);
}
char* pinned_memory(size_t bytes) {
  void* p;
  CHECK(cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  return static_cast<char*>(p);
}

uint64_t read(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void write(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

// What the library's MailboxWorker does, without the library.
struct Host {
  Mailbox* box = nullptr;
  Board* board = nullptr;
  cudaStream_t stream = nullptr;
  uint64_t launch_number = 0, number = 0, tiles = 0;

  Host() {
    box = new (pinned_memory(sizeof *box)) Mailbox;
    board = reinterpret_cast<Board*>(device_memory(sizeof *board));
    CHECK(cudaMemset(board, 0, sizeof *board));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
  }
  void prepare() {
    launch_number++;
    number = tiles = 0;
    std::fill(std::begin(box->done), std::end(box->done), 0);
  }
  void launch(int blocks) {
    sennit_worker<<<blocks, kThreads, 0, stream>>>(box, board, launch_number);
    CHECK(cudaGetLastError());
  }
  void start(int blocks) {
    prepare();
    launch(blocks);
    await_word(box->reached, launch_number, "the launch's beginning");
  }
  static void await_word(const uint64_t& word, uint64_t value, const char* what) {
    const auto begin = Clock::now();
    for (uint64_t spins = 1; read(word) < value; spins++)
      if (spins % 4096 == 0 && us_since(begin) > 20e6) {
        std::fprintf(stderr, "worker: waited 20 s for %s\n", what);
        _Exit(1);
      }
  }
  // The inputs stay where they are until it is done; more than fit are pinned.
  uint64_t post(uint8_t op, int type, void* out, const std::vector<const void*>& in, uint64_t count,
                uint64_t divisor = 1) {
    number++;
    if (number > kRing) await(number - kRing);
    Command& command = box->ring[number % kRing];
    const uint64_t bytes = count * (op == kCopy ? 1 : element::bytes_of(type));
    const uint64_t more = tiles_of(bytes);
    command = {};
    command.where = tiles << kTilesBits | more;
    command.number = number;
    command.out = out;
    command.count = count;
    command.divisor = divisor;
    command.tile_shift = tile_shift_of(bytes);
    command.inputs = static_cast<uint32_t>(in.size());
    command.type = static_cast<uint8_t>(type);
    command.op = op;
    const void** const to = in.size() <= kInlineInputs ? command.in : box->more[number % kRing];
    std::copy(in.begin(), in.end(), to);
    if (to != command.in) command.in[0] = to;
    tiles += more;
    write(box->posted, posting(launch_number, number));
    return number;
  }
  void await(uint64_t which) const { await_word(box->done[which % kRing], which, "a command"); }
  void leave() {
    write(box->leave, launch_number);
    await_word(box->ended, launch_number, "the launch's end");
    CHECK(cudaStreamSynchronize(stream));
  }
};

// ---- results ----

// Inputs and results side by side on the host, pinned, and on the device.
constexpr size_t kMost = 12, kRoom = 200 * 1024;
struct Places {
  char *host, *pinned, *device;
  char* of(int where) const { return where == 0 ? device : pinned; }
};

const char* const kTypeNames[] = {"int8",    "uint8",    "int32",   "uint32",  "int64", "uint64",
                                  "float16", "bfloat16", "float32", "float64", "e4m3",  "e5m2"};
const char* const kOpNames[] = {"sum", "prod", "min", "max", "average", "band", "bor", "bxor"};

// Elements that differ of one command.
size_t run_case(Host& host, const Places& places, int type, int op, size_t inputs, size_t count,
                uint64_t divisor, const std::vector<size_t>& offsets, int where) {
  const bool copies = op == kCopy;
  const size_t bytes = count * (copies ? 1 : element::bytes_of(type));
  std::vector<const void*> on_host, on_device;
  for (size_t k = 0; k < inputs; k++) {
    on_host.push_back(places.host + k * kRoom + offsets[k]);
    on_device.push_back(places.of(where) + k * kRoom + offsets[k]);
  }
  char* const out = places.of(where) + kMost * kRoom + offsets[inputs];
  host.await(host.post(static_cast<uint8_t>(op), type, out, on_device, count, divisor));
  std::vector<char> got(bytes), expected(bytes);
  if (where == 0)
    CHECK(cudaMemcpyAsync(got.data(), out, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread));
  else
    std::memcpy(got.data(), out, bytes);
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  if (copies)
    std::memcpy(expected.data(), on_host[0], bytes);
  else
    element::reduce_elements(type, static_cast<KernelOp>(op), expected.data(), on_host.data(),
                             inputs, count, divisor);
  const size_t size = copies ? 1 : element::bytes_of(type);
  size_t wrong = 0, first = 0;
  for (size_t at = 0; at < bytes; at += size)
    if (std::memcmp(got.data() + at, expected.data() + at, size) && wrong++ == 0) first = at;
  if (wrong > 0) {
    std::printf("  %s %s, %zu inputs, divisor %llu, offset %zu, %s: %zu of %zu wrong, first %zu:",
                copies ? "copy" : kTypeNames[type], copies ? "" : kOpNames[op], inputs,
                static_cast<unsigned long long>(divisor), offsets[inputs],
                where == 0 ? "device" : "pinned", wrong, count, first / size);
    for (size_t k = 0; k < inputs; k++) {
      uint64_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(on_host[k]) + first, size);
      std::printf(" %llx", static_cast<unsigned long long>(bits));
    }
    uint64_t is = 0, should = 0;
    std::memcpy(&is, got.data() + first, size);
    std::memcpy(&should, expected.data() + first, size);
    std::printf(" gives %llx, not %llx\n", static_cast<unsigned long long>(is),
                static_cast<unsigned long long>(should));
  }
  return wrong;
}

// All pairs of bytes, so that of the narrow formats every rounding comes, and of the others what
// bytes at random make of them.
void fill(const Places& places) {
  std::mt19937_64 random(20);
  for (size_t k = 0; k < kMost; k++)
    for (size_t at = 0; at < kRoom; at += 8) {
      const uint64_t bits = random();
      std::memcpy(places.host + k * kRoom + at, &bits, 8);
    }
  for (size_t i = 0; i < 65536; i++) {
    places.host[i] = static_cast<char>(i);
    places.host[kRoom + i] = static_cast<char>(i >> 8);
  }
  for (size_t k = 2; k < kMost; k++)  // exponents near each other: sums that round
    for (size_t at = 1; at < kRoom; at += 2)
      if (at / 64 % 2) places.host[k * kRoom + at] = static_cast<char>(0x3c + (random() & 0x83));
  for (size_t i = 0; i < 32768; i++) {  // all of two bytes, and the same in another order
    const auto x = static_cast<uint16_t>(2 * i + 1), y = static_cast<uint16_t>(x * 40503u);
    std::memcpy(places.host + 65536 + 2 * i, &x, 2);
    std::memcpy(places.host + kRoom + 65536 + 2 * i, &y, 2);
  }
  std::memcpy(places.pinned, places.host, kMost * kRoom);
  CHECK(cudaMemcpy(places.device, places.host, kMost * kRoom, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
}

size_t check_results(Host& host) {
  Places places{static_cast<char*>(std::malloc((kMost + 1) * kRoom)),
                pinned_memory((kMost + 1) * kRoom), device_memory((kMost + 1) * kRoom)};
  fill(places);
  host.start(16);
  size_t wrong = 0, cases = 0;
  for (int where = 0; where < 2; where++)
    for (const size_t inputs : {1, 2, 3, 9, 12}) {
      // All aligned; all askew alike, by whole elements; each differently; at odd addresses.
      std::vector<size_t> alike(inputs + 1, 8), each(inputs + 1), odd(inputs + 1);
      for (size_t k = 0; k <= inputs; k++) {
        each[k] = 8 * (k * 5 % 7);
        odd[k] = k * 3 % 16;
      }
      for (const auto& offsets : {std::vector<size_t>(inputs + 1), alike, each, odd})
        for (int type = 0; type < 12; type++)
          for (int op = 0; op < (type < 6 ? 8 : 5); op++) {
            const size_t count = 131000 / element::bytes_of(type) - 1;
            const uint64_t divisor = op == 4 ? (inputs == 2 ? 8 : 3) : 1;
            wrong += run_case(host, places, type, op, inputs, count, divisor, offsets, where);
            cases++;
          }
      if (inputs > 1) continue;
      for (size_t a = 0; a < 16; a++)
        for (size_t b = 0; b < 16; b++) {
          wrong += run_case(host, places, 0, kCopy, 1, 50003, 1, {a, b}, where);
          cases++;
        }
    }
  host.leave();
  std::printf("check: %zu commands, %zu elements that differ\n", cases, wrong);
  return wrong;
}

// ---- times ----

void time_commands(Host& host) {
  char* const memory = device_memory(1 << 20);
  for (const int blocks : {1, 2, 8, 16, 32, 64, 132}) {
    std::vector<double> reached, small, large, ended;
    for (int i = 0; i < 100; i++) {
      host.prepare();
      const auto begin = Clock::now();
      host.launch(blocks);
      Host::await_word(host.box->reached, host.launch_number, "the launch's beginning");
      reached.push_back(us_since(begin));
      for (int k = 0; k < 40; k++) {
        const size_t bytes = k % 2 ? 65536 : 16;
        const auto posted = Clock::now();
        host.await(host.post(kCopy, 0, memory, {memory + (1 << 19)}, bytes));
        (k % 2 ? large : small).push_back(us_since(posted));
      }
      const auto leaves = Clock::now();
      host.leave();
      ended.push_back(us_since(leaves));
    }
    std::printf(
        "latency: %3d blocks: reached after %.1f us, a copy of 16 B %.2f, of 64 KiB %.2f, leave to "
        "the stream's end %.1f\n",
        blocks, median(reached), median(small), median(large), median(ended));
  }
  CHECK(cudaFree(memory));
}

void time_rates(Host& host) {
  constexpr uint64_t kMostBytes = 256ull << 20;
  char *const a = device_memory(kMostBytes), *const b = device_memory(kMostBytes),
              *const c = device_memory(kMostBytes);
  CHECK(cudaMemset(a, 0, kMostBytes));
  CHECK(cudaMemset(b, 0, kMostBytes));
  CHECK(cudaDeviceSynchronize());
  for (const uint64_t bytes : {kMostBytes / 4, kMostBytes}) {
    // Of memory that is read and written: a sum of two reads two bytes for each that it writes.
    const auto rate_of = [&](uint64_t touched, const std::function<void()>& work) {
      std::vector<double> times;
      for (int i = 0; i < 9; i++) {
        const auto begin = Clock::now();
        work();
        times.push_back(us_since(begin));
      }
      return static_cast<double>(touched * bytes) / median(times) / 1e3;
    };
    const auto memcpy_rate = [&] {
      return rate_of(2, [&] {
        CHECK(cudaMemcpyAsync(c, a, bytes, cudaMemcpyDeviceToDevice, host.stream));
        CHECK(cudaStreamSynchronize(host.stream));
      });
    };
    for (const int blocks : {1, 4, 8, 16, 32, 64, 132, 264}) {
      const double reference = memcpy_rate();
      host.start(blocks);
      const double copy = rate_of(2, [&] { host.await(host.post(kCopy, 0, c, {a}, bytes)); });
      const auto sum = [&](int type) {
        const uint64_t count = bytes / element::bytes_of(type);
        return rate_of(3, [&] { host.await(host.post(0, type, c, {a, b}, count)); });
      };
      const double floats = sum(SENNIT_FLOAT32), bf16 = sum(SENNIT_BFLOAT16);
      host.leave();
      std::printf(
          "rate: %3llu MiB, %3d blocks: cudaMemcpyAsync %.0f GB/s read and written, copy %.0f "
          "(%.2f), float sum of two %.0f (%.2f), bf16 %.0f (%.2f)\n",
          static_cast<unsigned long long>(bytes >> 20), blocks, reference, copy, copy / reference,
          floats, floats / reference, bf16, bf16 / reference);
    }
  }
  for (char* const p : {a, b, c}) CHECK(cudaFree(p));
}

// ---- launches ----

// One launch after the other on one mailbox; some are told to end before they begin, some while
// commands are out.
size_t try_launches(Host& host) {
  char* const memory = device_memory(1 << 20);
  char* const pinned = pinned_memory(1 << 20);
  size_t wrong = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < 1000; i++) {
    host.prepare();
    if (i % 5 == 4) write(host.box->leave, host.launch_number);
    host.launch(1 + i % 40);
    if (i % 5 != 4) {
      for (int k = 0; k < 3 + i % 300 * (i % 10 == 0); k++) {
        std::memset(pinned, i + k, 40000);
        host.await(host.post(kCopy, 0, memory + k % 7, {pinned}, 40000));
        host.await(host.post(kCopy, 0, pinned + 65536, {memory + k % 7}, 40000));
        wrong += std::memcmp(pinned, pinned + 65536, 40000) != 0;
      }
      if (i % 5 == 3)  // abandoned
        for (int k = 0; k < 50; k++) host.post(kCopy, 0, memory, {memory + (1 << 19)}, 1 << 19);
    }
    host.leave();
  }
  std::printf("launches: 1000 in %.1f ms, %zu round trips wrong\n", us_since(begin) / 1e3, wrong);
  CHECK(cudaFree(memory));
  CHECK(cudaFreeHost(pinned));
  return wrong;
}

// A captured kernel, whose launches the host hears of by the mailbox alone; half of them are put
// into the stream before the last has ended.
size_t try_graph(Host& host) {
  constexpr int kLaunches = 1000;
  char* const memory = device_memory(1 << 20);
  char* const pinned = pinned_memory(1 << 20);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  CHECK(cudaStreamBeginCapture(host.stream, cudaStreamCaptureModeGlobal));
  sennit_worker<<<8, kThreads, 0, host.stream>>>(host.box, host.board, kInGraph);
  CHECK(cudaStreamEndCapture(host.stream, &graph));
  CHECK(cudaGraphInstantiateWithFlags(&made, graph, 0));
  size_t wrong = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kLaunches; i++) {
    if (i % 4 == 0)
      for (int k = 0; k < 4; k++) CHECK(cudaGraphLaunch(made, host.stream));
    Host::await_word(host.box->reached, host.launch_number + 1, "a graph's launch");
    host.prepare();
    std::memset(pinned, i, 40000);
    host.await(host.post(kCopy, 0, memory + i % 7, {pinned}, 40000));
    host.await(host.post(kCopy, 0, pinned + 65536, {memory + i % 7}, 40000));
    wrong += std::memcmp(pinned, pinned + 65536, 40000) != 0;
    write(host.box->leave, host.launch_number);
  }
  CHECK(cudaStreamSynchronize(host.stream));
  std::printf("graph: launched %d times in %.1f ms, %zu round trips wrong\n", kLaunches,
              us_since(begin) / 1e3, wrong);
  CHECK(cudaGraphExecDestroy(made));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(memory));
  CHECK(cudaFreeHost(pinned));
  return wrong;
}

size_t try_streams() {
  constexpr int kStreams = 8, kBytes = 1 << 20;
  std::vector<Host> hosts(kStreams);
  char* const memory = device_memory(2 * kStreams * kBytes);
  CHECK(cudaMemset(memory, 3, 2 * kStreams * kBytes));
  CHECK(cudaDeviceSynchronize());
  const auto begin = Clock::now();
  for (int round = 0; round < 50; round++) {
    for (Host& host : hosts) host.prepare();
    for (Host& host : hosts) host.launch(16);
    std::vector<uint64_t> numbers;
    for (int s = 0; s < kStreams; s++) {
      char* const at = memory + 2 * s * kBytes;
      numbers.push_back(hosts[s].post(0, SENNIT_UINT8, at, {at, at + kBytes}, kBytes));
    }
    for (int s = 0; s < kStreams; s++) hosts[s].await(numbers[s]);
    for (Host& host : hosts) write(host.box->leave, host.launch_number);
    for (Host& host : hosts) host.leave();
  }
  std::vector<char> got(2 * kStreams * kBytes);
  CHECK(cudaMemcpy(got.data(), memory, got.size(), cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t at = 0; at < got.size(); at++)
    wrong += got[at] != static_cast<char>(at / kBytes % 2 ? 3 : 3 + 50 * 3);
  std::printf("streams: 8 kernels of 16 blocks at once, 50 times in %.1f ms, %zu bytes wrong\n",
              us_since(begin) / 1e3, wrong);
  CHECK(cudaFree(memory));
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto asked = [&](const char* what) {
    return argc == 1 || std::find(argv + 1, argv + argc, std::string(what)) != argv + argc;
  };
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, sennit_worker));
  std::printf("%s, %d multiprocessors; the kernel has %d registers, %zu bytes of stack a thread\n",
              properties.name, properties.multiProcessorCount, attributes.numRegs,
              attributes.localSizeBytes);
  Host host;
  size_t wrong = 0;
  if (asked("check")) wrong += check_results(host);
  if (asked("latency")) time_commands(host);
  if (asked("rate")) time_rates(host);
  if (asked("launches")) wrong += try_launches(host) + try_streams();
  if (asked("graph")) wrong += try_graph(host);
  return wrong > 0 ? 1 : 0;
}
