// test_folder.hpp: a folder of a test's own, gone with it, and damage to a file.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace sennit::trainer {

// A new folder among the system's temporary ones. FOLDER / NAME is a path in it.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sennit_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Adds `by`, modulo 256, to the byte at `at`, which must be there.
inline void change_byte(const std::string& file, int64_t at, int by) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const int byte = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(byte + by));
}

}  // namespace sennit::trainer
