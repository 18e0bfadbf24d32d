// onehost_compare.cpp: sennit beside Open MPI on one host, in one process per rank, turn by turn.
//
//   mpirun --oversubscribe -np N onehost_compare [-p PAIRS] [-m sennit|registered|malloc] [CASE...]
//
// A CASE is COLLECTIVE:BYTES.
//
// Both libraries work on the same memory. A turn is a barrier and then a block of calls (as many as
// take a millisecond or two, at least one); its time is the slowest rank's, divided by the calls.
// Turns alternate, and so does who begins, so that whatever else the machine does meets both alike;
// printed are medians and the median of the pairs' ratios. The third turn is the floor: all ranks
// copy BYTES at once, each from its input to its output, which for an all-reduce between two ranks
// is the least that can be written (32 MB for 16 MB). fp32 sums; BYTES as in nccl-tests; K and M
// are powers of two. Results are compared with each other.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sennit/sennit.h"

namespace {

int g_rank = 0, g_ranks = 1;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "onehost_compare: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void must(sennit_status_t status) {
  if (status != SENNIT_OK) stop(sennit_last_error());
}

struct Case {
  std::string collective;
  size_t bytes = 0;
};

Case parse_case(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) stop("'" + text + "': expected COLLECTIVE:BYTES");
  constexpr double kMostBytes = 1e15;  // fits a size_t
  const char* const begin = text.c_str() + colon + 1;
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  const double scale = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1;
  if (end != begin && scale > 1) end++;
  if (end == begin || *end != '\0' || !(number >= 0 && number * scale <= kMostBytes))
    stop("'" + text + "': expected bytes such as 4096, 64K or 16M");
  return {text.substr(0, colon), static_cast<size_t>(number * scale)};
}

