// device.hpp: the CUDA devices that the ranks of `sennit bench --memory device` have their buffers
// on, and the least time that the memory of these devices takes for a call.
//
// The bound counts what any schedule reads and writes of the buffers, at the rate at which a device
// was measured to copy within its own memory. It holds in place and out of place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/graph.hpp"
#include "command/bench/bench.hpp"
#include "command/bench/groups.hpp"
#include "control/control_plane.hpp"

namespace sennit::bench {

// The device of one rank, with a stream of its own. Current in the thread that opened it.
class BenchDevice {
 public:
  // Collective over the ranks of `control`. Those of a host take its devices in turn, from the one
  // that NCCL_TESTS_DEVICE names, or the first.
  static Result<std::unique_ptr<BenchDevice>> open(Control& control);

  void* stream() const { return stream_; }
  Result<std::byte*> allocate(size_t bytes) const;
  void free(std::byte* memory, size_t bytes) const;
  Status copy(void* to, const void* from, size_t bytes) const;  // and waits for it
  Status synchronize() const { return accelerator_.synchronize(stream_); }
  // What `calls` puts into the stream, to be launched there.
  Result<std::unique_ptr<cuda::CapturedGraph>> capture(const std::function<Status()>& calls) const {
    return cuda::CapturedGraph::of(stream_, calls);
  }

  // In microseconds; nothing where it is unknown: a rank alone, or data that a cache may hold.
  std::optional<double> bound_us(const Options& options, const RankGroups& groups, DataType type,
                                 Op op, int root, uint64_t bytes) const;
  bool one_host() const { return one_host_; }

 private:
  BenchDevice(Accelerator& accelerator, void* stream)
      : accelerator_(accelerator), stream_(stream) {}
  Result<double> measured_rate() const;
  Status learn(Control& control, const std::string& host, int device);

  Accelerator& accelerator_;
  void* const stream_;
  std::vector<int> device_of_rank_;  // numbered over all hosts
  double bytes_per_s_ = 0;           // copied, by the slowest
  uint64_t cache_bytes_ = 0;         // the largest
  bool one_host_ = false;
};

}  // namespace sennit::bench
