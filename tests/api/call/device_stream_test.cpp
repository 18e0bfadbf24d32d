// device_stream_test.cpp: whether a call goes into the stream of its communicator, by whose memory
// it is on.
// ctest not-under-tsan: it has one thread
#include "api/call/device_stream.hpp"

#include <sys/mman.h>

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace sennit {
namespace {

// A device that reaches the memory it was given, and has one stream.
class Device : public Accelerator {
 public:
  std::string_view name() const override { return "device"; }
  Result<MemoryKind> look(const void* memory) override {
    return reached.contains(memory) ? MemoryKind::device : MemoryKind::plain;
  }
  void* handle_of(void* stream) const override { return stream; }
  Result<bool> is_captured(void*) override { return captured; }
  Result<std::unique_ptr<StreamWorker>> make_worker(const StreamOwner&, bool) override {
    return invalid("not asked for here");
  }
  uint32_t most_inputs() const override { return 1; }
  bool alone() const override { return true; }
  uint64_t cache_bytes() const override { return 0; }
  Status copy(void*, void*, const void*, size_t) override { return {}; }
  Status synchronize(void*) override {
    waits++;
    return {};
  }
  Result<std::byte*> allocate(size_t, MemoryKind) override { return invalid("not asked for here"); }
  void free(std::byte*, size_t, MemoryKind) override {}
  bool exports() const override { return false; }
  Result<ExportedMemory> export_memory(const std::byte*) override {
    return invalid("not asked for here");
  }
  Result<std::byte*> import_memory(const ExportedMemory&) override { return nullptr; }
  void end_import(std::byte*) override {}

  std::set<const void*> reached;
  bool captured = false;
  int waits = 0;  // for the stream's end
};

class OnADevice : public testing::Test {
 protected:
  OnADevice() { EXPECT_TRUE(stream_.set(&device_, &a_stream_).ok()); }
  Call sum(const void* send, void* recv) const {
    Call call;
    call.send = send;
    call.recv = recv;
    call.count = 8;
    call.type = DataType::float32;
    return call;
  }

  Device device_;
  char a_stream_ = 0;
  std::vector<float> here_ = std::vector<float>(8), there_ = here_;
  DeviceStream stream_{0};
};

TEST_F(OnADevice, ACallOnItsMemoryGoesIntoTheStream) {
  device_.reached = {there_.data()};
  const StreamTarget target = stream_.target_of(sum(there_.data(), there_.data())).value();
  EXPECT_EQ(target.accelerator, &device_);
  EXPECT_EQ(target.stream, &a_stream_);
  EXPECT_FALSE(target.in_graph);
  EXPECT_EQ(device_.waits, 0);
  device_.captured = true;
  EXPECT_TRUE(stream_.target_of(sum(there_.data(), there_.data())).value().in_graph);
}

TEST_F(OnADevice, ACallOnTheHostsMemoryWaitsForTheStreamAndIsTheHosts) {
  EXPECT_EQ(stream_.target_of(sum(here_.data(), here_.data())).value().accelerator, nullptr);
  EXPECT_EQ(device_.waits, 1);
  Call own = sum(here_.data(), here_.data());
  own.internal = true;
  EXPECT_EQ(stream_.target_of(own).value().accelerator, nullptr);
  EXPECT_EQ(device_.waits, 1) << "the library's own calls are in no stream";
  EXPECT_EQ(DeviceStream(0).target_of(sum(here_.data(), here_.data())).value().accelerator,
            nullptr);
  device_.captured = true;
  EXPECT_EQ(stream_.target_of(sum(here_.data(), here_.data())).status().kind(),
            SENNIT_INVALID_ARGUMENT);
}

TEST_F(OnADevice, MemoryOfTwoKindsIsRefused) {
  device_.reached = {there_.data()};
  EXPECT_EQ(stream_.target_of(sum(here_.data(), there_.data())).status().kind(),
            SENNIT_INVALID_ARGUMENT);
}

// A rank that has no memory in a call goes where the others do.
TEST_F(OnADevice, WithoutMemoryACallIsTheDevices) {
  EXPECT_EQ(stream_.target_of(sum(nullptr, nullptr)).value().accelerator, &device_);
  Call empty = sum(here_.data(), here_.data());
  empty.count = 0;
  EXPECT_EQ(stream_.target_of(empty).value().accelerator, &device_);
  Call barrier;
  barrier.collective = Collective::barrier;
  EXPECT_EQ(stream_.target_of(barrier).value().accelerator, nullptr);
}

TEST_F(OnADevice, MemoryThatIsGoneIsRefusedAndNotTouched) {
  constexpr size_t kBytes = 4096;
  void* const gone =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  EXPECT_TRUE(stream_.target_of(sum(gone, gone)).ok());
  munmap(gone, kBytes);
  EXPECT_EQ(stream_.target_of(sum(gone, gone)).status().kind(), SENNIT_INVALID_ARGUMENT);
}

TEST_F(OnADevice, ACommunicatorHasStreamsOfOneDevice) {
  Device other;
  char stream = 0;
  EXPECT_EQ(stream_.set(&other, &stream).kind(), SENNIT_INVALID_ARGUMENT);
  EXPECT_TRUE(stream_.set(&device_, &stream).ok());
  device_.reached = {there_.data()};
  EXPECT_EQ(stream_.target_of(sum(there_.data(), there_.data())).value().stream, &stream);
}

}  // namespace
}  // namespace sennit
