// stream.hpp: streams: a thread each, which does one operation after the other, after a delay by
// chance; and a device, whose streams wait for one another as CUDA's do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/soft_gpu/graph.hpp"
#include "tests/soft_gpu/process.hpp"

namespace soft_gpu {

struct Gpu;
class StreamThread;

// A place in a stream, after so many of its operations; or in what is being captured.
struct Point {
  std::shared_ptr<StreamThread> stream;
  uint64_t count = 0;
  std::shared_ptr<Capture> capture = nullptr;
  std::set<size_t> before = {};  // operations of the capture, by number

  bool passed() const;
  void wait() const;
};

// One of the queues through which all streams hand their operations to the device: none starts
// before those that were put in before it. Kept only where CUDA_DEVICE_MAX_CONNECTIONS says how
// many there are.
struct HardwareQueue {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t put = 0;
  uint64_t started = 0;
};

// A stream. It lives as long as something is in it or somebody has it.
class StreamThread : public std::enable_shared_from_this<StreamThread> {
 public:
  // `blocking`: waits for the default stream, and the default stream for it.
  static std::shared_ptr<StreamThread> start(Gpu* gpu, bool blocking);
  StreamThread(Gpu* gpu, bool blocking, uint64_t index);

  Point push(std::vector<Point> after, std::function<void()> work);
  Point end();  // of what it has been given
  bool reached(uint64_t count);
  void wait(uint64_t count);
  void hold(bool held);
  void close();  // the thread ends after the last operation
  bool has_ended();

  Gpu* const gpu;
  const bool blocking;
  std::shared_ptr<Capture> capture;  // that it is part of; guarded by the device's `mutex`

 private:
  struct Operation {
    std::vector<Point> after;
    std::function<void()> work;
    uint64_t place = 0;  // in the hardware's queue
  };
  void run();
  bool take(Operation* operation);
  void wait_to_start(const Operation& operation);

  HardwareQueue* const hardware_;
  Dice dice_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  uint64_t pushed_ = 0;
  uint64_t finished_ = 0;
  bool held_ = false;
  bool closed_ = false;
};

// A device with its primary context.
struct Gpu {
  explicit Gpu(int its_ordinal) : ordinal(its_ordinal) {}

  const int ordinal;
  std::atomic<uint64_t> peers{0};  // devices whose memory its kernels reach as well, by ordinal
  // What launches, copies and allocations need. Those that wait for the whole device hold it
  // meanwhile, which is the driver's hazard that this library is for.
  std::mutex lock;

  // The rest is guarded by this one, which nobody holds while he waits.
  std::mutex mutex;
  int retained = 0;
  std::vector<std::shared_ptr<StreamThread>> streams;  // also closed ones that are not done
  std::shared_ptr<StreamThread> legacy;                // the default stream, once it was used

  std::shared_ptr<StreamThread> add_stream(bool blocking);
  std::shared_ptr<StreamThread> legacy_stream();
  // With `lock`: `work` at the end of the stream, and after what else it has to wait for. Where the
  // stream is captured it becomes part of the graph, and so it does after a place in a capture.
  Point push(StreamThread& stream, std::function<void()> work, std::vector<Point> after = {});
  // The ends of the stream and of those that it waits for.
  std::vector<Point> ends(StreamThread& stream);
  // The capture that the stream is part of, or null.
  std::shared_ptr<Capture> capture_of(const StreamThread& stream);
  // Whether streams that block are captured, and the default stream, which waits for them, is out
  // of use. The second makes what they are captured into invalid.
  bool captures_blocking();
  bool invalidate_captures_of_blocking();
  // No stream is part of this one any more.
  void end_capture(const Capture& capture);
  // With `lock`: waits until nothing is in any stream.
  void drain();
};

}  // namespace soft_gpu
