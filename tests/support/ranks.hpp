// ranks.hpp: a job of n ranks as threads of this process, for tests of the public interface.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "sennit/sennit.h"

namespace sennit_test {

class Ranks {
 public:
  explicit Ranks(int n, const sennit_config_t* config = nullptr) : comms_(static_cast<size_t>(n)) {
    const sennit_status_t status = sennit_comm_init_local(comms_.data(), n, config);
    if (status != SENNIT_OK) comms_.clear();
    EXPECT_EQ(status, SENNIT_OK) << sennit_last_error();
  }
  ~Ranks() {
    run([](int, sennit_comm_t comm) {
      sennit_comm_finalize(comm);
      sennit_comm_destroy(comm);
    });
  }
  int size() const { return static_cast<int>(comms_.size()); }
  bool ok() const { return !comms_.empty(); }
  sennit_comm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }
  // Calls f(rank, comm) on all ranks at once and returns when all have.
  void run(const std::function<void(int, sennit_comm_t)>& f) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); r++)
      threads.emplace_back([&, r] { f(r, comms_[static_cast<size_t>(r)]); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<sennit_comm_t> comms_;
};

}  // namespace sennit_test
