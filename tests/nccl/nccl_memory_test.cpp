// nccl_memory_test.cpp: memory in NCCL's interface: a driver that is too old for a device's is
// named, streams are awaited where there are some, and handles of registrations and windows that
// are none are errors. CUDA's driver is fake_cuda.c.
// ctest links: nccl_forwarder
// ctest runs: sennit_nccl fake_cuda
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/nccl/nccl_ranks.hpp"

using sennit_test::text;

namespace {

// As in fake_cuda.c.
struct Answers {
  const char* device_memory;
  size_t device_bytes;
  int stream_error;
  int streams_awaited;
};
constexpr int kNotInitialized = 3;
constexpr int kNoDevice = 100;
constexpr int kInvalidContext = 201;
constexpr int kIllegalAddress = 700;

class NcclMemory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << text(); }
  void TearDown() override { EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess); }

  ncclResult_t sum(void* in, void* out, cudaStream_t stream) {
    return ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm, stream);
  }

  ncclComm_t comm = nullptr;
};

class NcclDeviceMemory : public NcclMemory {
 protected:
  void SetUp() override {
    NcclMemory::SetUp();
    void* const driver = dlopen(SENNIT_BINARY_DIR "/tests/fake_cuda/libcuda.so.1", RTLD_NOW);
    ASSERT_NE(driver, nullptr) << dlerror();
    answers = static_cast<Answers*>(dlsym(driver, "fake_cuda_answers"));
    ASSERT_NE(answers, nullptr);
    *answers = {};
  }

  Answers* answers = nullptr;
};

// The driver has two functions.
TEST_F(NcclDeviceMemory, OfADriverThatIsTooOldIsAnErrorThatSaysSo) {
  std::vector<int> device(8), host(8, 1);
  answers->device_memory = reinterpret_cast<const char*>(device.data());
  answers->device_bytes = device.size() * sizeof(int);
  for (const bool sends : {false, true}) {
    void* const in = sends ? &device[3] : host.data();
    void* const out = sends ? host.data() : &device[3];
    EXPECT_EQ(sum(in, out, nullptr), ncclInvalidUsage);
    EXPECT_NE(text().find("it is too old"), std::string::npos) << text();
  }
  ncclRedOp_t op;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, device.data(), ncclInt32, ncclScalarDevice, comm),
            ncclSuccess);
  for (void* const memory : {&device[3], &host[0]}) {  // whatever the call is on
    EXPECT_EQ(ncclAllReduce(memory, memory, 1, ncclInt32, op, comm, nullptr), ncclInvalidUsage);
    EXPECT_NE(text().find("it is too old"), std::string::npos) << text();
  }
  EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(sum(host.data(), device.data(), nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(sum(host.data(), host.data(), nullptr), ncclSuccess) << text();
}

// The host reads it while the operation is made.
TEST_F(NcclDeviceMemory, AScalarThatTheHostIsToReadIsNotOnADevice) {
  std::vector<int> device(1);
  answers->device_memory = reinterpret_cast<const char*>(device.data());
  answers->device_bytes = sizeof(int);
  ncclRedOp_t op;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, device.data(), ncclInt32, ncclScalarHostImmediate, comm),
            ncclInvalidUsage);
  EXPECT_NE(text().find("say ncclScalarDevice"), std::string::npos) << text();
}

TEST_F(NcclDeviceMemory, OfAProcessWithoutAContextThereIsNoStreamToWaitFor) {
  int x = 1;
  auto* const named = reinterpret_cast<cudaStream_t>(&x);
  EXPECT_EQ(sum(&x, &x, named), ncclSuccess) << text();
  EXPECT_EQ(answers->streams_awaited, 1);
  for (const int error : {kNotInitialized, kNoDevice, kInvalidContext}) {
    answers->stream_error = error;
    EXPECT_EQ(sum(&x, &x, nullptr), ncclSuccess) << error << ": " << text();
  }
  EXPECT_EQ(sum(&x, &x, named), ncclUnhandledCudaError) << "it has a context, and an order";
  answers->stream_error = kIllegalAddress;
  EXPECT_EQ(sum(&x, &x, nullptr), ncclUnhandledCudaError);
  EXPECT_NE(text().find("CUDA error 700"), std::string::npos) << text();
}

TEST_F(NcclMemory, HandlesThatAreNoneAreErrors) {
  std::vector<int> memory(8);
  void *handle = nullptr, *other = nullptr, *behind = nullptr;
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclCommRegister(comm, memory.data(), 8, &handle), ncclSuccess);
  ASSERT_EQ(ncclCommRegister(comm, memory.data(), 8, &other), ncclSuccess);
  ASSERT_EQ(ncclCommWindowRegister(comm, memory.data(), 8, &window, 0), ncclSuccess);
  EXPECT_NE(handle, other);
  EXPECT_EQ(ncclCommDeregister(comm, window), ncclInvalidArgument) << "it is a window";
  EXPECT_EQ(ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(handle)), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDeregister(comm, memory.data()), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDeregister(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDeregister(comm, handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidArgument);
  EXPECT_NE(text().find("deregistered before"), std::string::npos) << text();
  EXPECT_EQ(ncclWinGetUserPtr(comm, window, &behind), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);
  EXPECT_EQ(ncclWinGetUserPtr(comm, window, &behind), ncclInvalidArgument);
  // A handle of one communicator is none of another's.
  ncclComm_t elsewhere = nullptr;
  ASSERT_EQ(ncclCommInitAll(&elsewhere, 1, nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(elsewhere, other), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(elsewhere), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(comm, other), ncclSuccess);
}

}  // namespace
