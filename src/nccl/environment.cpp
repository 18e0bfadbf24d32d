// environment.cpp: see nccl/environment.hpp.
#include "nccl/environment.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

namespace sennit::nccl {
namespace {

constexpr std::string_view kPrefix = "NCCL_";

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

const std::string* find(const Variables& all, std::string_view name) {
  for (const auto& [key, value] : all)
    if (key == name && !value.empty()) return &value;
  return nullptr;
}

// NCCL's way of choosing: a list of prefixes, of names behind '=', of what it is not behind '^'.
class Choice {
 public:
  explicit Choice(std::string_view text) {
    if (text.starts_with('^')) excludes_ = true, text.remove_prefix(1);
    if (text.starts_with('=')) exact_ = true, text.remove_prefix(1);
    words_ = words_of(text);
  }

  std::vector<std::string> of(const std::vector<std::string>& names) const {
    std::vector<std::string> chosen;
    for (const std::string& name : names)
      if (std::any_of(words_.begin(), words_.end(),
                      [&](const std::string& word) { return meets(word, name); }) != excludes_)
        chosen.push_back(name);
    return chosen;
  }

 private:
  // A name may have a port behind a colon, and so may the word.
  bool meets(std::string_view word, std::string_view name) const {
    const size_t colon = word.find(':');
    if (colon != word.npos) {
      const std::string_view port = word.substr(colon);
      if (!name.ends_with(port)) return false;
      name.remove_suffix(port.size());
      word = word.substr(0, colon);
    } else {
      name = name.substr(0, name.find(':'));
    }
    return exact_ ? name == word : name.starts_with(word);
  }

  bool excludes_ = false;
  bool exact_ = false;
  std::vector<std::string> words_;
};

// ---- each variable ----

struct Reading {
  const Variables& all;
  const Host& host;
  Translation made;

  // Where the user has not said it himself.
  void set(const char* name, std::string value) {
    if (!find(all, name)) made.settings.emplace_back(name, std::move(value));
  }
};

void read_debug(const std::string& value, Reading* reading) {
  static constexpr std::pair<const char*, const char*> kLevels[] = {
      {"none", "error"}, {"version", "error"}, {"warn", "warn"},
      {"info", "info"},  {"abort", "info"},    {"trace", "debug"}};
  const std::string asked = lower(value);
  for (const auto& [level, own] : kLevels) {
    if (asked != level) continue;
    reading->set("SENNIT_LOG", own);
    reading->made.version_asked_for = asked != "none";
    reading->made.remarks_asked_for = asked == "info" || asked == "abort" || asked == "trace";
    return;
  }
  reading->made.remarks.push_back("NCCL_DEBUG=" + value +
                                  ": ignored, expected VERSION, WARN, INFO or TRACE");
}

// sennit uses one interface, where NCCL may use several.
void read_interface(const std::string& value, Reading* reading) {
  if (find(reading->all, "SENNIT_INTERFACE")) return;
  std::vector<std::string> chosen = Choice(value).of(reading->host.interfaces);
  if (chosen.empty()) {
    reading->made.off = {ncclInvalidUsage,
                         "NCCL_SOCKET_IFNAME=" + value +
                             ": chooses none of this host's interfaces, which are " +
                             joined(reading->host.interfaces, ", ")};
    return;
  }
  std::stable_partition(chosen.begin(), chosen.end(),
                        [](const std::string& name) { return name != "lo"; });
  if (chosen.size() > 1)
    reading->made.remarks.push_back("NCCL_SOCKET_IFNAME=" + value + ": " + chosen.front() + " of " +
                                    joined(chosen, ", ") + " is used");
  reading->set("SENNIT_INTERFACE", chosen.front());
}

void read_devices(const std::string& value, Reading* reading) {
  const std::vector<std::string> chosen = Choice(value).of(reading->host.device_ports);
  if (chosen.empty())
    reading->made.remarks.push_back("NCCL_IB_HCA=" + value +
                                    ": ignored, it chooses no RDMA device of this host");
  else
    reading->set("UCX_NET_DEVICES", joined(chosen, ","));
}

void read_algorithm(const std::string& value, Reading* reading) {
  static constexpr std::pair<const char*, const char*> kAlgorithms[] = {{"ring", "ring"},
                                                                        {"tree", "double_tree"}};
  for (const auto& [name, own] : kAlgorithms)
    if (lower(value) == name) return reading->set("SENNIT_ALGORITHM", own);
  reading->made.remarks.push_back("NCCL_ALGO=" + value +
                                  ": ignored, sennit has the like of Ring and Tree alone");
}

// NCCL's ids of an address prove nothing of who belongs to the job: SENNIT_SECRET does.
void read_job_address(const std::string& value, Reading* reading) {
  if (find(reading->all, "SENNIT_SECRET"))
    reading->made.job_address = value;
  else
    reading->made.off = {ncclInvalidUsage,
                         "NCCL_COMM_ID=" + value +
                             ": an address alone lets anybody join: set SENNIT_SECRET to the same "
                             "text on all ranks, or unset NCCL_COMM_ID"};
}

struct Known {
  const char* name;
  void (*read)(const std::string& value, Reading* reading);
};
constexpr std::array<Known, 5> kKnown = {{{"NCCL_DEBUG", read_debug},
                                          {"NCCL_SOCKET_IFNAME", read_interface},
                                          {"NCCL_IB_HCA", read_devices},
                                          {"NCCL_ALGO", read_algorithm},
                                          {"NCCL_COMM_ID", read_job_address}}};

// ---- this process ----

Variables own_variables() {
  Variables all;
  for (char** entry = environ; entry && *entry; entry++) {
    const char* const equals = std::strchr(*entry, '=');
    if (equals)
      all.emplace_back(std::string_view(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  }
  return all;
}

std::vector<std::string> interfaces() {
  std::vector<std::string> names;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return names;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::find(names.begin(), names.end(), entry->ifa_name) == names.end())
      names.emplace_back(entry->ifa_name);
  }
  freeifaddrs(list);
  return names;
}

std::vector<std::string> device_ports() {
  namespace fs = std::filesystem;
  std::vector<std::string> ports;
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored))
      ports.push_back(device.path().filename().string() + ":" + port.path().filename().string());
  std::sort(ports.begin(), ports.end());
  return ports;
}

