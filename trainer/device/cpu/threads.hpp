// threads.hpp: the threads of the CPU device: a call's work is cut into numbered parts, whoever is
// free takes the next one.
//
// The cut is the caller's and knows nothing of the number of threads, and parts write apart from
// each other, so that results have the same bits with any number of threads. The calling thread
// works too. Between calls the others wait: first spinning for some microseconds, as calls follow
// each other closely, then asleep. One caller at a time. Cost of a call: about 1 us while the
// others spin, 10 us to wake them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sennit::trainer {

class CpuThreads {
 public:
  // 0: one per core that this process may run on. Fewer where the system has no more left.
  explicit CpuThreads(int threads);
  ~CpuThreads();
  CpuThreads(const CpuThreads&) = delete;
  CpuThreads& operator=(const CpuThreads&) = delete;

  int count() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls work(part, thread) for each part of [0, parts), thread in [0, count()), and returns when
  // all are done.
  void run(int64_t parts, const std::function<void(int64_t part, int thread)>& work);

 private:
  void serve(int thread);
  void take_parts(int thread);

  const std::function<void(int64_t, int)>* work_ = nullptr;
  int64_t parts_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> call_{0};     // raised once per call: what the workers wait for
  alignas(64) std::atomic<uint32_t> working_{0};  // workers that have not finished this call
  std::atomic<bool> end_{false};
  std::vector<std::thread> workers_;
};

}  // namespace sennit::trainer
