// An MPI library's collectives under the clock of perf/peers/peer.hpp. Run it with that library's
// mpirun; `sennit emulate run --peer openmpi` does so on an emulated fabric. PEER is the name that
// it is compiled for: openmpi, mpich or openmpi5.
#include <mpi.h>

#include <climits>
#include <functional>

#include "perf/peers/peer.hpp"

namespace {

class Mpi : public peer::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  const char* name() const override { return PEER; }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  size_t most(const std::string&) const override { return INT_MAX; }
  void max_over_ranks(std::vector<double>* values) override {
    MPI_Allreduce(MPI_IN_PLACE, values->data(), static_cast<int>(values->size()), MPI_DOUBLE,
                  MPI_MAX, MPI_COMM_WORLD);
  }
  bool prepare(const std::string& collective, float* in, float* out, size_t elements) override {
    const int count = static_cast<int>(elements);
    if (collective == "all_reduce")
      run_ = [=] { MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    else if (collective == "all_gather")
      run_ = [=] { MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); };
    else if (collective == "reduce_scatter")
      run_ = [=] { MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    else if (collective == "all_to_all")
      run_ = [=] { MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); };
    else if (collective == "broadcast")  // in place: the root sends what it has
      run_ = [=, this] { MPI_Bcast(rank_ == 0 ? in : out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); };
    else
      return false;
    return true;
  }
  void run() override { run_(); }

 private:
  int rank_ = 0, ranks_ = 1;
  std::function<void()> run_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const peer::Options options = peer::parse(argc, argv);
  Mpi library;
  const int status = peer::Bench(library, options).run();
  MPI_Finalize();
  return status;
}
