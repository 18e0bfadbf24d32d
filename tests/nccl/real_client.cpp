// real_client.cpp: a program as its author would write it for NCCL, and built with NVIDIA's header
// where there is one. It makes every call of every type and operation and writes a line of each
// result.
//
//   real_client threads RANKS FOLDER          ranks as threads; FOLDER/RANK has a rank's lines
//   real_client process RANK RANKS FOLDER     one rank; the id goes through FOLDER/id
//   real_client device threads ...            the same on memory of CUDA device 0, in a stream
//   real_client graph threads ...             the same by graphs that are launched twice
#ifdef NCCL_OF_NVIDIA
#include <nccl.h>
#else
#include "nccl/exported.hpp"
#define NCCL_VERSION_CODE kNcclVersion
#define NCCL_SPLIT_NOCOLOR kNcclNoColor
#endif

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/nccl/client_sums.hpp"

namespace {

using client::kCount;
using client::kRoot;
using client::line;
using client::name;
using Bytes = std::vector<std::byte>;

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::exit(1);
}
#define EXPECT(condition) expect(condition, #condition)

// CUDA's driver, as far as a program needs it here that was not built with its toolkit.
class Driver {
 public:
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    expect(library != nullptr, "libcuda.so.1 opens");
#define FIND(name) \
  expect((name##_ = reinterpret_cast<decltype(name##_)>(dlsym(library, #name))), #name)
    FIND(cuInit);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxSetCurrent);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
    FIND(cuMemAlloc_v2);
    FIND(cuMemcpyAsync);
    FIND(cuStreamBeginCapture_v2);
    FIND(cuStreamEndCapture);
    FIND(cuGraphInstantiateWithFlags);
    FIND(cuGraphLaunch);
    FIND(cuGraphExecDestroy);
    FIND(cuGraphDestroy);
#undef FIND
    ok(cuInit_(0));
    ok(cuDevicePrimaryCtxRetain_(&context_, 0));
  }
  void use() const { ok(cuCtxSetCurrent_(context_)); }
  cudaStream_t stream() const {
    void* made = nullptr;
    ok(cuStreamCreate_(&made, 1));
    return static_cast<cudaStream_t>(made);
  }
  void* allocate(size_t bytes) const {
    unsigned long long address = 0;
    ok(cuMemAlloc_v2_(&address, bytes));
    return reinterpret_cast<void*>(address);
  }
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) const {
    if (bytes == 0) return;
    ok(cuMemcpyAsync_(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes,
                      stream));
  }
  void wait(cudaStream_t stream) const { ok(cuStreamSynchronize_(stream)); }
  // What f puts into the stream, as a graph to be launched. Other ranks are threads of this
  // process, so the capture is this thread's alone.
  template <typename F>
  void* capture(cudaStream_t stream, F f) const {
    constexpr int kThreadLocal = 1;
    void *graph = nullptr, *made = nullptr;
    ok(cuStreamBeginCapture_v2_(stream, kThreadLocal));
    f();
    ok(cuStreamEndCapture_(stream, &graph));
    ok(cuGraphInstantiateWithFlags_(&made, graph, 0));
    ok(cuGraphDestroy_(graph));
    return made;
  }
  void launch(void* graph, cudaStream_t stream) const { ok(cuGraphLaunch_(graph, stream)); }
  void destroy(void* graph) const { ok(cuGraphExecDestroy_(graph)); }

 private:
  static void ok(int error) { expect(error == 0, "CUDA's driver answers 0"); }
  int (*cuInit_)(unsigned) = nullptr;
  int (*cuDevicePrimaryCtxRetain_)(void**, int) = nullptr;
  int (*cuCtxSetCurrent_)(void*) = nullptr;
  int (*cuStreamCreate_)(void**, unsigned) = nullptr;
  int (*cuStreamSynchronize_)(void*) = nullptr;
  int (*cuMemAlloc_v2_)(unsigned long long*, size_t) = nullptr;
  int (*cuMemcpyAsync_)(unsigned long long, unsigned long long, size_t, void*) = nullptr;
  int (*cuStreamBeginCapture_v2_)(void*, int) = nullptr;
  int (*cuStreamEndCapture_)(void*, void**) = nullptr;
  int (*cuGraphInstantiateWithFlags_)(void**, void*, unsigned long long) = nullptr;
  int (*cuGraphLaunch_)(void*, void*) = nullptr;
  int (*cuGraphExecDestroy_)(void*) = nullptr;
  int (*cuGraphDestroy_)(void*) = nullptr;
  void* context_ = nullptr;
};
const Driver* g_driver = nullptr;  // null: on host memory
bool g_by_graphs = false;

