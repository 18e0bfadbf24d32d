// device.cpp: see command/bench/device.hpp.
#include "command/bench/device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string_view>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/text/json.hpp"
#include "topology/source.hpp"

namespace sennit::bench {
namespace {

constexpr size_t kLeastCopy = 64 << 20, kMostCopy = 512 << 20;
constexpr uint64_t kCachesPerCopy = 8;  // a copy is so many times as large as the cache
constexpr int kCopies = 5;

// Of all ranks, by rank.
Result<std::vector<std::string>> gather(Control& control, const std::string& mine) {
  const Result<std::vector<std::vector<std::byte>>> all =
      control.all_gather(std::as_bytes(std::span(mine)));
  if (!all) return all.status();
  std::vector<std::string> texts;
  for (const std::vector<std::byte>& blob : *all)
    texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
  return texts;
}

Result<int> first_device(int devices) {
  const char* const text = std::getenv("NCCL_TESTS_DEVICE");
  if (!text || !*text) return 0;
  int first = 0;
  const std::string_view all = text;
  const auto [rest, error] = std::from_chars(all.data(), all.data() + all.size(), first);
  if (error != std::errc() || rest != all.data() + all.size() || first < 0 || first >= devices)
    return invalid(
        fmt::format("NCCL_TESTS_DEVICE={}: expected a device from 0 to {}", text, devices - 1));
  return first;
}

// Elements that this rank's buffers cannot but have read or written. In place a rank's own block
// stays where it is.
uint64_t touched(const Case& c) {
  const uint64_t all = c.send_elements() + c.recv_elements();
  switch (c.collective) {
    case Collective::all_gather:
      return all - c.count;
    case Collective::all_to_all:
      return all - 2 * c.count;
    case Collective::gather:
    case Collective::scatter:
      return c.rank == c.root ? all - 2 * c.count : all;
    case Collective::broadcast:
      return c.rank == c.root ? all - c.count : all;
    default:
      return all;
  }
}

}  // namespace

Result<std::unique_ptr<BenchDevice>> BenchDevice::open(Control& control) {
  const Result<int> devices = cuda_devices();
  if (!devices) return devices.status();
  if (*devices == 0) return Status(SENNIT_NOT_FOUND, "this process has no CUDA device");
  const Result<int> first = first_device(*devices);
  if (!first) return first.status();
  const std::string host = this_host();
  const Result<std::vector<std::string>> hosts = gather(control, host);
  if (!hosts) return hosts.status();
  const auto local =
      static_cast<int>(std::count(hosts->begin(), hosts->begin() + control.rank(), host));
  const int device = (*first + local) % *devices;
  const Result<void*> stream = new_cuda_stream(device);
  if (!stream) return stream.status();
  const Result<Accelerator*> accelerator = cuda_device_of(*stream);
  if (!accelerator) return accelerator.status();
  std::unique_ptr<BenchDevice> opened(new BenchDevice(**accelerator, *stream));
  SENNIT_RETURN_IF_ERROR(opened->learn(control, host, device));
  return opened;
}

// Of each device its first rank measures, while all others wait.
Status BenchDevice::learn(Control& control, const std::string& host, int device) {
  const std::string mine = fmt::format("{}/{}", host, device);
  const Result<std::vector<std::string>> names = gather(control, mine);
  if (!names) return names.status();
  std::map<std::string, int> numbers;
  for (const std::string& name : *names)
    device_of_rank_.push_back(numbers.emplace(name, numbers.size()).first->second);
  one_host_ = std::all_of(names->begin(), names->end(), [&](const std::string& name) {
    return name.substr(0, name.rfind('/')) == host;
  });
  double rate = 0;
  if (std::ranges::find(*names, mine) == names->begin() + control.rank()) {
    const Result<double> measured = measured_rate();
    if (!measured) return measured.status();
    rate = *measured;
  }
  const Result<std::vector<std::string>> facts =
      gather(control, fmt::format("[{}, {}]", rate, accelerator_.cache_bytes()));
  if (!facts) return facts.status();
  for (const std::string& text : *facts) {
    const nlohmann::json fact = parse_json(text);
    const double theirs = fact[0];
    if (theirs > 0) bytes_per_s_ = bytes_per_s_ > 0 ? std::min(bytes_per_s_, theirs) : theirs;
    cache_bytes_ = std::max<uint64_t>(cache_bytes_, fact[1]);
  }
  return {};
}

Result<double> BenchDevice::measured_rate() const {
  const size_t bytes =
      std::clamp<size_t>(kCachesPerCopy * accelerator_.cache_bytes(), kLeastCopy, kMostCopy);
  const Result<std::byte*> from = allocate(bytes);
  if (!from) return from.status();
  const Result<std::byte*> to = allocate(bytes);
  if (!to) return to.status();
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < kCopies; i++) {
    const uint64_t begin_ns = now_ns();
    SENNIT_RETURN_IF_ERROR(copy(*to, *from, bytes));
    least_ns = std::min(least_ns, now_ns() - begin_ns);
  }
  free(*from, bytes);
  free(*to, bytes);
  return static_cast<double>(bytes) * 1e9 / static_cast<double>(least_ns);
}

Result<std::byte*> BenchDevice::allocate(size_t bytes) const {
  Result<std::byte*> memory = accelerator_.allocate(bytes, MemoryKind::device);
  if (!memory) return memory.status().with_context("use a smaller -e");
  return memory;
}

void BenchDevice::free(std::byte* memory, size_t bytes) const {
  accelerator_.free(memory, bytes, MemoryKind::device);
}

Status BenchDevice::copy(void* to, const void* from, size_t bytes) const {
  SENNIT_RETURN_IF_ERROR(accelerator_.copy(stream_, to, from, bytes));
  return synchronize();
}

std::optional<double> BenchDevice::bound_us(const Options& options, const RankGroups& groups,
                                            DataType type, Op op, int root, uint64_t bytes) const {
  std::vector<uint64_t> of_device(device_of_rank_.size(), 0);
  for (const std::vector<int>& members : groups)
    for (size_t i = 0; i < members.size() && members.size() > 1; i++) {
      const Case c = make_case(options, type, op, root, static_cast<int>(i),
                               static_cast<int>(members.size()), bytes);
      const auto device = static_cast<size_t>(device_of_rank_[static_cast<size_t>(members[i])]);
      of_device[device] += touched(c) * type_bytes(type);
    }
  const uint64_t most = *std::ranges::max_element(of_device);
  if (most <= 2 * cache_bytes_ || bytes_per_s_ <= 0) return std::nullopt;
  // A copied byte is one that is read and one that is written.
  return static_cast<double>(most) / 2 / bytes_per_s_ * 1e6;
}

}  // namespace sennit::bench
