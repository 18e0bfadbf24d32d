// nccl_abi_test.cpp: what sennit declares anew of NCCL's binary interface is what NVIDIA's header
// says, of whichever version that is.
// ctest needs: NCCL_HEADER
// ctest links: nccl_abi_facts nccl_forwarder
// ctest runs: sennit_nccl
#include <gtest/gtest.h>

#include <cstring>

#include "nccl/exported.hpp"

extern "C" {
struct AbiFact {
  const char* name;
  long long value;
};
const AbiFact* abi_of_nvidia();
const AbiFact* abi_of_sennit();
const void* config_of_nvidia();
}

namespace {

TEST(NcclAbi, IsThatOfNvidiasHeader) {
  const AbiFact* its = abi_of_nvidia();
  const AbiFact* own = abi_of_sennit();
  for (; its->name && own->name; its++, own++) {
    EXPECT_STREQ(own->name, its->name);
    EXPECT_EQ(own->value, its->value) << own->name;
  }
  EXPECT_EQ(its->name, own->name) << "both lists end here";
}

TEST(NcclAbi, AConfigOfNvidiasHeaderIsRead) {
  ncclConfig_t config{};
  std::memcpy(&config, config_of_nvidia(), sizeof(size_t));
  ASSERT_GE(config.size, offsetof(ncclConfig_t, blocking) + sizeof config.blocking);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(
                &comm, 1, id, 0, static_cast<ncclConfig_t*>(const_cast<void*>(config_of_nvidia()))),
            ncclSuccess)
      << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