struct Rank {
  ncclComm_t comm;
  int rank;
  int ranks;
  std::string lines;
  cudaStream_t stream = nullptr;
  // On the device: as large as the largest buffers. They are never freed: that waits for the
  // kernels of all ranks.
  void *in = nullptr, *out = nullptr;

  void use_device() {
    g_driver->use();
    stream = g_driver->stream();
    in = g_driver->allocate(all() * 8);
    out = g_driver->allocate(all() * 8);
  }
  // Calls f(in, out) on these, or on copies of theirs on the device.
  template <typename F>
  void with(const Bytes& from, Bytes& to, F f) const {
    if (!g_driver) return f(static_cast<const void*>(from.data()), static_cast<void*>(to.data()));
    const auto call = [&] { f(static_cast<const void*>(in), out); };
    void* const graph = g_by_graphs ? g_driver->capture(stream, call) : nullptr;
    for (int launch = 0; launch < (graph ? 2 : 1); launch++) {
      g_driver->copy(in, from.data(), from.size(), stream);
      g_driver->copy(out, to.data(), to.size(), stream);
      if (graph)
        g_driver->launch(graph, stream);
      else
        call();
    }
    // A copy to memory that is not pinned waits for its stream, and other ranks' launches for it.
    g_driver->wait(stream);
    g_driver->copy(to.data(), out, to.size(), stream);
    g_driver->wait(stream);
    if (graph) g_driver->destroy(graph);
  }

  size_t all() const { return static_cast<size_t>(ranks) * kCount; }
  Bytes result(int type, size_t count) const {
    return Bytes(count * client::kElements[static_cast<size_t>(type)].bytes);
  }
};

void reduce_all(Rank& r, int type, int op) {
  const auto t = static_cast<ncclDataType_t>(type);
  const auto o = static_cast<ncclRedOp_t>(op);
  const Bytes in = client::input(r.rank, type, op, kCount);
  Bytes out = r.result(type, kCount);
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclAllReduce(from, to, kCount, t, o, r.comm, r.stream));
  });
  r.lines += line(name("all_reduce", type, op), out);
  out = r.result(type, kCount);
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclReduce(from, to, kCount, t, o, kRoot, r.comm, r.stream));
  });
  r.lines += line(name("reduce", type, op), r.rank == kRoot ? out : Bytes());
  const Bytes whole = client::input(r.rank, type, op, r.all());
  out = r.result(type, kCount);
  r.with(whole, out, [&](const void* from, void* to) {
    CHECK(ncclReduceScatter(from, to, kCount, t, o, r.comm, r.stream));
  });
  r.lines += line(name("reduce_scatter", type, op), out);
}

void move_all(Rank& r, int type) {
  const auto t = static_cast<ncclDataType_t>(type);
  const Bytes in = client::input(r.rank, type, 0, kCount);
  Bytes out = r.result(type, kCount);
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclBroadcast(from, to, kCount, t, kRoot, r.comm, r.stream));
  });
  r.lines += line(name("broadcast", type, 0), out);
  out = in;
  r.with({}, out,
         [&](const void*, void* to) { CHECK(ncclBcast(to, kCount, t, kRoot, r.comm, r.stream)); });
  r.lines += line(name("broadcast", type, 0), out);
  out = r.result(type, r.all());
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclAllGather(from, to, kCount, t, r.comm, r.stream));
  });
  r.lines += line(name("all_gather", type, 0), out);
#if NCCL_VERSION_CODE >= 22803
  const Bytes whole = client::input(r.rank, type, 0, r.all());
  out = r.result(type, r.all());
  r.with(whole, out, [&](const void* from, void* to) {
    CHECK(ncclAlltoAll(from, to, kCount, t, r.comm, r.stream));
  });
  r.lines += line(name("all_to_all", type, 0), out);
  out = r.result(type, r.all());
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclGather(from, to, kCount, t, kRoot, r.comm, r.stream));
  });
  r.lines += line(name("gather", type, 0), r.rank == kRoot ? out : Bytes());
  out = r.result(type, kCount);
  r.with(whole, out, [&](const void* from, void* to) {
    CHECK(ncclScatter(from, to, kCount, t, kRoot, r.comm, r.stream));
  });
  r.lines += line(name("scatter", type, 0), out);
