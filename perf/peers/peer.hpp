// peer.hpp: times another library's collectives the way `sennit bench` times ours, so that both
// print comparable lines. That is fp32, out of place, a barrier before each iteration; the time of
// an iteration is that of its slowest rank, the result the median of the iterations. One JSON
// object per size on rank 0's standard output.
//
//   PEER_perf COLLECTIVE [-b BYTES] [-e BYTES] [-f FACTOR] [-n ITERATIONS] [-w WARMUPS] [-c 0|1]
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace peer {

// The command line. Sizes in bytes are those of nccl-tests: of the vector (all_reduce, broadcast),
// or of all blocks together (all_gather, reduce_scatter, all_to_all).
struct Options {
  std::string collective = "all_reduce";
  size_t first_bytes = 16'000'000, last_bytes = 16'000'000;
  double factor = 2;
  int iterations = 5, warmups = 1;
  bool check = false;
};

// What a library does for us. `count` is the elements of a block, or of the whole vector where
// there are no blocks.
class Library {
 public:
  virtual ~Library() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void barrier() = 0;
  // The largest `count` that its call of this name takes.
  virtual size_t most(const std::string& collective) const = 0;
  virtual void max_over_ranks(std::vector<double>* values) = 0;
  // False where the library has no such collective. `in` may be overwritten; broadcasts go from
  // rank 0 to `out`.
  virtual bool prepare(const std::string& collective, float* in, float* out, size_t count) = 0;
  virtual void run() = 0;  // what was prepared
};

// "16000000", "64K", "1.5M", "2G": powers of two. Ends the process with status 2, after a line on
// stderr, where it is none of these.
inline size_t parse_bytes(const char* text) {
  char* end = nullptr;
  double bytes = std::strtod(text, &end);
  for (const auto& [suffix, scale] : {std::pair('K', 1 << 10), {'M', 1 << 20}, {'G', 1 << 30}})
    if (end != text && *end == suffix) {
      bytes *= scale;
      end++;
      break;
    }
  if (end != text && *end == 0 && bytes > 0) return static_cast<size_t>(bytes);
  std::fprintf(stderr, "%s: expected bytes, such as 64M\n", text);
  std::exit(2);
}

// Ends the process with status 2, after a line on stderr, where a word is not understood or a
// number is out of range.
inline Options parse(int argc, char** argv) {
  Options options;
  const auto refuse = [&](const char* word) {
    std::fprintf(stderr, "%s: '%s' is not understood; see perf/peers/peer.hpp\n", argv[0], word);
    std::exit(2);
  };
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    if (word[0] != '-') {
      options.collective = word;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (!value || word.size() != 2) refuse(word.c_str());
    if (word == "-b")
      options.first_bytes = parse_bytes(value);
    else if (word == "-e")
      options.last_bytes = parse_bytes(value);
    else if (word == "-f")
      options.factor = std::atof(value);
    else if (word == "-n")
      options.iterations = std::atoi(value);
    else if (word == "-w")
      options.warmups = std::atoi(value);
    else if (word == "-c")
      options.check = std::atoi(value) != 0;
    else
      refuse(word.c_str());
  }
  if (options.iterations < 1 || options.warmups < 0 || !(options.factor > 1))
    refuse("-n, -w or -f");
  return options;
}

// Element i that `rank` contributes: small whole numbers, so that sums are exact in any order.
inline float element(int rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 3) % 11);
}

// Measures one collective of a library at all sizes that were asked for. run() is for all ranks of
// the library; it returns the exit status, which is 1 on all where a checked result was wrong. A
// size beyond what the library counts ends the process with status 2, after a line on stderr.
class Bench {
 public:
  // Both must outlive this.
  Bench(Library& library, const Options& options) : library_(library), options_(options) {}

  int run() {
    int status = 0;
    for (size_t bytes = options_.first_bytes; bytes <= options_.last_bytes;) {
      status = std::max(status, measure(bytes));
      bytes = std::max(bytes + sizeof(float),
                       static_cast<size_t>(static_cast<double>(bytes) * options_.factor));
    }
    return status;
  }

 private:
  bool blocks() const {
    return options_.collective != "all_reduce" && options_.collective != "broadcast";
  }

