// direct_write.cpp: see trainer/base/direct_write.hpp.
#include "trainer/base/direct_write.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/core.h>

#include "trainer/base/files.hpp"

namespace sennit::trainer {
namespace {

constexpr size_t kChunk = 16 << 20, kSmallPiece = 1 << 20;

size_t rounded(size_t bytes) {
  return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

Status write_chunks(int descriptor, const std::string& file, const char* data, size_t bytes,
                    const std::function<void(size_t)>& wrote) {
  const size_t chunk = wrote ? kSmallPiece : kChunk;
  for (size_t at = 0; at < bytes;) {
    const ssize_t written =
        ::pwrite(descriptor, data + at, std::min(chunk, bytes - at), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(file, "written");
    at += static_cast<size_t>(written);
    if (wrote) wrote(at);
  }
  return {};
}

}  // namespace

DirectBuffer::~DirectBuffer() {
  if (data_) ::munmap(data_, bytes_);
}

Status DirectBuffer::reserve(size_t bytes) {
  if (rounded(bytes) <= bytes_) return {};
  if (data_) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  void* memory =
      ::mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("no {} bytes of memory for the copy that a checkpoint is written from",
                        rounded(bytes))};
  data_ = static_cast<char*>(memory);
  bytes_ = rounded(bytes);
  ::madvise(memory, bytes_, MADV_HUGEPAGE);  // fewer faults; where there are none, nothing is lost
  return {};
}

Status write_directly(const std::string& file, const DirectBuffer& buffer, size_t bytes,
                      const std::function<void(size_t)>& wrote) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  int descriptor = ::open(file.c_str(), kFlags | O_DIRECT, 0644);
  const bool direct = descriptor >= 0;
  if (!direct && errno == EINVAL) {
    ::unlink(file.c_str());  // it may have been made before it was refused
    descriptor = ::open(file.c_str(), kFlags, 0644);
  }
  if (descriptor < 0) return file_error(file, "made");
  Status status =
      write_chunks(descriptor, file, buffer.data(), direct ? rounded(bytes) : bytes, wrote);
  if (status.ok() && direct && ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
    status = file_error(file, "cut to its length");
  if (status.ok() && ::fsync(descriptor) != 0) status = file_error(file, "made durable");
  ::close(descriptor);
  return status;
}

}  // namespace sennit::trainer
