// files.cpp: see trainer/base/files.hpp.
#include "trainer/base/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/checksum.hpp"

namespace sennit::trainer {
namespace {

Status write_all(int descriptor, const std::string& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(file, "written");
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(descriptor) != 0) return file_error(file, "made durable");
  return {};
}

std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : file.substr(0, slash);
}

}  // namespace

Status file_error(const std::string& file, const char* what) {
  const int error = errno;
  constexpr int kRefusals[] = {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE,
                               EFBIG,  EACCES, EPERM,  EROFS,  EIO};
  const bool refused =
      std::find(std::begin(kRefusals), std::end(kRefusals), error) != std::end(kRefusals);
  const ErrorKind kind = refused           ? SENNIT_OUT_OF_RESOURCES
                         : error == ENOENT ? SENNIT_NOT_FOUND
                                           : SENNIT_INVALID_ARGUMENT;
  return {kind, fmt::format("{}: cannot be {}: {}", file, what, std::strerror(error))};
}

Result<std::string> read_file(const std::string& file) {
  const Result<MappedFile> mapped = MappedFile::open(file);
  if (!mapped) return mapped.status();
  return std::string(reinterpret_cast<const char*>(mapped->data()), mapped->bytes());
}

Result<MaybeCompressed> MaybeCompressed::open(const std::string& file) {
  gzFile stream = gzopen(file.c_str(), "rb");  // reads what is not gzip as it is
  if (!stream) return file_error(file, "read");
  gzbuffer(stream, 1 << 17);
  return MaybeCompressed(file, stream);
}

MaybeCompressed::~MaybeCompressed() {
  if (stream_) gzclose(static_cast<gzFile>(stream_));
}

Status MaybeCompressed::append_to(std::string* text) {
  constexpr size_t kStep = 1 << 18;
  const auto stream = static_cast<gzFile>(stream_);
  const size_t before = text->size();
  text->resize(before + kStep);
  const int got = gzread(stream, text->data() + before, kStep);
  text->resize(before + static_cast<size_t>(std::max(got, 0)));
  if (got > 0) return {};
  ended_ = true;
  int error = Z_OK;
  const char* reason = gzerror(stream, &error);
  std::string words = error == Z_ERRNO ? std::strerror(errno) : reason;
  if (words.starts_with(file_ + ": ")) words.erase(0, file_.size() + 2);  // zlib names it, too
  if (got < 0 || error != Z_OK)
    return invalid(
        fmt::format("{}: cannot be read: {}", file_, words.empty() ? "it is cut short" : words));
  return {};
}

Status write_file_durably(const std::string& file, std::string_view text) {
  const std::string part = file + ".part";
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return file_error(part, "made");
  Status status = write_all(descriptor, part, text);
  ::close(descriptor);
  if (status.ok() && ::rename(part.c_str(), file.c_str()) != 0)
    status = file_error(file, "renamed into place");
  if (!status.ok()) {
    ::unlink(part.c_str());
    return status;
  }
  return sync_folder(folder_of(file));
}

Status sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return file_error(folder, "opened");
  const int failed = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  // EINVAL: it has no such thing
  if (failed != 0 && error != EINVAL) return file_error(folder, "made durable");
  return {};
}

Status make_folders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  errno = error.value();
  if (error) return file_error(folder, "made");
  return {};
}

Status make_writable(const std::string& folder) {
  SENNIT_RETURN_IF_ERROR(make_folders(folder));
  const std::string probe = fmt::format("{}/.sennit-{}", folder, ::getpid());
  const int descriptor = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return file_error(folder, "written into");
  ::close(descriptor);
  ::unlink(probe.c_str());
  return {};
}

std::vector<std::string> names_in(const std::string& folder) {
  Result<std::vector<std::string>> names = listed_names(folder);
  return names ? *std::move(names) : std::vector<std::string>();
}

Result<std::vector<std::string>> listed_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    names.push_back(at->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    errno = error.value();
    return Status(SENNIT_OUT_OF_RESOURCES, file_error(folder, "listed").text());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string sealed_text(const nlohmann::json& object) {
  nlohmann::json sealed = object;
  sealed.erase("checksum");
  const std::string text = json_to_text(sealed);
  sealed["checksum"] = checksum_text(text.data(), text.size());
  return json_to_text(sealed, 1) + "\n";
}

Result<nlohmann::json> read_sealed(const std::string& file, std::string* checksum) {
  const Result<std::string> text = read_file(file);
  if (!text) return text.status();
  nlohmann::json object = parse_json(*text);
  if (!object.is_object())
    return invalid(fmt::format("{}: is no JSON object; it is cut short or damaged", file));
  const auto seal = object.find("checksum");
  if (seal == object.end() || !seal->is_string())
    return invalid(fmt::format("{}: has no checksum; sennit did not write it", file));
  const std::string expected = *seal;
  object.erase("checksum");
  const std::string rest = json_to_text(object);
  if (checksum_text(rest.data(), rest.size()) != expected)
    return invalid(fmt::format("{}: is damaged: its checksum is not that of its text", file));
  if (checksum) *checksum = expected;
  return object;
}

Result<MappedFile> MappedFile::open(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return file_error(file, "read");
  struct stat facts {};
  MappedFile mapped;
  Status status;
  if (::fstat(descriptor, &facts) != 0) {
    status = file_error(file, "read");
  } else if (!S_ISREG(facts.st_mode)) {
    status = invalid(fmt::format("{}: is no file", file));
  } else if (facts.st_size > 0) {
    mapped.bytes_ = static_cast<size_t>(facts.st_size);
    void* data = ::mmap(nullptr, mapped.bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
      status = file_error(file, "mapped");
    } else {
      mapped.data_ = static_cast<const uint8_t*>(data);
    }
  }
  ::close(descriptor);
  if (!status.ok()) return status;
  return mapped;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), bytes_);
}

}  // namespace sennit::trainer