bool logs(const char* level) {
  const char* const value = std::getenv("SENNIT_LOG");
  const std::string_view limit = value && *value ? value : "warn";
  return limit == "debug" || limit == level;
}

Outcome apply(const Translation& translation) {
  for (const auto& [name, value] : translation.settings) setenv(name.c_str(), value.c_str(), 0);
  if (translation.version_asked_for)
    std::fprintf(stderr, "sennit: in place of NCCL, with the functions of %d.%d.%d\n",
                 kNcclVersion / 10000, kNcclVersion / 100 % 100, kNcclVersion % 100);
  const char* const level = translation.remarks_asked_for ? "info" : "debug";
  if (logs(level))
    for (const std::string& remark : translation.remarks)
      std::fprintf(stderr, "sennit: %s: %s\n", level, remark.c_str());
  return translation.off;
}

}  // namespace

Translation translate(const Variables& all, const Host& host) {
  Reading reading{all, host, {}};
  std::vector<std::string> unknown;
  for (const auto& [name, value] : all) {
    if (!name.starts_with(kPrefix) || value.empty()) continue;
    const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                    [&key = name](const Known& one) { return key == one.name; });
    if (known == kKnown.end())
      unknown.push_back(name);
    else
      known->read(value, &reading);
  }
  if (!unknown.empty())
    reading.made.remarks.push_back(joined(unknown, ", ") + ": ignored, sennit has not the like");
  return std::move(reading.made);
}

namespace {

struct Applied {
  std::string job_address;
  Outcome outcome;
};
const Applied& applied() {
  static const Applied once = [] {
    const Translation translation = translate(own_variables(), {interfaces(), device_ports()});
    return Applied{translation.job_address, apply(translation)};
  }();
  return once;
}

}  // namespace

Outcome read_environment() { return applied().outcome; }

const std::string& asked_job_address() { return applied().job_address; }

}  // namespace sennit::nccl