  void fill(std::vector<float>* in, size_t count) {
    for (size_t i = 0; i < in->size(); i++)
      (*in)[i] = options_.collective == "all_gather"
                     ? element(library_.rank(), static_cast<size_t>(library_.rank()) * count + i)
                     : element(library_.rank(), i);
  }

  // What element i of the output should be.
  float expected(size_t i, size_t count) const {
    const auto rank = static_cast<size_t>(library_.rank());
    if (options_.collective == "broadcast") return element(0, i);
    if (options_.collective == "all_gather") return element(static_cast<int>(i / count), i);
    if (options_.collective == "all_to_all")
      return element(static_cast<int>(i / count), rank * count + i % count);
    if (options_.collective == "reduce_scatter") i += rank * count;
    float sum = 0;
    for (int r = 0; r < library_.ranks(); r++) sum += element(r, i);
    return sum;
  }

  int measure(size_t bytes) {
    const auto ranks = static_cast<size_t>(library_.ranks());
    const size_t count = bytes / sizeof(float) / (blocks() ? ranks : 1);
    if (count == 0) return 0;
    if (const size_t most = library_.most(options_.collective); count > most) {
      std::fprintf(stderr, "%s: %s of %zu bytes: %zu elements, and its calls count up to %zu\n",
                   library_.name(), options_.collective.c_str(), bytes, count, most);
      std::exit(2);
    }
    const size_t total = blocks() ? count * ranks : count;
    std::vector<float> in(options_.collective == "all_gather" ? count : total);
    std::vector<float> out(options_.collective == "reduce_scatter" ? count : total);
    const bool has = library_.prepare(options_.collective, in.data(), out.data(), count);
    std::vector<double> seconds;
    for (int i = -options_.warmups; has && i < options_.iterations; i++) {
      fill(&in, count);
      library_.barrier();
      const auto begin = std::chrono::steady_clock::now();
      library_.run();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (i >= 0) seconds.push_back(took.count());
    }
    std::vector<double> wrong = {0};
    const bool root = options_.collective == "broadcast" && library_.rank() == 0;
    if (has && options_.check && !root)
      for (size_t i = 0; i < out.size(); i++) wrong[0] += out[i] != expected(i, count);
    library_.max_over_ranks(&wrong);
    if (has) library_.max_over_ranks(&seconds);
    if (library_.rank() == 0) print(total * sizeof(float), count, seconds, wrong[0]);
    return wrong[0] > 0 ? 1 : 0;
  }

  void print(size_t bytes, size_t count, std::vector<double> seconds, double wrong) const {
    std::printf(
        R"({"library": "%s", "collective": "%s", "bytes": %zu, "count": %zu, "dtype": "float32", )",
        library_.name(), options_.collective.c_str(), bytes, count);
    std::printf(R"("op": "%s", "ranks": %d, )", reduces() ? "sum" : "none", library_.ranks());
    if (seconds.empty()) {
      std::printf(
          "\"time_us\": null, \"algbw_gbytes_per_s\": null, \"busbw_gbytes_per_s\": null, "
          "\"wrong\": "
          "null}\n");
    } else {
      std::sort(seconds.begin(), seconds.end());
      const double median = (seconds[seconds.size() / 2] + seconds[(seconds.size() - 1) / 2]) / 2;
      const double n = library_.ranks();
      const double factor = options_.collective == "all_reduce" ? 2 * (n - 1) / n
                            : blocks()                          ? (n - 1) / n
                                                                : 1;
      const double algbw = static_cast<double>(bytes) / median / 1e9;
      std::printf("\"time_us\": %.3f, \"best_us\": %.3f, \"algbw_gbytes_per_s\": %.6g, ",
                  median * 1e6, seconds[0] * 1e6, algbw);
      std::printf("\"busbw_gbytes_per_s\": %.6g, \"wrong\": ", algbw * factor);
      if (options_.check)
        std::printf("%.0f}\n", wrong);
      else
        std::printf("null}\n");
    }
    std::fflush(stdout);
  }
  bool reduces() const {
    return options_.collective == "all_reduce" || options_.collective == "reduce_scatter";
  }

  Library& library_;
  const Options& options_;
};

}  // namespace peer