#endif
  out = r.result(type, kCount);  // around a ring
  r.with(in, out, [&](const void* from, void* to) {
    CHECK(ncclGroupStart());
    CHECK(ncclSend(from, kCount, t, (r.rank + 1) % r.ranks, r.comm, r.stream));
    CHECK(ncclRecv(to, kCount, t, (r.rank + r.ranks - 1) % r.ranks, r.comm, r.stream));
    CHECK(ncclGroupEnd());
  });
  r.lines += line(name("ring", type, 0), out);
}

void multiply_first(Rank& r) {
  float factor = 2;
  ncclRedOp_t op;
  CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, r.comm));
  const Bytes in = client::input(r.rank, ncclFloat32, 0, kCount);
  Bytes out = r.result(ncclFloat32, kCount);
  CHECK(ncclAllReduce(in.data(), out.data(), kCount, ncclFloat32, op, r.comm, nullptr));
  CHECK(ncclRedOpDestroy(op, r.comm));
  r.lines += line(name("all_reduce of what was multiplied", ncclFloat32, 0), out);
}

// As the program of a device does: the scalar is what lies there when the stream comes to a call,
// and a copy puts the next one there between the two. By a graph both are other ones at first.
std::array<Bytes, 2> multiply_by_what_lies_there(const Rank& r, const Bytes& in) {
  constexpr std::array<float, 2> kOthers = {1, 1};
  const size_t bytes = sizeof client::kScalars;
  auto* const next = static_cast<float*>(g_driver->allocate(bytes));
  auto* const scalar = static_cast<float*>(g_driver->allocate(sizeof(float)));
  ncclRedOp_t op;
  CHECK(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, r.comm));
  const auto result = [&](size_t i) { return static_cast<std::byte*>(r.out) + i * in.size(); };
  const auto calls = [&] {
    for (size_t i = 0; i < client::kScalars.size(); i++) {
      g_driver->copy(scalar, next + i, sizeof(float), r.stream);
      CHECK(ncclAllReduce(r.in, result(i), kCount, ncclFloat32, op, r.comm, r.stream));
    }
  };
  g_driver->copy(r.in, in.data(), in.size(), r.stream);
  void* const graph = g_by_graphs ? g_driver->capture(r.stream, calls) : nullptr;
  if (graph) {
    g_driver->copy(next, kOthers.data(), bytes, r.stream);
    g_driver->launch(graph, r.stream);
  }
  g_driver->copy(next, client::kScalars.data(), bytes, r.stream);
  if (graph)
    g_driver->launch(graph, r.stream);
  else
    calls();
  CHECK(ncclRedOpDestroy(op, r.comm));
  g_driver->wait(r.stream);
  std::array<Bytes, 2> out = {Bytes(in.size()), Bytes(in.size())};
  for (size_t i = 0; i < out.size(); i++)
    g_driver->copy(out[i].data(), result(i), in.size(), r.stream);
  g_driver->wait(r.stream);
  if (graph) g_driver->destroy(graph);
  return out;
}

// On the host's memory it is what lay there when the operation was made.
std::array<Bytes, 2> multiply_by_what_lay_there(const Rank& r, const Bytes& in) {
  std::array<Bytes, 2> out = {Bytes(in.size()), Bytes(in.size())};
  for (size_t i = 0; i < out.size(); i++) {
    float scalar = client::kScalars[i];
    ncclRedOp_t op;
    CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarDevice, r.comm));
    scalar = 0;
    CHECK(ncclAllReduce(in.data(), out[i].data(), kCount, ncclFloat32, op, r.comm, nullptr));
    CHECK(ncclRedOpDestroy(op, r.comm));
  }
  return out;
}

void multiply_by_a_devices(Rank& r) {
  const Bytes in = client::input(r.rank, ncclFloat32, 0, kCount);
  for (const Bytes& out :
       g_driver ? multiply_by_what_lies_there(r, in) : multiply_by_what_lay_there(r, in))
    r.lines += line(name("all_reduce of what a device's scalar multiplied", ncclFloat32, 0), out);
}

// Smaller ones: by color, and by leaving out the last rank.
void divide(Rank& r) {
  ncclComm_t part = nullptr;
  CHECK(ncclCommSplit(r.comm, r.rank % 2, r.rank, &part, nullptr));
  int size = 0, rank = -1, device = 0, sum = 1;
  CHECK(ncclCommCount(part, &size));
  CHECK(ncclCommUserRank(part, &rank));
  CHECK(ncclCommCuDevice(part, &device));
  EXPECT(size == (r.ranks + 1 - r.rank % 2) / 2 && rank == r.rank / 2);
  CHECK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, part, nullptr));
  EXPECT(sum == size);
  CHECK(ncclCommDestroy(part));
  part = r.comm;
  CHECK(ncclCommSplit(r.comm, r.rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, nullptr));
  EXPECT((part == nullptr) == (r.rank == 0));
  CHECK(ncclCommDestroy(part));
