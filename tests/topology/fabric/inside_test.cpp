// inside_test.cpp: the devices inside a host, from made-up records: verbs, NVML, and what they
// share. On a machine that has none, their sources must say nothing.
//
// ctest not-under-tsan: it has one thread
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "topology/fabric/inside.hpp"
#include "topology/source.hpp"
#include "topology/sources/nvml.hpp"
#include "topology/sources/verbs.hpp"

namespace sennit {
namespace {

TEST(Inside, PcieAndNvlinkRates) {
  EXPECT_EQ(pcie_rate(2'500, 1), 250'000'000u);
  EXPECT_EQ(pcie_rate(8'000, 16), 15'753'846'153u);
  EXPECT_EQ(pcie_rate(16'000, 16), 31'507'692'307u);
  EXPECT_EQ(pcie_rate(64'000, 16), 121'000'000'000u);
  EXPECT_EQ(pcie_rate(16'000, 0), 0u);
  EXPECT_EQ(nvlink_rate(90), 25'000'000'000u);
  EXPECT_EQ(nvlink_rate(75), 0u);
}

TEST(Inside, BusIds) {
  EXPECT_EQ(normal_bus_id("00000000:C7:00.0"), "0000:c7:00.0");
  EXPECT_EQ(normal_bus_id("0000:07:00.0"), "0000:07:00.0");
  EXPECT_EQ(normal_bus_id("00010000:07:00.0"), "00010000:07:00.0")
      << "a domain of more than 16 bits";
}

// Devices called alike, bus ids that are not there: whatever the record, the fabric can be written
// and read.
TEST(Inside, OddRecordsGiveSoundFabrics) {
  HostRecord record;
  record.host = "h";
  record.gpus = {{0, "a", 0, 0, "", {{"a", 3, 5}, {"b", 1, 5}, {"nowhere", 2, 0}}, false},
                 {0, "b", 1, 7, "", {{"a", 1, 5}}, false}};
  record.nics = {{"m", "", -1, 0, 9, ""}, {"m", "", 3, 8, 0, ""}};
  for (const bool several : {false, true}) {
    record.several_numa = several;
    const std::string text = fabric_of(record).to_text();
    const Result<Fabric> again = parse_fabric(text, "again");
    ASSERT_TRUE(again.ok()) << again.status().text() << "\n" << text;
    EXPECT_EQ(again->to_text(), text);
  }
}

TEST(Inside, FromTheKernelsFiles) {
  char pattern[] = "/tmp/sennit_inside_XXXXXX";
  const std::filesystem::path root = mkdtemp(pattern);
  const auto folder = [&](const std::string& path) {
    std::filesystem::create_directories(root / path);
  };
  folder("devices/system/node/node0");
  folder("devices/system/node/power");
  EXPECT_FALSE(several_numa_from_sysfs(root));
  folder("devices/system/node/node3");
  EXPECT_TRUE(several_numa_from_sysfs(root));
  folder("bus/pci/devices/0000:07:00.0");
  std::ofstream(root / "bus/pci/devices/0000:07:00.0/numa_node") << "3\n";
  EXPECT_EQ(numa_from_sysfs(root, "/bus/pci/devices/0000:07:00.0"), 3);
  EXPECT_EQ(numa_from_sysfs(root, "/bus/pci/devices/absent"), -1);
  folder("class/net/eth0/device/infiniband/mlx5_0");
  folder("class/net/eth1/device");
  EXPECT_EQ(nic_name_from_sysfs(root, "eth0"), "mlx5_0");
  EXPECT_EQ(nic_name_from_sysfs(root, "eth1"), "eth1");
  EXPECT_EQ(nic_name_from_sysfs(root, "absent"), "absent");
  std::filesystem::remove_all(root);
}

// Four GPUs, each joined with each of the others by 4 NVLinks, two to a socket.
TEST(Nvml, GpusJoinedWithEachOther) {
  std::vector<NvmlGpu> gpus(4);
  const auto id = [](size_t i) { return "00000000:0" + std::to_string(i + 1) + ":00.0"; };
  for (size_t i = 0; i < gpus.size(); i++) {
    gpus[i].bus_id = id(i);
    gpus[i].pcie_generation = 4;
    gpus[i].pcie_width = 16;
    gpus[i].compute_capability = 80;
    gpus[i].nvlink_mbyte_per_s = 25'781;
    gpus[i].numa = i < 2 ? 0 : 1;
    for (size_t peer = 0; peer < gpus.size(); peer++)
      for (int link = 0; link < 4 && peer != i; link++) gpus[i].links.push_back({true, id(peer)});
  }
  EXPECT_EQ(
      fabric_of(record_of(gpus, "h", true)).to_text(),
      "host h\n"
      "gpu h/gpu0 host h id 0000:01:00.0\nnuma h/numa0 host h\ngpu h/gpu1 host h id 0000:02:00.0\n"
      "gpu h/gpu2 host h id 0000:03:00.0\nnuma h/numa1 host h\ngpu h/gpu3 host h id 0000:04:00.0\n"
      "link h/gpu0 h 309.372GB/s cables 12 declared\nlink h/gpu0 h/numa0 31507692307B/s declared\n"
      "link h/gpu1 h 309.372GB/s cables 12 declared\nlink h/gpu1 h/numa0 31507692307B/s declared\n"
      "link h/gpu2 h 309.372GB/s cables 12 declared\nlink h/gpu2 h/numa1 31507692307B/s declared\n"
      "link h/gpu3 h 309.372GB/s cables 12 declared\nlink h/gpu3 h/numa1 31507692307B/s declared\n"
      "link h/gpu0 h/gpu1 824.992Gbit/s cables 4 declared\nlink h/gpu0 h/gpu2 824.992Gbit/s cables "
      "4 "
      "declared\n"
      "link h/gpu0 h/gpu3 824.992Gbit/s cables 4 declared\nlink h/gpu1 h/gpu2 824.992Gbit/s cables "
      "4 "
      "declared\n"
      "link h/gpu1 h/gpu3 824.992Gbit/s cables 4 declared\nlink h/gpu2 h/gpu3 824.992Gbit/s cables "
      "4 "
      "declared\n");
}

// Eighteen links into NVSwitches, at a rate that the driver does not say; a GPU of which nothing is
// known.
TEST(Nvml, NvswitchesAndUnknowns) {
  std::vector<NvmlGpu> gpus(2);
  gpus[0].bus_id = "00000000:1B:00.0";
  gpus[0].pcie_generation = 5;
  gpus[0].pcie_width = 16;
  gpus[0].compute_capability = 90;
  gpus[0].numa = 0;
  gpus[0].links.assign(18, {false, "00000000:05:00.0"});
  EXPECT_EQ(
      fabric_of(record_of(gpus, "h", true)).to_text(),
      "host h\ngpu h/gpu0 host h id 0000:1b:00.0\nnuma h/numa0 host h\ngpu h/gpu1 host h\n"
      "link h/gpu0 h 3.6Tbit/s cables 18 assumed\nlink h/gpu0 h/numa0 63015384615B/s declared\n"
      "link h/gpu1 h unknown\n");
}

TEST(Nvml, AbsentWithoutHarm) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is an NVIDIA driver here";
  EXPECT_TRUE(read_nvml_gpus().empty());
  for (const Source& source : sources()) {
    if (source.name != "nvml") continue;
    EXPECT_FALSE(source.read({"here", ""}).value().has_value());
  }
}

TEST(Verbs, Rates) {
  const auto rate = [](int width_code, int speed_code, bool ethernet) {
    return verbs_rate({1, true, ethernet, 0, "", width_code, speed_code}) * 8;
  };
  EXPECT_EQ(rate(2, 32, false), 100'000'000'000u) << "4x EDR";
  EXPECT_EQ(rate(2, 64, false), 200'000'000'000u) << "4x HDR";
  EXPECT_EQ(rate(2, 128, false), 400'000'000'000u) << "4x NDR";
  EXPECT_EQ(rate(1, 64, false), 50'000'000'000u) << "1x HDR: a degraded port";
  EXPECT_EQ(rate(2, 1, false), 8'000'000'000u) << "4x SDR";
  EXPECT_EQ(rate(2, 1, true), 10'000'000'000u) << "10GbE";
  EXPECT_EQ(rate(1, 32, true), 25'000'000'000u) << "25GbE";
  EXPECT_EQ(rate(2, 128, true), 400'000'000'000u) << "400GbE";
  EXPECT_EQ(rate(3, 32, false), 0u) << "no such width";
  EXPECT_EQ(rate(2, 33, false), 0u) << "no such speed";
}

TEST(Verbs, AdaptersNearTheirNumaNodes) {
  const std::vector<VerbsDevice> devices = {
      {"mlx5_0", 0x0008f10403961354, 0, {{1, true, false, 4, "", 2, 64}}},
      {"mlx5_1",
       0x0008f10403961355,
       1,
       {{1, true, false, 5, "", 1, 64}, {2, false, false, 0, "", 2, 1}}},
      {"mlx5_bond_0", 0, -1, {{1, true, true, 0, "", 2, 32}}},
      {"irdma0", 0x10, 1, {}}};
  EXPECT_EQ(
      fabric_of(devices, "h", true).to_text(),
      "host h\nnic h/mlx5_0 host h id 0x0008f10403961354\nnuma h/numa0 host h\n"
      "nic h/mlx5_1 host h id 0x0008f10403961355\nnuma h/numa1 host h\nnic h/mlx5_bond_0 host h\n"
      "nic h/irdma0 host h id 0x0000000000000010\n"
      "link h/numa0 h/mlx5_0 200Gbit/s over infiniband declared\n"
      "link h/numa1 h/mlx5_1 50Gbit/s over infiniband declared\n"
      "link h h/mlx5_bond_0 100Gbit/s over roce declared\nlink h/numa1 h/irdma0 unknown\n"
      "note \"h/mlx5_1: port 2 is not active\"\n");
}

// What the subnet calls by its GUID alone is this host's, and takes its name.
TEST(Verbs, MeetTheSubnetByGuid) {
  const Fabric subnet = parse_fabric(
                            "switch leaf\nhost Hca2\nnic Hca2/1 host Hca2 id 0x0008f10403961354\n"
                            "link Hca2/1 leaf 200Gbit/s\n",
                            "subnet")
                            .value();
  const Fabric here =
      fabric_of({{"mlx5_0", 0x0008f10403961354, 0, {{1, true, false, 4, "", 2, 64}}}}, "n7", false);
  const Fabric merged = merge(subnet, here, "verbs");
  EXPECT_EQ(merged.to_text(),
            "switch leaf\nhost n7\nnic n7/1 host n7 id 0x0008f10403961354\nlink n7/1 leaf "
            "200Gbit/s declared\n"
            "link n7 n7/1 200Gbit/s over infiniband declared source verbs\n");
}

TEST(Verbs, AbsentWithoutHarm) {
  if (std::filesystem::exists("/sys/class/infiniband"))
    GTEST_SKIP() << "there may be adapters here";
  for (const Source& source : sources()) {
    if (source.name != "verbs") continue;
    EXPECT_FALSE(source.read({"here", ""}).value().has_value());
  }
}

}  // namespace
}  // namespace sennit
