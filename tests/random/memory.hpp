// memory.hpp: a buffer of a call, from one of the kinds of memory that there are, with a margin on
// both sides that must stay as it is.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sennit/sennit.h"
#include "tests/random/contents.hpp"

namespace random_programs {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Memory kind, size_t bytes, sennit_comm_t comm) : kind_(kind), bytes_(bytes) {
    const size_t whole = (bytes + 2 * kMargin + 4095) / 4096 * 4096;
    if (kind == Memory::sennit && sennit_mem_alloc(comm, whole, &base_) != SENNIT_OK)
      kind_ = Memory::plain;
    if (kind_ != Memory::sennit) base_ = std::aligned_alloc(4096, whole);
    if (kind == Memory::registered && sennit_mem_register(comm, base_, whole) != SENNIT_OK)
      kind_ = Memory::plain;
    at_ = static_cast<unsigned char*>(base_) + kMargin + (kind == Memory::odd ? 1 + bytes % 7 : 0);
    std::memset(base_, kFill, static_cast<size_t>(at_ - static_cast<unsigned char*>(base_)));
    std::memset(at_ + bytes_, kFill, kMargin / 2);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bytes_, other.bytes_);
    std::swap(base_, other.base_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~Buffer() {
    if (kind_ == Memory::plain || kind_ == Memory::odd) std::free(base_);
  }
  // Memory that the library knows goes back through a communicator; without one (NULL) it stays
  // until the job ends.
  sennit_status_t give_back(sennit_comm_t comm) {
    sennit_status_t status = SENNIT_OK;
    if (base_ == nullptr || comm == nullptr) return status;
    if (kind_ == Memory::sennit) status = sennit_mem_free(comm, base_);
    if (kind_ == Memory::registered) {
      status = sennit_mem_deregister(comm, base_);
      if (status == SENNIT_OK) std::free(base_);
    }
    if (kind_ == Memory::sennit || kind_ == Memory::registered) base_ = nullptr;
    return status;
  }
  unsigned char* at() const { return at_; }
  size_t size() const { return bytes_; }
  bool margins_are_whole() const {
    const auto whole = [](const unsigned char* from, const unsigned char* to) {
      return std::all_of(from, to, [](unsigned char c) { return c == kFill; });
    };
    if (base_ == nullptr) return true;
    return whole(at_ - kMargin, at_) && whole(at_ + bytes_, at_ + bytes_ + kMargin / 2);
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr unsigned char kFill = 0x5A;
  Memory kind_ = Memory::plain;
  size_t bytes_ = 0;
  void* base_ = nullptr;
  unsigned char* at_ = nullptr;
};

}  // namespace random_programs