// Seconds per call of the slowest rank.
double turn(const std::function<void()>& call, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  double mine = took.count() / calls, slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

class Comparison {
 public:
  Comparison(sennit_comm_t comm, const Case& what, const std::string& memory)
      : comm_(comm), case_(what), memory_(memory) {
    const auto ranks = static_cast<size_t>(g_ranks);
    const bool blocks = what.collective == "all_gather" || what.collective == "reduce_scatter";
    count_ = what.bytes / sizeof(float) / (blocks ? ranks : 1);
    in_count_ = what.collective == "reduce_scatter" ? count_ * ranks : count_;
    out_count_ = what.collective == "all_gather" ? count_ * ranks : count_;
    if (count_ == 0) stop("too few bytes");
    if (count_ > INT_MAX)
      stop(what.collective + ":" + std::to_string(what.bytes) + ": " + std::to_string(count_) +
           " elements, and MPI counts up to " + std::to_string(INT_MAX));
    in_ = allocate(in_count_);
    out_ = allocate(out_count_);
    for (size_t i = 0; i < in_count_; i++)
      in_[i] = static_cast<float>((i * 7 + static_cast<size_t>(g_rank) * 3) % 11);
  }
  ~Comparison() {
    for (float* memory : {in_, out_}) {
      if (memory_ == "registered") must(sennit_mem_deregister(comm_, memory));
      if (memory_ == "sennit")
        must(sennit_mem_free(comm_, memory));
      else
        std::free(memory);
    }
  }

  void run(int pairs) {
    const int count = static_cast<int>(count_);
    std::function<void()> sennit, openmpi;
    if (case_.collective == "all_reduce") {
      sennit = [=, this] {
        must(sennit_all_reduce(in_, out_, count_, SENNIT_FLOAT32, SENNIT_SUM, comm_));
      };
      openmpi = [=, this] { MPI_Allreduce(in_, out_, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    } else if (case_.collective == "all_gather") {
      sennit = [=, this] { must(sennit_all_gather(in_, out_, count_, SENNIT_FLOAT32, comm_)); };
      openmpi = [=, this] {
        MPI_Allgather(in_, count, MPI_FLOAT, out_, count, MPI_FLOAT, MPI_COMM_WORLD);
      };
    } else if (case_.collective == "reduce_scatter") {
      sennit = [=, this] {
        must(sennit_reduce_scatter(in_, out_, count_, SENNIT_FLOAT32, SENNIT_SUM, comm_));
      };
      openmpi = [=, this] {
        MPI_Reduce_scatter_block(in_, out_, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    } else {
      stop("'" + case_.collective + "': expected all_reduce, all_gather or reduce_scatter");
    }
    // Where one side is shorter, it is copied as often as it fits.
    const auto copy = [this] {
      for (size_t done = 0; done < std::max(in_count_, out_count_);
           done += std::min(in_count_, out_count_))
        std::memcpy(out_ + done % out_count_, in_ + done % in_count_,
                    std::min(in_count_, out_count_) * sizeof(float));
    };
    compare(sennit, openmpi);
    const int calls = calls_for(sennit, openmpi);
    std::vector<double> ours, theirs, copies, ratios, floors;
    for (int i = 0; i < pairs; i++) {
      const bool we_begin = i % 2 == 0;
      if (we_begin) ours.push_back(turn(sennit, calls));
      theirs.push_back(turn(openmpi, calls));
      if (!we_begin) ours.push_back(turn(sennit, calls));
      copies.push_back(turn(copy, calls));
      ratios.push_back(ours.back() / theirs.back());
      floors.push_back(ours.back() / copies.back());
    }
    if (g_rank != 0) return;
    const double rate = static_cast<double>(std::max(in_count_, out_count_) * sizeof(float)) *
                        g_ranks / median(copies);
    std::printf("%-14s %5d %11zu %-10s %6d %11.2f %11.2f %7.2f %11.2f %9.2f %7.2f\n",
                case_.collective.c_str(), g_ranks, case_.bytes, memory_.c_str(), calls,
                median(ours) * 1e6, median(theirs) * 1e6, median(ratios), median(copies) * 1e6,
                rate * 1e-9, median(floors));
    std::fflush(stdout);
  }

  static void print_head() {
    if (g_rank != 0) return;
    std::printf("%-14s %5s %11s %-10s %6s %11s %11s %7s %11s %9s %7s\n", "collective", "ranks",
                "bytes", "memory", "calls", "sennit_us", "openmpi_us", "ratio", "copy_us",
                "copy_GB/s", "/copy");
  }

 private:
  float* allocate(size_t count) {
    void* memory = nullptr;
    if (memory_ == "sennit")
      must(sennit_mem_alloc(comm_, count * sizeof(float), &memory));
    else if (posix_memalign(&memory, 4096, count * sizeof(float)) != 0)
      stop("out of memory");
    std::memset(memory, 0, count * sizeof(float));
    if (memory_ == "registered") must(sennit_mem_register(comm_, memory, count * sizeof(float)));
    return static_cast<float*>(memory);
  }

  // Both must give the same sums: the inputs are small whole numbers.
  void compare(const std::function<void()>& sennit, const std::function<void()>& openmpi) {
    for (int i = 0; i < 3; i++) openmpi();
    const std::vector<float> expected(out_, out_ + out_count_);
    std::fill(out_, out_ + out_count_, -1.0f);
    for (int i = 0; i < 3; i++) sennit();
    if (!std::equal(expected.begin(), expected.end(), out_)) stop("the results differ");
  }

  // As many as take about two milliseconds at best, the same on all ranks.
  int calls_for(const std::function<void()>& sennit, const std::function<void()>& openmpi) {
    double best = 1;
    for (int i = 0; i < 5; i++) best = std::min(best, std::max(turn(sennit, 5), turn(openmpi, 5)));
    return std::clamp(static_cast<int>(2e-3 / best), 1, 2000);
  }

  sennit_comm_t comm_;
  const Case case_;
  const std::string memory_;
  size_t count_ = 0, in_count_ = 0, out_count_ = 0;
  float *in_ = nullptr, *out_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
  int pairs = 15;
  std::vector<std::string> memories = {"sennit", "registered", "malloc"};
  std::vector<Case> cases;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "-p") {
      pairs = std::max(1, std::atoi(value.c_str()));
      i++;
    } else if (word == "-m") {
      if (std::find(memories.begin(), memories.end(), value) == memories.end())
        stop("-m: expected sennit, registered or malloc");
      memories = {value};
      i++;
    } else {
      cases.push_back(parse_case(word));
    }
  }
  const auto ranks = static_cast<size_t>(g_ranks);
  if (cases.empty())
    for (const size_t bytes : {size_t{8}, size_t{1} << 10, size_t{1} << 20, size_t{16} << 20}) {
      cases.push_back({"all_reduce", bytes == size_t{16} << 20 && ranks == 2 ? 16'000'000 : bytes});
      cases.push_back({"all_gather", std::max(bytes, 8 * ranks)});
      cases.push_back({"reduce_scatter", std::max(bytes, 8 * ranks)});
    }
  sennit_comm_t comm = nullptr;
  const MPI_Comm world = MPI_COMM_WORLD;
  must(sennit_comm_init_mpi(&comm, &world, nullptr));
  Comparison::print_head();
  for (const Case& what : cases)
    for (const std::string& memory : memories) Comparison(comm, what, memory).run(pairs);
  must(sennit_comm_finalize(comm));
  must(sennit_comm_destroy(comm));
  MPI_Finalize();
  return 0;
}
