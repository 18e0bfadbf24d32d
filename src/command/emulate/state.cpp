// state.cpp: see command/emulate/state.hpp.
#include "command/emulate/state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"

namespace sennit::emulate {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kTriesForLock = 10;
constexpr useconds_t kBetweenTriesUs = 50'000;

// The user whose instances these are: that of the outside, also where we are root of a user
// namespace.
uid_t outside_user() {
  std::ifstream map("/proc/self/uid_map");
  uid_t inside = 0, outside = 0;
  map >> inside >> outside;
  return geteuid() - inside + outside;
}

std::string state_folder() {
  if (outside_user() == 0) return "/run/sennit";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime && *runtime ? fmt::format("{}/sennit", runtime)
                             : fmt::format("/tmp/sennit-{}", outside_user());
}

std::string state_file(const std::string& name) { return state_folder() + "/" + name + ".json"; }

// Fields of /proc/PID/stat, as proc(5) counts them.
constexpr int kNameField = 2;
constexpr int kStartTimeField = 22;

// Only what is wrong is written: a fault of zeros is {}.
json to_json(const Fault& fault) {
  json object = json::object();
  if (fault.bits_per_s) object["bits_per_s"] = fault.bits_per_s;
  if (fault.delay_ns) object["delay_ns"] = fault.delay_ns;
  if (fault.lost_ppm) object["lost_ppm"] = fault.lost_ppm;
  if (fault.cut) object["cut"] = true;
  return object;
}

json to_json(const LinkFaults& faults) {
  return {{"out", to_json(faults.out)}, {"in", to_json(faults.in)}};
}

// What rail 0 has stands where all of it stands in a tree of one rail; the others follow as a list.
json to_json(const Host& host) {
  json object = {{"name", host.name},     {"address", host.address()},
                 {"rack", host.rack},     {"nic_bits_per_s", host.nic_bits_per_s},
                 {"holder", host.holder}, {"faults", to_json(host.nics.front().faults)}};
  for (size_t rail = 1; rail < host.nics.size(); rail++)
    object["further_nics"].push_back(
        {{"address", host.nics[rail].address}, {"faults", to_json(host.nics[rail].faults)}});
  return object;
}

json to_json(const Switch& of) {
  json object = {{"name", of.name},
                 {"pod", of.pod},
                 {"uplink_bits_per_s", of.uplink_bits_per_s},
                 {"faults", to_json(of.faults.front())}};
  for (size_t rail = 1; rail < of.faults.size(); rail++)
    object["further_uplinks"].push_back({{"faults", to_json(of.faults[rail])}});
  return object;
}

json to_json(const Instance& instance) {
  json hosts = json::array(), racks = json::array(), pods = json::array();
  for (const Host& host : instance.tree.hosts) hosts.push_back(to_json(host));
  const auto add = [](json* list, const Switch& s) { list->push_back(to_json(s)); };
  for (const Switch& rack : instance.tree.racks) add(&racks, rack);
  for (const Switch& pod : instance.tree.pods) add(&pods, pod);
  return {{"name", instance.name},
          {"keeper", instance.keeper},
          {"keeper_start", instance.keeper_start},
          {"subnet", instance.subnet},
          {"hosts", hosts},
          {"racks", racks},
          {"pods", pods}};
}

Fault read_fault(const json& link, const char* direction) {
  const json fault = link.value("faults", json::object()).value(direction, json::object());
  return {.bits_per_s = fault.value("bits_per_s", uint64_t{0}),
          .delay_ns = fault.value("delay_ns", uint64_t{0}),
          .lost_ppm = fault.value("lost_ppm", uint32_t{0}),
          .cut = fault.value("cut", false)};
}

LinkFaults read_faults(const json& link) {
  return {.out = read_fault(link, "out"), .in = read_fault(link, "in")};
}

Host read_host(const json& object) {
  Host host{.name = object.at("name"),
            .rack = object.at("rack"),
            .nic_bits_per_s = object.at("nic_bits_per_s"),
            .holder = object.at("holder"),
            .nics = {{.address = object.at("address"), .faults = read_faults(object)}}};
  for (const json& nic : object.value("further_nics", json::array()))
    host.nics.push_back({.address = nic.at("address"), .faults = read_faults(nic)});
  return host;
}

Switch read_switch(const json& object) {
  Switch of{.name = object.at("name"),
            .pod = object.at("pod"),
            .uplink_bits_per_s = object.at("uplink_bits_per_s"),
            .faults = {read_faults(object)}};
  for (const json& uplink : object.value("further_uplinks", json::array()))
    of.faults.push_back(read_faults(uplink));
  return of;
}

Instance from_json(const json& object) {  // throws on anything malformed; caught by find()
  Instance instance{.name = object.at("name"),
                    .keeper = object.at("keeper"),
                    .keeper_start = object.at("keeper_start"),
                    .keeper_socket = -1,
                    .subnet = object.at("subnet"),
                    .tree = {}};
  for (const json& host : object.at("hosts")) instance.tree.hosts.push_back(read_host(host));
  for (const json& rack : object.at("racks")) instance.tree.racks.push_back(read_switch(rack));
  for (const json& pod : object.at("pods")) instance.tree.pods.push_back(read_switch(pod));
  instance.tree.rails = static_cast<int>(instance.tree.hosts.at(0).nics.size());
  return instance;
}

}  // namespace

