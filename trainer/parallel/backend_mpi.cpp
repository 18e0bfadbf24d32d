// backend_mpi.cpp: the trainer's communication on plain MPI, to measure what sennit gains with the
// same program.
//
// With overlap MPI's nonblocking collectives, which move on whenever the trainer polls; without,
// its blocking ones, which Open MPI has tuned more (they run inside of wait()). MPI knows no
// bfloat16: sums of it are an operation of our own. A shared object of its own, opened by
// open_mpi().
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {
namespace {

Status status_of(int code) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {SENNIT_ABORTED, std::string("MPI: ") + text};
}

float to_f32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
// A NaN stays one, by its quiet bit; all else is rounded to the nearest, ties to the even one.
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
void sum_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const a = static_cast<const uint16_t*>(in);
  auto* const b = static_cast<uint16_t*>(inout);
  for (int i = 0; i < *count; i++) b[i] = to_bf16(to_f32(a[i]) + to_f32(b[i]));
}

MPI_Datatype type_of(Element element) {
  switch (element) {
    case Element::f32:
      return MPI_FLOAT;
    case Element::f64:
      return MPI_DOUBLE;
    case Element::bf16:
      return MPI_UINT16_T;
    case Element::byte:
      return MPI_BYTE;
  }
  return MPI_BYTE;
}

// MPI counts in int.
Result<int> mpi_count(size_t count) {
  if (count > static_cast<size_t>(std::numeric_limits<int>::max()))
    return Status(
        SENNIT_UNSUPPORTED,
        "--backend mpi: one transfer of " + std::to_string(count) +
            " elements, and MPI counts to 2147483647: use more ranks, or --backend sennit");
  return static_cast<int>(count);
}

