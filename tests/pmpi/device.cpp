// device.cpp: a program of MPI's on memory of a CUDA device, which knows nothing of sennit. CUDA's
// driver is the software GPU, whose memory the processor cannot touch, and the MPI one that knows
// of CUDA: its functions that pack are in front of those of the MPI. Every other rank's memory is
// the host's. Exits with 1 where a result is wrong; rank 0 prints "ok".
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"

namespace {

constexpr int kMemoryType = 2;
constexpr unsigned kTypeDevice = 2;

bool on_device(const void* memory) {
  unsigned type = 0;
  return cuPointerGetAttribute(&type, kMemoryType, reinterpret_cast<CUdeviceptr>(memory)) == 0 &&
         type == kTypeDevice;
}

size_t bytes_of(int count, MPI_Datatype type) {
  MPI_Aint least = 0, extent = 0;
  MPI_Type_get_extent(type, &least, &extent);
  return static_cast<size_t>(count) * static_cast<size_t>(extent);
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int PMPI_Pack(const void* in, int count, MPI_Datatype type, void* out, int bytes, int* at,
              MPI_Comm comm) {
  const auto pack = next<decltype(&PMPI_Pack)>("PMPI_Pack");
  if (!on_device(in)) return pack(in, count, type, out, bytes, at, comm);
  std::vector<std::byte> host(bytes_of(count, type));
  soft_gpu_read(host.data(), in, host.size());
  return pack(host.data(), count, type, out, bytes, at, comm);
}

int PMPI_Unpack(const void* in, int bytes, int* at, void* out, int count, MPI_Datatype type,
                MPI_Comm comm) {
  const auto unpack = next<decltype(&PMPI_Unpack)>("PMPI_Unpack");
  if (!on_device(out)) return unpack(in, bytes, at, out, count, type, comm);
  std::vector<std::byte> host(bytes_of(count, type));
  soft_gpu_read(host.data(), out, host.size());
  const int result = unpack(in, bytes, at, host.data(), count, type, comm);
  soft_gpu_write(out, host.data(), host.size());
  return result;
}

}  // extern "C"

namespace {

int rank = 0, size = 1;

// Integers where this rank has its memory.
class Integers {
 public:
  explicit Integers(const std::vector<int>& content) : host_(content) {
    if (rank % 2 == 0) return;
    if (cuMemAlloc_v2(&device_, content.size() * sizeof(int)) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    soft_gpu_write(data(), content.data(), content.size() * sizeof(int));
  }
  ~Integers() {
    if (device_ != 0) cuMemFree_v2(device_);
  }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  void* data() { return device_ != 0 ? reinterpret_cast<void*>(device_) : host_.data(); }
  void expect(const std::vector<int>& content, const char* what) {
    if (device_ != 0) soft_gpu_read(host_.data(), data(), host_.size() * sizeof(int));
    if (host_ == content) return;
    std::fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  std::vector<int> host_;
  CUdeviceptr device_ = 0;
};

void reductions() {
  const int total = size * (size + 1) / 2;
  Integers in({rank + 1, 2 * (rank + 1)}), out({0, 0});
  MPI_Allreduce(in.data(), out.data(), 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.expect({total, 2 * total}, "MPI_Allreduce");
  MPI_Request request = MPI_REQUEST_NULL;
  Integers in_place({rank + 1});
  MPI_Iallreduce(MPI_IN_PLACE, in_place.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  in_place.expect({total}, "MPI_Iallreduce in place");
  Integers root({-1, -1});
  MPI_Reduce(in.data(), root.data(), 2, MPI_INT, MPI_SUM, size - 1, MPI_COMM_WORLD);
  if (rank == size - 1) root.expect({total, 2 * total}, "MPI_Reduce");
  std::vector<int> all(static_cast<size_t>(size), rank + 1);
  Integers scattered(all);
  MPI_Reduce_scatter_block(MPI_IN_PLACE, scattered.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  all[0] = total;
  scattered.expect(all, "MPI_Reduce_scatter_block in place");
}

void moves() {
  Integers word({rank == 1 ? 42 : 0});
  MPI_Bcast(word.data(), 1, MPI_INT, 1, MPI_COMM_WORLD);
  word.expect({42}, "MPI_Bcast");
  // Its type is freed while the call is out.
  Integers pair({rank == 0 ? 7 : 0, rank == 0 ? 8 : 0});
  MPI_Datatype two = MPI_DATATYPE_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_commit(&two);
  MPI_Ibcast(pair.data(), 1, two, 0, MPI_COMM_WORLD, &request);
  MPI_Type_free(&two);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  pair.expect({7, 8}, "MPI_Ibcast of a type that was freed");
  std::vector<int> ranks, mine(static_cast<size_t>(size), rank);
  for (int r = 0; r < size; r++) ranks.push_back(r);
  const std::vector<int> none(mine.size(), -1), ones(mine.size(), 1);
  Integers own({rank}), gathered(none);
  MPI_Allgather(own.data(), 1, MPI_INT, gathered.data(), 1, MPI_INT, MPI_COMM_WORLD);
  gathered.expect(ranks, "MPI_Allgather");
  Integers uneven(none);
  MPI_Allgatherv(own.data(), 1, MPI_INT, uneven.data(), ones.data(), ranks.data(), MPI_INT,
                 MPI_COMM_WORLD);
  uneven.expect(ranks, "MPI_Allgatherv");
  Integers to_all(mine), from_all(none), exchanged(none);
  MPI_Alltoall(to_all.data(), 1, MPI_INT, from_all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  from_all.expect(ranks, "MPI_Alltoall");
  MPI_Alltoallv(to_all.data(), ones.data(), ranks.data(), MPI_INT, exchanged.data(), ones.data(),
                ranks.data(), MPI_INT, MPI_COMM_WORLD);
  exchanged.expect(ranks, "MPI_Alltoallv");
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context = nullptr;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0)
    return 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  reductions();
  moves();
  if (rank == 0) std::puts("ok");
  MPI_Finalize();
  return 0;
}
