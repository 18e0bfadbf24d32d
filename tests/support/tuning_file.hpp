// tuning_file.hpp: a tuning file of a test's own, which SENNIT_TUNING names for as long as it
// lives.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace sennit {

class TuningFile {
 public:
  explicit TuningFile(const std::string& text = "")
      : path_(testing::TempDir() + "/sennit-tuning-" + std::to_string(getpid())) {
    if (!text.empty()) std::ofstream(path_) << text;
    setenv("SENNIT_TUNING", path_.c_str(), 1);
  }
  ~TuningFile() {
    unsetenv("SENNIT_TUNING");
    unsetenv("SENNIT_TUNE");
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".lock");
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace sennit
