// device_calls.hpp: what tests of calls on device memory share: buffers of the software GPU, every
// collective by name, and a fixture that has a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "sennit/sennit.h"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"

namespace sennit_test {

// A device's buffer, with what the host put there.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const std::vector<std::byte>& content) : bytes_(content.size()) {
    EXPECT_EQ(cuMemAlloc_v2(&address_, std::max<size_t>(bytes_, 1)), 0);
    soft_gpu_write(data(), content.data(), bytes_);
  }
  // To free it waits for the kernels of all ranks.
  ~DeviceBuffer() { cuMemFree_v2(address_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  CUdeviceptr address() const { return address_; }
  std::vector<std::byte> read() const {
    std::vector<std::byte> content(bytes_);
    soft_gpu_read(content.data(), data(), bytes_);
    return content;
  }

 private:
  size_t bytes_;
  CUdeviceptr address_ = 0;
};

// n of them.
inline std::vector<std::byte> random_bytes(size_t n, std::mt19937_64& random) {
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One call by name: how many elements it sends and receives on each of n ranks where `count` is
// given, and the call.
struct Collective {
  const char* name;
  size_t sent_blocks, received_blocks;  // 0: one; else one for each rank
  sennit_status_t (*call)(const void* send, void* recv, size_t count, sennit_type_t type,
                          sennit_op_t op, sennit_comm_t comm);
};
inline const Collective kCollectives[] = {
    {"all_reduce", 0, 0,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t o, sennit_comm_t c) {
       return sennit_all_reduce(s, r, n, t, o, c);
     }},
    {"reduce_scatter", 1, 0,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t o, sennit_comm_t c) {
       return sennit_reduce_scatter(s, r, n, t, o, c);
     }},
    {"all_gather", 0, 1,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t, sennit_comm_t c) {
       return sennit_all_gather(s, r, n, t, c);
     }},
    {"broadcast", 0, 0,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t, sennit_comm_t c) {
       return sennit_broadcast(s, r, n, t, 1, c);
     }},
    {"reduce", 0, 0,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t o, sennit_comm_t c) {
       return sennit_reduce(s, r, n, t, o, 2, c);
     }},
    {"all_to_all", 1, 1,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t, sennit_comm_t c) {
       return sennit_all_to_all(s, r, n, t, c);
     }},
    {"gather", 0, 1,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t, sennit_comm_t c) {
       return sennit_gather(s, r, n, t, 0, c);
     }},
    {"scatter", 1, 0,
     [](const void* s, void* r, size_t n, sennit_type_t t, sennit_op_t, sennit_comm_t c) {
       return sennit_scatter(s, r, n, t, 1, c);
     }},
};

// The parameter is the transport that messages take.
class DeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    setenv("SENNIT_TRANSPORTS", GetParam(), 1);
    setenv("SENNIT_INTERFACE", "127.0.0.1", 1);
    ASSERT_EQ(cuInit(0), 0);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), 0);
    ASSERT_EQ(cuCtxSetCurrent(context_), 0);
  }
  void TearDown() override { unsetenv("SENNIT_TRANSPORTS"); }

  // A rank's thread begins with this.
  CUstream stream() {
    CUstream made = nullptr;
    EXPECT_EQ(cuCtxSetCurrent(context_), 0);
    EXPECT_EQ(cuStreamCreate(&made, 1), 0);
    return made;
  }
  CUcontext context_ = nullptr;
};

}  // namespace sennit_test
