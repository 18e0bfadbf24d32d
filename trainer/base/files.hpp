// files.hpp: the few things that data and checkpoints ask of a file system: whole files in and out,
// files mapped into memory, and writes that are durable before anybody relies on them.
//
// Errors say the file, what was tried and the system's reason. No function throws.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"

namespace sennit::trainer {

// "FILE: cannot be WHAT: strerror(errno)". SENNIT_OUT_OF_RESOURCES for what the system refuses:
// space, permission.
Status file_error(const std::string& file, const char* what);

// All of it. Errors: as file_error().
Result<std::string> read_file(const std::string& file);
// A file from its beginning to its end, uncompressed where it begins like gzip.
class MaybeCompressed {
 public:
  static Result<MaybeCompressed> open(const std::string& file);
  MaybeCompressed(MaybeCompressed&& other) noexcept
      : file_(std::move(other.file_)),
        stream_(std::exchange(other.stream_, nullptr)),
        ended_(other.ended_) {}
  MaybeCompressed& operator=(MaybeCompressed&&) = delete;
  ~MaybeCompressed();
  Status append_to(std::string* text);  // the next 256 KiB of it
  bool ended() const { return ended_; }

 private:
  MaybeCompressed(const std::string& file, void* stream) : file_(file), stream_(stream) {}
  std::string file_;
  void* stream_;  // zlib's
  bool ended_ = false;
};

// Through FILE.part, fsync and rename, and an fsync of the folder: FILE is the old one or the new
// one, whole, and FILE.part goes where that fails.
Status write_file_durably(const std::string& file, std::string_view text);
Status sync_folder(const std::string& folder);    // the names in it outlive a crash
Status make_folders(const std::string& folder);   // and those above it; one that is there is fine
Status make_writable(const std::string& folder);  // and sees that files can be made in it
// The names in a folder, sorted; none where it is not there or cannot be listed.
std::vector<std::string> names_in(const std::string& folder);
// The same, for whom a folder that is there and cannot be listed is no empty one:
// SENNIT_OUT_OF_RESOURCES, whatever the reason is.
Result<std::vector<std::string>> listed_names(const std::string& folder);

// JSON objects that carry their own checksum under the key "checksum", which read_sealed() takes
// out.
std::string sealed_text(const nlohmann::json& object);
Result<nlohmann::json> read_sealed(const std::string& file, std::string* checksum = nullptr);

// A file mapped for reading, all of it, for as long as this lives. Its bytes are read when they are
// touched: a file that is cut short meanwhile ends the program.
class MappedFile {
 public:
  // Errors: as file_error(). An empty file has no data.
  static Result<MappedFile> open(const std::string& file);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sennit::trainer
