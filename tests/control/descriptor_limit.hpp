// descriptor_limit.hpp: while one lives, this process can open no more files.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/process/descriptors.hpp"

namespace sennit::test {

class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    // Files may lie far apart, so all below the limit are taken as well.
    rlimit few = before_;
    few.rlim_cur = std::min<rlim_t>(before_.rlim_cur, kEnough);
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = 0; (fd = dup(STDERR_FILENO)) >= 0;) taken_.push_back(fd);
    EXPECT_EQ(descriptors_left(), 0u);
  }
  ~NoDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  // Takes what has become free since. How many that were.
  size_t take_again() {
    const size_t had = taken_.size();
    for (int fd = 0; (fd = dup(STDERR_FILENO)) >= 0;) taken_.push_back(fd);
    return taken_.size() - had;
  }

 private:
  static constexpr rlim_t kEnough = 1024;
  rlimit before_{};
  std::vector<int> taken_;
};

}  // namespace sennit::test