uint64_t start_time(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t at = text.rfind(')');  // the name may hold spaces
  if (at == std::string::npos || text.compare(at, 3, ") Z") == 0) return 0;
  for (int field = kNameField; field < kStartTimeField && at != std::string::npos; field++)
    at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

bool alive(const Instance& instance) {
  return instance.keeper > 0 && start_time(instance.keeper) == instance.keeper_start;
}

std::vector<std::string> known_names() {
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(state_folder(), error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  return names;
}

void remove_dead(const std::string& name) {
  std::error_code ignored;
  if (!find(name)) fs::remove(state_file(name), ignored);
}

Status check_private(const std::string& folder) {
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", folder, std::strerror(errno))};
  }
  std::string wrong;
  if (!S_ISDIR(found.st_mode))
    wrong = "it is no folder";
  else if (found.st_uid != geteuid())
    wrong = "it is another user's";
  else if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    wrong = "other users may use it";
  if (wrong.empty()) return {};
  return {SENNIT_UNSUPPORTED,
          fmt::format("{}: {}, so what lies there may be another user's doing: remove it, or set "
                      "XDG_RUNTIME_DIR to a folder of your own",
                      folder, wrong)};
}

Status StateLock::open_file(std::string* path) {
  const std::string folder = state_folder();
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);  // mkdir tells why it cannot be
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", folder, std::strerror(errno))};
  SENNIT_RETURN_IF_ERROR(check_private(folder));
  *path = folder + "/lock";
  fd_ = open(path->c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", *path, std::strerror(errno))};
  return {};
}

Status StateLock::take() {
  std::string path;
  SENNIT_RETURN_IF_ERROR(open_file(&path));
  if (flock(fd_, LOCK_EX) != 0)
    return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(errno))};
  return {};
}

bool StateLock::take_soon() {
  std::string path;
  if (!open_file(&path).ok()) return false;
  for (int i = 0; i < kTriesForLock; i++) {
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    usleep(kBetweenTriesUs);
  }
  return false;
}

StateLock::~StateLock() {
  if (fd_ >= 0) close(fd_);
}

Status write_state(const Instance& instance) {
  const std::string path = state_file(instance.name), fresh = path + ".new";
  std::ofstream file(fresh);
  file << json_to_text(to_json(instance), 1) << '\n';
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0)
    return {SENNIT_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(errno))};
  return {};
}

Result<Instance> find(const std::string& name) {
  SENNIT_RETURN_IF_ERROR(check_private(state_folder()));
  std::ifstream file(state_file(name));
  if (!file)
    return Status(
        SENNIT_NOT_FOUND,
        fmt::format("no emulated fabric '{}' is up; `sennit emulate up` makes one", name));
  const json object = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  try {
    Instance instance = from_json(object);
    if (alive(instance)) return instance;
  } catch (const json::exception&) {
  }
  return Status(
      SENNIT_NOT_FOUND,
      fmt::format("no emulated fabric '{}' is up any more; `sennit emulate up` makes one", name));
}

Result<std::vector<Instance>> list() {
  SENNIT_RETURN_IF_ERROR(check_private(state_folder()));
  std::vector<Instance> instances;
  std::vector<std::string> dead;  // whose keeper was killed
  for (const std::string& name : known_names()) {
    if (Result<Instance> instance = find(name))
      instances.push_back(std::move(*instance));
    else
      dead.push_back(name);
  }
  if (StateLock lock; !dead.empty() && lock.take_soon())
    for (const std::string& name : dead) remove_dead(name);
  return instances;
}

Result<ScratchFolder> ScratchFolder::make() {
  StateLock lock;
  SENNIT_RETURN_IF_ERROR(lock.take());
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(state_folder(), ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("scratch-") && kill(std::atoi(name.c_str() + 8), 0) != 0 && errno == ESRCH)
      stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove_all(path, ignored);
  std::string path = fmt::format("{}/scratch-{}-XXXXXX", state_folder(), getpid());
  if (!mkdtemp(path.data()))
    return Status(SENNIT_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(errno)));
  return ScratchFolder(path);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Result<std::string> ScratchFolder::write(const std::string& name, const std::string& text,
                                         bool executable) const {
  const std::string path = path_ + "/" + name;
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file || chmod(path.c_str(), executable ? 0700 : 0600) != 0)
    return Status(SENNIT_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(errno)));
  return path;
}

}  // namespace sennit::emulate