#if NCCL_VERSION_CODE >= 22700
  int last[] = {r.ranks - 1};
  if (r.rank == last[0]) return;
  CHECK(ncclCommShrink(r.comm, last, 1, &part, nullptr, 0));
  sum = 1;
  CHECK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, part, nullptr));
  EXPECT(sum == r.ranks - 1);
  CHECK(ncclCommDestroy(part));
#endif
}

void use_memory(Rank& r) {
  void *memory = nullptr, *handle = nullptr;
  CHECK(ncclMemAlloc(&memory, 1 << 20));
  CHECK(ncclCommRegister(r.comm, memory, 1 << 20, &handle));
  std::vector<int> own(1 << 18);
  for (int i = 0; i < 1 << 18; i++) own[static_cast<size_t>(i)] = i + r.rank;
  if (g_driver)
    g_driver->copy(memory, own.data(), 1 << 20, r.stream);
  else
    std::memcpy(memory, own.data(), 1 << 20);
  CHECK(ncclAllReduce(memory, memory, 1 << 18, ncclInt32, ncclSum, r.comm, r.stream));
  if (g_driver) {
    g_driver->wait(r.stream);
    g_driver->copy(own.data(), memory, 1 << 20, r.stream);
    g_driver->wait(r.stream);
  } else {
    std::memcpy(own.data(), memory, 1 << 20);
  }
  EXPECT(own[1000] == r.ranks * 1000 + r.ranks * (r.ranks - 1) / 2);
  CHECK(ncclCommDeregister(r.comm, handle));
  // To free a device's waits for the kernels of all ranks, and the last one may not have launched.
  int sum = 1;
  CHECK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, r.comm, nullptr));
  CHECK(ncclMemFree(memory));
}

std::string work(ncclComm_t comm, int rank, int ranks) {
  Rank r{comm, rank, ranks, ""};
  if (g_driver) r.use_device();
  for (int type = 0; type < client::kTypes; type++) {
    for (int op = 0; op < client::kOps; op++) reduce_all(r, type, op);
    move_all(r, type);
  }
  multiply_first(r);
  multiply_by_a_devices(r);
  divide(r);
  use_memory(r);
  ncclResult_t error = ncclInternalError;
  CHECK(ncclCommGetAsyncError(comm, &error));
  EXPECT(error == ncclSuccess);
  return r.lines;
}

void write(const std::string& folder, int rank, const std::string& lines) {
  std::ofstream(folder + "/" + std::to_string(rank)) << lines;
}

// By a name that only a whole file has.
ncclUniqueId exchange_id(int rank, const std::string& folder) {
  ncclUniqueId id;
  const std::string path = folder + "/id";
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    std::ofstream(path + ".part", std::ios::binary).write(id.internal, sizeof id.internal);
    std::rename((path + ".part").c_str(), path.c_str());
    return id;
  }
  for (int i = 0; i < 3000; i++) {
    if (std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  expect(false, "rank 0 wrote its id");
  return id;
}

void use_process(int rank, int ranks, const std::string& folder) {
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, ranks, exchange_id(rank, folder), rank));
  write(folder, rank, work(comm, rank, ranks));
  CHECK(ncclCommFinalize(comm));
  CHECK(ncclCommDestroy(comm));
}

void use_threads(int ranks, const std::string& folder) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  CHECK(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; r++)
    threads.emplace_back(
        [&, r] { write(folder, r, work(comms[static_cast<size_t>(r)], r, ranks)); });
  for (std::thread& thread : threads) thread.join();
  for (const ncclComm_t comm : comms) CHECK(ncclCommFinalize(comm));
  for (const ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm));
}

}  // namespace

int main(int count, char** words) {
  g_by_graphs = count > 1 && words[1] == std::string("graph");
  if (g_by_graphs || (count > 1 && words[1] == std::string("device"))) {
    g_driver = new Driver;
    g_driver->use();
    count--;
    words++;
  }
  const std::string how = count > 1 ? words[1] : "";
  if (how == "threads" && count == 4)
    use_threads(std::atoi(words[2]), words[3]);
  else if (how == "process" && count == 5)
    use_process(std::atoi(words[2]), std::atoi(words[3]), words[4]);
  else
    return 2;
  return 0;
}
