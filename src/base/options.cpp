// options.cpp: see base/options.hpp.
#include "base/options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

extern char** environ;

namespace sennit {
namespace {

// Options that are one of a few words.
const std::pair<std::string_view, std::vector<std::string_view>> kWords[] = {
    {"SENNIT_ISA", {"generic", "avx2", "avx512"}},
    {"SENNIT_LOG", {"error", "warn", "info", "debug"}},
    {"SENNIT_PROBE", {"0", "1", "again"}},
    {"SENNIT_TUNE", {"0", "1", "again"}},
    {"SENNIT_WIRE", {"plain", "sealed"}}};

constexpr auto kOptions = std::to_array<Option>({
    {"SENNIT_ALGORITHM", OptionType::text, "",
     "use this algorithm wherever it applies, instead of the planner's choice"},
    {"SENNIT_ARRIVAL_TIMEOUT", OptionType::milliseconds, "120000",
     "how long to wait for ranks that do not come, at start and in a call"},
    {"SENNIT_CHUNK_BYTES", OptionType::bytes, "0", "pipeline chunk; 0: the planner chooses"},
    {"SENNIT_CONCURRENCY", OptionType::text, "siblings",
     "what shares the links with a communicator of some of a job's ranks: siblings, all groups of "
     "its split at once; alone, none; a number of groups like it"},
    {"SENNIT_DEVICE_BLOCKS", OptionType::integer, "32",
     "how many blocks of a GPU a call on its memory takes at most"},
    {"SENNIT_DEVICE_IPC", OptionType::flag, "1",
     "0: GPUs of a host do not read one another's memory, but send through the host's"},
    {"SENNIT_DISABLE", OptionType::flag, "0",
     "1: what sennit exec preloads sends every call on, to NVIDIA's library or to MPI"},
    {"SENNIT_DUMP", OptionType::text, "",
     "folder that ranks copy what they did lately to, for sennit diagnose, within SENNIT_WATCH "
     "after SIGUSR2 came, where the program does not handle that itself, or a communicator failed "
     "or was aborted, and when a call hangs"},
    {"SENNIT_EAGER_BYTES", OptionType::bytes, "8K",
     "messages up to this size are sent before the receiver is known to be ready; over RDMA larger "
     "ones ask first, which plans count"},
    {"SENNIT_EXEC_BINDINGS", OptionType::text, "",
     "FUNCTION:FILE, set by sennit exec -v: says of each process where FUNCTION is bound to"},
    {"SENNIT_FABRIC", OptionType::text, "",
     "fabric file (text form, or of another tool: topology/FORMATS.md); else /etc/sennit/fabric, "
     "else discovery"},
    {"SENNIT_FAULTS", OptionType::text, "",
     "for tests: what goes wrong, e.g. rank=3,kill=50; also transport, delay, drop, break, "
     "break_bytes, seed"},
    {"SENNIT_HEARTBEAT_TIMEOUT", OptionType::milliseconds, "30000",
     "a peer that is silent this long is taken for dead; 0: never"},
    {"SENNIT_IN_FLIGHT_BYTES", OptionType::bytes, "512K",
     "bytes handed to a transport per peer and call before it has moved the earlier ones"},
    {"SENNIT_INSECURE", OptionType::flag, "0",
     "1: a job without a secret may use any network; anybody who reaches the port may join it"},
    {"SENNIT_INTERFACE", OptionType::text, "",
     "network interface or address to use; default: the one that reaches rank 0"},
    {"SENNIT_ISA", OptionType::text, "",
     "generic, avx2 or avx512: highest instruction set for reductions"},
    {"SENNIT_LOG", OptionType::text, "warn", "error, warn, info or debug"},
    {"SENNIT_NCCL_LIBRARY", OptionType::text, "",
     "NVIDIA's libnccl.so.2, for SENNIT_DISABLE; else looked for in the process, beside torch, in "
     "LD_LIBRARY_PATH and the system's folders"},
    {"SENNIT_PORT", OptionType::integer, "0",
     "port that rank 0 listens on while a job starts; 0: MASTER_PORT + 1, under Slurm from the "
     "job's number"},
    {"SENNIT_PROBE", OptionType::text, "0",
     "1: measure the fabric between the job's hosts at start, unless the cache has it; again: in "
     "any case"},
    {"SENNIT_REPLAN", OptionType::flag, "1",
     "1: where a link is found slow while the job runs, and a tenth is to be gained, ranks plan "
     "around it; never where SENNIT_REPRODUCIBLE or SENNIT_TUNE is set"},
    {"SENNIT_REPRODUCIBLE", OptionType::flag, "0",
     "1: the order of every sum depends on the tree alone, not on size, chunking or tuning"},
    {"SENNIT_SECRET", OptionType::text, "",
     "the job's secret for torchrun-style start: any text, file:PATH, or key: and 64 random "
     "hexadecimal digits"},
    {"SENNIT_STALL", OptionType::milliseconds, "500",
     "after this long without progress ranks compare their calls"},
    {"SENNIT_TCP_BUFFER_BYTES", OptionType::bytes, "0",
     "send buffer of a tcp connection; 0: the kernel adapts it to the network"},
    {"SENNIT_TRACE", OptionType::text, "",
     "folder in which ranks record what they do, and leave it; default: /dev/shm, where only ranks "
     "that end badly leave it; 0: nowhere"},
    {"SENNIT_TRACE_EVENTS", OptionType::integer, "16384",
     "events of 64 bytes that a rank's recording keeps, the newest; at most 16777216"},
    {"SENNIT_TRANSPORTS", OptionType::text, "",
     "comma-separated list to allow, e.g. shm,tcp; default: all"},
    {"SENNIT_TUNE", OptionType::text, "0",
     "1: the first calls of every kind try the few best plans, and the fastest is kept in the "
     "tuning file; again: also where it has an answer"},
    {"SENNIT_TUNING", OptionType::text, "",
     "tuning file to read and add to; default: one per fabric in the user's cache"},
    {"SENNIT_WATCH", OptionType::text, "0.5",
     "seconds between what a rank tells rank 0 of its calls, so that a slow link, a late rank, and "
     "who is behind in a call that hangs, is named while the job runs; 0: never"},
    {"SENNIT_WIRE", OptionType::text, "plain",
     "plain, or sealed: what goes between hosts is encrypted and authenticated; the same on all "
     "ranks"},
});

// "0, 1 or again"
std::string listed(const std::vector<std::string_view>& words) {
  return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

// Edit distance, for "did you mean"; of names that are longer it is not counted.
constexpr size_t kFar = 64;
size_t distance(std::string_view a, std::string_view b) {
  std::array<size_t, kFar> row{};
  if (b.size() + 1 > row.size()) return kFar;
  for (size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

const Option& find(std::string_view name) {
  for (const Option& option : kOptions)
    if (option.name == name) return option;
  SENNIT_CHECK(!"an option that is not in the table");
  std::abort();
}

Result<int64_t> to_integer(const Option& option, std::string_view text) {
  if (option.type == OptionType::bytes) {
    Result<uint64_t> bytes = parse_bytes(text);
    if (!bytes) return bytes.status().with_context(std::string(option.name));
    return static_cast<int64_t>(*bytes);
  }
  // Some 30 years, so that a few of them in nanoseconds, and moments that far away, stay within 64
  // bits.
  constexpr int64_t kMostMs = 1'000'000'000'000;
  const bool is_time = option.type == OptionType::milliseconds;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
      (is_time && value > kMostMs)) {
    const std::string number =
        is_time ? fmt::format("a number of milliseconds, of {} at most", kMostMs) : "a number";
    return invalid(fmt::format("{}={}: expected {}", option.name, text,
                               option.type == OptionType::flag ? "0 or 1" : number));
  }
  if (option.type == OptionType::flag && value > 1)
    return invalid(fmt::format("{}={}: expected 0 or 1", option.name, text));
  return value;
}

}  // namespace

std::span<const Option> options() { return kOptions; }

std::string option_text(std::string_view name) {
  const Option& option = find(name);
  const char* value = std::getenv(std::string(name).c_str());
  return value && *value ? std::string(value) : std::string(option.default_value);
}

int64_t option_integer(std::string_view name) {
  const Option& option = find(name);
  const Result<int64_t> value = to_integer(option, option_text(name));
  if (value) return *value;
  return *to_integer(option, option.default_value);
}

bool option_is_set(std::string_view name) {
  const char* const value = std::getenv(std::string(find(name).name).c_str());
  return value && *value;
}

bool option_flag(std::string_view name) { return option_integer(name) != 0; }

Status check_options() {
  for (char** entry = environ; *entry; entry++) {
    const std::string_view text = *entry;
    if (!text.starts_with("SENNIT_")) continue;
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const Option* known = nullptr;
    std::string_view nearest;
    size_t best = kFar;
    for (const Option& option : kOptions) {
      if (option.name == name) known = &option;
      if (const size_t d = distance(name, option.name); d < best) {
        best = d;
        nearest = option.name;
      }
    }
    if (!known)
      return invalid(fmt::format("{} is not an option of sennit; did you mean {}?", name, nearest));
    const std::string_view value = equals == text.npos ? "" : text.substr(equals + 1);
    if (value.empty()) continue;
    for (const auto& [of, words] : kWords)
      if (name == of && std::find(words.begin(), words.end(), value) == words.end())
        return invalid(fmt::format("{} is '{}': expected {}", name, value, listed(words)));
    if (known->type == OptionType::text) continue;
    if (const Result<int64_t> parsed = to_integer(*known, value); !parsed) return parsed.status();
  }
  return {};
}

Result<uint64_t> parse_bytes(std::string_view text) {
  // so that sums and products of a few stay within 64 bits
  constexpr double kMostBytes = 1ull << 60;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  if (suffix.ends_with("iB"))
    suffix.remove_suffix(2);
  else if (suffix.ends_with('B') && suffix.size() > 1)
    suffix.remove_suffix(1);
  double scale = 0;
  if (suffix.empty() || suffix == "B")
    scale = 1;
  else if (suffix == "K" || suffix == "k")
    scale = 1024;
  else if (suffix == "M" || suffix == "m")
    scale = 1024.0 * 1024;
  else if (suffix == "G" || suffix == "g")
    scale = 1024.0 * 1024 * 1024;
  if (error != std::errc() || scale == 0 || !(number >= 0) || number * scale > kMostBytes)
    return invalid(
        fmt::format("'{}': expected a size such as 4096, 64K, 1.5M or 2G, of 1 EiB at most", text));
  return static_cast<uint64_t>(number * scale);
}

std::string format_bytes(uint64_t bytes) {
  constexpr double kStep = 1024;
  static constexpr const char* kSuffix[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= kStep && unit + 1 < std::size(kSuffix); unit++) value /= kStep;
  return fmt::format("{:.4g} {}", value, kSuffix[unit]);
}

}  // namespace sennit
