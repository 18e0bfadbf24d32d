// hardware.cpp: the table of accelerators, every figure beside the document that prints it, and the
// search in it. See forecast/hardware.hpp.
#include "forecast/hardware.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "topology/text/scan.hpp"

namespace sennit::forecast {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kGibi = 1024.0 * 1024 * 1024;

constexpr const char kH100[] = "NVIDIA H100 Tensor Core GPU data sheet (2023), SXM";
constexpr const char kH100Half[] =
    "NVIDIA H100 Tensor Core GPU data sheet (2023), SXM; half of the figure with sparsity";
constexpr const char kH100Links[] =
    "NVIDIA H100 Tensor Core GPU data sheet (2023), SXM: NVLink 900 GB/s, both directions together";
constexpr const char kDgxH100[] =
    "NVIDIA DGX H100 data sheet (2023): 8 ConnectX-7 of 400 Gb/s for 8 GPUs";
constexpr const char kDgxH100Power[] =
    "NVIDIA DGX H100 data sheet (2023): 10.2 kW at most for 8 GPUs";
constexpr const char kH200[] = "NVIDIA H200 Tensor Core GPU data sheet (2024), SXM";
constexpr const char kH200Half[] =
    "NVIDIA H200 Tensor Core GPU data sheet (2024), SXM; half of the figure with sparsity";
constexpr const char kH200Links[] =
    "NVIDIA H200 Tensor Core GPU data sheet (2024), SXM: NVLink 900 GB/s, both directions together";
constexpr const char kDgxH200[] =
    "NVIDIA DGX H200 data sheet (2024): 8 ConnectX-7 of 400 Gb/s for 8 GPUs";
constexpr const char kDgxH200Power[] =
    "NVIDIA DGX H200 data sheet (2024): 10.2 kW at most for 8 GPUs";
constexpr const char kBlackwell[] =
    "NVIDIA Blackwell Architecture Technical Brief (2024), HGX B200 at 1,000 W";
constexpr const char kBlackwellHalf[] =
    "NVIDIA Blackwell Architecture Technical Brief (2024), HGX B200 at 1,000 W; half of the figure "
    "with sparsity";
constexpr const char kBlackwellLinks[] =
    "NVIDIA Blackwell Architecture Technical Brief (2024): NVLink 1.8 TB/s, both directions "
    "together";
constexpr const char kDgxB200[] =
    "NVIDIA DGX B200 data sheet (2024): 8 ports of 400 Gb/s for 8 GPUs";
constexpr const char kDgxB200Memory[] =
    "NVIDIA DGX B200 data sheet (2024): 1,440 GB at 64 TB/s for 8 GPUs";
constexpr const char kDgxB200Power[] =
    "NVIDIA DGX B200 data sheet (2024): about 14.3 kW at most for 8 GPUs";
constexpr const char kA100[] = "NVIDIA A100 Tensor Core GPU data sheet (2021), 80GB SXM";
constexpr const char kA100Links[] =
    "NVIDIA A100 Tensor Core GPU data sheet (2021), 80GB SXM: NVLink 600 GB/s, both directions "
    "together";
constexpr const char kDgxA100[] =
    "NVIDIA DGX A100 data sheet (2021): 8 ConnectX-6 of 200 Gb/s for 8 GPUs";
constexpr const char kDgxA100Power[] =
    "NVIDIA DGX A100 data sheet (2021): 6.5 kW at most for 8 GPUs";
constexpr const char kL40s[] = "NVIDIA L40S data sheet (2023)";
constexpr const char kL40sLinks[] =
    "NVIDIA L40S data sheet (2023): PCIe 4.0 x16, 64 GB/s both directions together; no NVLink";
constexpr const char kMi250x[] = "AMD Instinct MI200 series data sheet (2022), MI250X";
constexpr const char kMi250xVector[] =
    "AMD Instinct MI200 series data sheet (2022), MI250X, vector";
constexpr const char kMi250xLinks[] =
    "AMD Instinct MI200 series data sheet (2022), MI250X: 8 external Infinity Fabric links, up to "
    "800 GB/s both directions together";
constexpr const char kFrontier[] =
    "Atchley et al., Frontier: Exploring Exascale (SC 2023): 4 Slingshot NICs of 200 Gb/s for 4 "
    "MI250X";
constexpr const char kMi300x[] = "AMD Instinct MI300X data sheet (2023)";
constexpr const char kMi300xLinks[] =
    "AMD Instinct MI300X data sheet (2023): 7 Infinity Fabric links of 128 GB/s, both directions "
    "together";
constexpr const char kTpu[] = "Google Cloud TPU v4 documentation (2023)";
constexpr const char kTpuLinks[] =
    "Jouppi et al., TPU v4 (ISCA 2023), table 4: 6 ICI links of 50 GB/s, each direction";
constexpr const char kTpuPower[] = "Google Cloud TPU v4 documentation (2023): the highest measured";

// A 400 Gb/s port is 50 GB/s.
constexpr Accelerator kAccelerators[] = {{"h100",
                                          "NVIDIA H100 SXM 80 GB",
                                          {67 * kTera, kH100},
                                          {494.7 * kTera, kH100Half},
                                          {989.4 * kTera, kH100Half},
                                          {989.4 * kTera, kH100Half},
                                          {1978.9 * kTera, kH100Half},
                                          {1978.9 * kTera, kH100Half},
                                          {80 * kGiga, kH100},
                                          {3350 * kGiga, kH100},
                                          {450 * kGiga, kH100Links},
                                          {50 * kGiga, kDgxH100},
                                          {700, kH100},
                                          {1275, kDgxH100Power}},
                                         {"h200",
                                          "NVIDIA H200 SXM 141 GB",
                                          {67 * kTera, kH200},
                                          {494.7 * kTera, kH200Half},
                                          {989.4 * kTera, kH200Half},
                                          {989.4 * kTera, kH200Half},
                                          {1978.9 * kTera, kH200Half},
                                          {1978.9 * kTera, kH200Half},
                                          {141 * kGiga, kH200},
                                          {4800 * kGiga, kH200},
                                          {450 * kGiga, kH200Links},
                                          {50 * kGiga, kDgxH200},
                                          {700, kH200},
                                          {1275, kDgxH200Power}},
                                         {"b200",
                                          "NVIDIA B200 (HGX, 1,000 W)",
                                          {80 * kTera, kBlackwell},
                                          {1100 * kTera, kBlackwellHalf},
                                          {2250 * kTera, kBlackwellHalf},
                                          {2250 * kTera, kBlackwellHalf},
                                          {4500 * kTera, kBlackwellHalf},
                                          {4500 * kTera, kBlackwellHalf},
                                          {180 * kGiga, kDgxB200Memory},
                                          {8000 * kGiga, kDgxB200Memory},
                                          {900 * kGiga, kBlackwellLinks},
                                          {50 * kGiga, kDgxB200},
                                          {1000, kBlackwell},
                                          {1787.5, kDgxB200Power}},
                                         {"a100",
                                          "NVIDIA A100 SXM 80 GB",
                                          {19.5 * kTera, kA100},
                                          {156 * kTera, kA100},
                                          {312 * kTera, kA100},
                                          {312 * kTera, kA100},
                                          {},
                                          {624 * kTera, kA100},
                                          {80 * kGiga, kA100},
                                          {2039 * kGiga, kA100},
                                          {300 * kGiga, kA100Links},
                                          {25 * kGiga, kDgxA100},
                                          {400, kA100},
                                          {812.5, kDgxA100Power}},
                                         {"l40s",
                                          "NVIDIA L40S 48 GB",
                                          {91.6 * kTera, kL40s},
                                          {183 * kTera, kL40s},
                                          {362.05 * kTera, kL40s},
                                          {362.05 * kTera, kL40s},
                                          {733 * kTera, kL40s},
                                          {733 * kTera, kL40s},
                                          {48 * kGiga, kL40s},
                                          {864 * kGiga, kL40s},
                                          {32 * kGiga, kL40sLinks},
                                          {},
                                          {350, kL40s},
                                          {}},
                                         {"mi250x",
                                          "AMD Instinct MI250X (both dies)",
                                          {47.9 * kTera, kMi250xVector},
                                          {},
                                          {383 * kTera, kMi250x},
                                          {383 * kTera, kMi250x},
                                          {},
                                          {383 * kTera, kMi250x},
                                          {128 * kGiga, kMi250x},
                                          {3276.8 * kGiga, kMi250x},
                                          {400 * kGiga, kMi250xLinks},
                                          {25 * kGiga, kFrontier},
                                          {560, kMi250x},
                                          {}},
                                         {"mi300x",
                                          "AMD Instinct MI300X",
                                          {163.4 * kTera, kMi300x},
                                          {653.7 * kTera, kMi300x},
                                          {1307.4 * kTera, kMi300x},
                                          {1307.4 * kTera, kMi300x},
                                          {2614.9 * kTera, kMi300x},
                                          {2614.9 * kTera, kMi300x},
                                          {192 * kGiga, kMi300x},
                                          {5300 * kGiga, kMi300x},
                                          {448 * kGiga, kMi300xLinks},
                                          {},
                                          {750, kMi300x},
                                          {}},
                                         {"tpu-v4",
                                          "Google TPU v4",
                                          {},
                                          {},
                                          {275 * kTera, kTpu},
                                          {},
                                          {},
                                          {275 * kTera, kTpu},
                                          {32 * kGibi, kTpu},
                                          {1200 * kGiga, kTpu},
                                          {300 * kGiga, kTpuLinks},
                                          {},
                                          {192, kTpuPower},
                                          {}}};

}  // namespace

std::span<const Accelerator> accelerators() { return kAccelerators; }

Result<Accelerator> find_accelerator(std::string_view name) {
  std::string known;
  for (const Accelerator& accelerator : kAccelerators) {
    if (lower(name) == accelerator.name) return accelerator;
    known += (known.empty() ? "" : ", ") + std::string(accelerator.name);
  }
  return invalid(fmt::format("there is no accelerator '{}' in the table; it has {}", name, known));
}

}  // namespace sennit::forecast
