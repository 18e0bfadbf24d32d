// device_calls.hpp: what tests of calls on device memory share: buffers of the software GPU, every
// collective by name, and a fixture that has a device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "api/c_api.hpp"
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

// What a rank has for a call: on the host, and a buffer of the device for each.
struct CallBuffers {
  CallBuffers(const Collective& collective, size_t count, sennit_type_t type, size_t ranks)
      : sent(count * sennit_type_bytes(type) * (collective.sent_blocks ? ranks : 1)),
        received(count * sennit_type_bytes(type) * (collective.received_blocks ? ranks : 1)) {}
  void draw(std::mt19937_64& random) {
    sent = random_bytes(sent.size(), random);
    soft_gpu_write(from->data(), sent.data(), sent.size());
  }
  // To free memory waits for the kernels of all ranks, and a rank that waits launches none.
  void free(sennit_comm_t comm) {
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
    from.reset();
    to.reset();
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
  }
  std::vector<std::byte> sent, received;
  std::unique_ptr<DeviceBuffer> from = std::make_unique<DeviceBuffer>(sent);
  std::unique_ptr<DeviceBuffer> to = std::make_unique<DeviceBuffer>(received);
};

// Makes the same call on host memory and on the device's. What is wrong, or nothing.
inline std::string difference(const Collective& collective, size_t count, sennit_type_t type,
                              sennit_op_t op, sennit_comm_t comm, CUstream stream,
                              std::mt19937_64& random) {
  int ranks = 0;
  if (sennit_comm_size(comm, &ranks) != SENNIT_OK) return sennit_last_error();
  CallBuffers buffers(collective, count, type, static_cast<size_t>(ranks));
  buffers.draw(random);
  const std::string what = fmt::format(
      "{} of {} elements of type {}, operation {}: ", collective.name, count, int(type), int(op));
  if (collective.call(buffers.sent.data(), buffers.received.data(), count, type, op, comm) !=
          SENNIT_OK ||
      collective.call(buffers.from->data(), buffers.to->data(), count, type, op, comm) !=
          SENNIT_OK ||
      cuStreamSynchronize(stream) != 0 || sennit_comm_get_async_error(comm) != SENNIT_OK)
    return what + sennit_last_error();
  if (buffers.to->read() != buffers.received) return what + "other bits than the host's";
  buffers.free(comm);
  return "";
}

// How many messages this rank has read in a peer's device.
inline uint64_t read_in_devices(sennit_comm_t comm) {
  const std::string counts = comm->communicator->context().engine().statistics();
  uint64_t all = 0;
  const std::string name = "of devices ";
  for (size_t at = 0; (at = counts.find(name, at)) != std::string::npos;)
    all += std::stoull(counts.substr(at += name.size()));
  return all;
}

// Numbers of CUstreamCaptureMode. Ranks are threads here, and one may take memory while another
// captures.
inline constexpr int kGlobal = 0, kThreadLocal = 1;

// What `calls` puts into the stream, to be launched again and again.
class CapturedCalls {
 public:
  template <typename Calls>
  CapturedCalls(CUstream stream, Calls&& calls, int mode = kThreadLocal) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture_v2(stream, mode), 0);
    calls();
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), 0);
    EXPECT_EQ(cuGraphInstantiateWithFlags(&graph_, graph, 0), 0);
    EXPECT_EQ(cuGraphDestroy(graph), 0);
  }
  ~CapturedCalls() { EXPECT_EQ(cuGraphExecDestroy(graph_), 0); }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;
  void launch(CUstream stream) const { EXPECT_EQ(cuGraphLaunch(graph_, stream), 0); }

 private:
  CUgraphExec graph_ = nullptr;
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