// Nonblocking: a request. Blocking: a call that wait() makes. Afterwards `finish`.
class MpiWork : public Work {
 public:
  using Call = std::function<int()>;
  MpiWork(MPI_Request request, Call call, std::function<void()> finish)
      : request_(request), call_(std::move(call)), finish_(std::move(finish)) {}
  Result<bool> test() override {
    if (call_) return false;
    int complete = 0;
    const Status status = status_of(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE));
    if (!status.ok()) return status;
    if (complete) finish();
    return complete != 0;
  }
  Status wait() override {
    const int code = call_ ? call_() : MPI_Wait(&request_, MPI_STATUS_IGNORE);
    call_ = nullptr;
    if (code == MPI_SUCCESS) finish();
    return status_of(code);
  }

 private:
  void finish() {
    if (finish_) finish_();
    finish_ = nullptr;
  }
  MPI_Request request_;
  Call call_;
  std::function<void()> finish_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, int rank, int size, Traffic* traffic, bool world)
      : Communicator(rank, size, traffic), comm_(comm), world_(world) {
    MPI_Op_create(sum_bf16, 1, &sum_bf16_);
  }
  ~MpiCommunicator() override {
    MPI_Op_free(&sum_bf16_);
    if (world_)
      MPI_Finalize();
    else
      MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  Result<int> fabric_position() override { return rank(); }  // MPI knows no fabric
  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    const Status status = status_of(MPI_Comm_split(comm_, color, key, &part));
    if (!status.ok()) return status;
    int part_rank = 0, part_size = 0;
    MPI_Comm_rank(part, &part_rank);
    MPI_Comm_size(part, &part_size);
    return std::unique_ptr<Communicator>(
        std::make_unique<MpiCommunicator>(part, part_rank, part_size, &traffic(), false));
  }
  // MPI cannot end what is under way, but only the job, and this process with it: so the error is
  // told here.
  void abort() override {
    std::fflush(stdout);
    const std::string& text = traffic().status().text();
    if (!text.empty()) std::fprintf(stderr, "sennit train: %s\n", text.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 protected:
  Started start_all_reduce(void* data, size_t count, Element element,
                           Reduction reduction) override {
    const Result<int> counted = mpi_count(count);
    if (!counted) return counted.status();
    const int n = *counted;
    const MPI_Op op = op_of(element, reduction);
    const MPI_Datatype type = type_of(element);
    if (!traffic().overlap())
      return later([=, this] { return MPI_Allreduce(MPI_IN_PLACE, data, n, type, op, comm_); });
    MPI_Request request;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, data, n, type, op, comm_, &request);
    return started(code, request);
  }
  Started start_reduce_scatter(const void* send, void* receive, size_t count,
                               Element element) override {
    // Into a block of its own: MPI forbids the result to lie in the input.
    const auto block = std::make_shared<std::vector<char>>(count * bytes_of(element));
    const auto finish = [=] { std::memcpy(receive, block->data(), block->size()); };
    const Result<int> counted = mpi_count(count);
    if (!counted) return counted.status();
    const int n = *counted;
    const MPI_Op op = op_of(element, Reduction::sum);
    const MPI_Datatype type = type_of(element);
    if (!traffic().overlap())
      return later(
          [=, this] { return MPI_Reduce_scatter_block(send, block->data(), n, type, op, comm_); },
          finish);
    MPI_Request request;
    const int code = MPI_Ireduce_scatter_block(send, block->data(), n, type, op, comm_, &request);
    return started(code, request, finish);
  }
  Started start_all_gather(const void* send, void* receive, size_t count,
                           Element element) override {
    const Result<int> counted = mpi_count(count);
    if (!counted) return counted.status();
    const int n = *counted;
    const MPI_Datatype type = type_of(element);
    const bool in_place = send == static_cast<char*>(receive) +
                                      static_cast<size_t>(rank()) * count * bytes_of(element);
    const void* const from = in_place ? MPI_IN_PLACE : send;
    if (!traffic().overlap())
      return later([=, this] { return MPI_Allgather(from, n, type, receive, n, type, comm_); });
    MPI_Request request;
    const int code = MPI_Iallgather(from, n, type, receive, n, type, comm_, &request);
    return started(code, request);
  }
  Started start_broadcast(void* data, size_t bytes, int root) override {
    const Result<int> n = mpi_count(bytes);
    if (!n) return n.status();
    MPI_Request request;
    const int code = MPI_Ibcast(data, *n, MPI_BYTE, root, comm_, &request);
    return started(code, request);
  }
  Started start_send(const void* data, size_t count, Element element, int peer) override {
    const Result<int> n = mpi_count(count);
    if (!n) return n.status();
    MPI_Request request;
    const int code = MPI_Isend(data, *n, type_of(element), peer, 0, comm_, &request);
    return started(code, request);
  }
  Started start_receive(void* data, size_t count, Element element, int peer) override {
    const Result<int> n = mpi_count(count);
    if (!n) return n.status();
    MPI_Request request;
    const int code = MPI_Irecv(data, *n, type_of(element), peer, 0, comm_, &request);
    return started(code, request);
  }

 private:
  MPI_Op op_of(Element element, Reduction reduction) const {
    if (reduction == Reduction::max) return MPI_MAX;  // of f32 and f64 alone
    return element == Element::bf16 ? sum_bf16_ : MPI_SUM;
  }
  static Started started(int code, MPI_Request request, std::function<void()> finish = {}) {
    if (code != MPI_SUCCESS) return status_of(code);
    return std::shared_ptr<Work>(std::make_shared<MpiWork>(request, nullptr, std::move(finish)));
  }
  static Started later(MpiWork::Call call, std::function<void()> finish = {}) {
    return std::shared_ptr<Work>(
        std::make_shared<MpiWork>(MPI_REQUEST_NULL, std::move(call), std::move(finish)));
  }
  MPI_Comm comm_;
  MPI_Op sum_bf16_ = MPI_OP_NULL;
  bool world_;
};

}  // namespace

namespace {

Result<std::unique_ptr<Communicator>> open_world(Traffic* traffic) {
  int provided = 0, rank = 0, size = 1;
  // The library must go after MPI_Finalize's own threads: it is never closed.
  const Status status =
      status_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (!status.ok()) return status;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, rank, size, traffic, true));
}

}  // namespace

// Found by name in open_mpi.cpp; what has C linkage returns no class.
extern "C" SENNIT_EXPORT void sennit_trainer_open_mpi(
    Traffic* traffic, Result<std::unique_ptr<Communicator>>* opened) {
  *opened = open_world(traffic);
}

}  // namespace sennit::trainer
