// An instance of an emulated tree: its keeper and holders, and the state file by which `run` and
// `down` find it.
//
// State files lie in /run/sennit (root) or $XDG_RUNTIME_DIR/sennit, one JSON object each; an
// instance whose keeper is gone counts as not there. A lock file serialises the choice of a name
// and of an address range, and what is removed. What a state file says is done by its reader, with
// the reader's rights, so nobody else may be able to write there.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/emulate/emulate.hpp"

namespace sennit::emulate {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kReady = "ready";
constexpr int kFirstSubnet = 77, kLastSubnet = 250;
// For a keeper that was killed: ten seconds in all.
constexpr int kLooksAtKeeper = 2000;
constexpr useconds_t kBetweenLooksUs = 5000;
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

// Start time of a process in clock ticks since boot; 0: no such process.
uint64_t start_time(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t at = text.rfind(')');  // the name may hold spaces
  if (at == std::string::npos || text.compare(at, 3, ") Z") == 0) return 0;
  for (int field = kNameField; field < kStartTimeField && at != std::string::npos; field++)
    at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

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

// Of all state files, also those whose keepers are gone.
std::vector<std::string> known_names() {
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(state_folder(), error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  return names;
}

// Under the lock only: without it somebody may just have written the file anew.
void remove_dead(const std::string& name) {
  std::error_code ignored;
  if (!find(name)) fs::remove(state_file(name), ignored);
}

// Closes everything but `keep` and gives the standard streams to /dev/null.
void let_go_of_files(int keep) {
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= STDERR_FILENO; fd++) dup2(null, fd);
  close(null);
  std::vector<int> others;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc/self/fd", failed);
       !failed && entry != fs::directory_iterator(); entry.increment(failed))
    others.push_back(std::atoi(entry->path().filename().c_str()));
  if (failed) _exit(1);  // with the lock open, it would hold off all others while it lives
  for (const int fd : others)
    if (fd > STDERR_FILENO && fd != keep) close(fd);
}

// Dies with its maker, until a first byte says otherwise; then never returns.
[[noreturn]] void keep(int maker) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  prctl(PR_SET_NAME, "sennit-keeper");
  let_go_of_files(maker);
  if (chdir("/") != 0) _exit(1);
  signal(SIGCHLD, SIG_IGN);  // orphans of the instance end up here and are reaped by the kernel
  char byte = 0;
  // end of file: the maker died, perhaps before it could be asked for
  if (read(maker, &byte, 1) != 1) _exit(1);
  prctl(PR_SET_PDEATHSIG, 0);
  if (write(maker, &byte, 1) != 1) _exit(1);
  close(maker);
  while (true) pause();
}

Status start_keeper(Instance* instance) {
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNET | SIGCHLD,
                                                nullptr, nullptr, nullptr, nullptr));
  if (child == 0) keep(sockets[1]);
  const int error = errno;
  close(sockets[1]);
  if (child < 0) {
    close(sockets[0]);
    return {SENNIT_UNSUPPORTED,
            fmt::format("starting the keeper of the emulated fabric: {}", std::strerror(error))};
  }
  instance->keeper_socket = sockets[0];
  instance->keeper = child;
  instance->keeper_start = start_time(child);
  return {};
}

Status start_holder(pid_t keeper, Host* host) {
  int sockets[2];
  SENNIT_RETURN_IF_ERROR(socket_pair(sockets));
  const Result<pid_t> child = fork_below(keeper);
  if (child && *child == 0) {
    if (fork() != 0) _exit(0);  // the holder becomes the keeper's child, who reaps it
    setsid();
    prctl(PR_SET_NAME, fmt::format("sennit-{}", host->name).c_str());
    let_go_of_files(sockets[1]);
    Status status;
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 ||
        sethostname(host->name.data(), host->name.size()) != 0)
      status = {SENNIT_UNSUPPORTED, fmt::format("new namespaces: {}", std::strerror(errno))};
    if (status.ok()) status = isolate("");
    const std::string text = status.ok() ? kReady : status.text();
    if (send(sockets[1], text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(1);
    close(sockets[1]);
    while (status.ok()) pause();
    _exit(1);
  }
  close(sockets[1]);
  char said[kMostSaidBytes];
  const ssize_t n = child ? receive(sockets[0], said, sizeof said, 0, &host->holder) : 0;
  close(sockets[0]);
  if (!child) return child.status();
  waitpid(*child, nullptr, 0);
  const std::string_view text(said, static_cast<size_t>(std::max<ssize_t>(0, n)));
  if (text != kReady) return {SENNIT_UNSUPPORTED, fmt::format("host {}: {}", host->name, text)};
  return {};
}

bool alive(const Instance& instance) {
  return instance.keeper > 0 && start_time(instance.keeper) == instance.keeper_start;
}

}  // namespace

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

Result<Instance> create(const std::string& name, const Tree& tree) {
  if (name.empty() ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
          name.npos)
    return invalid(fmt::format("--name {}: expected letters, digits, - and _", name));
  signal(SIGPIPE, SIG_IGN);  // of `ip` and `tc` that end early
  std::optional<StateLock> lock(std::in_place);
  SENNIT_RETURN_IF_ERROR(lock->take());
  for (const std::string& known : known_names()) remove_dead(known);
  Instance instance{.name = name,
                    .keeper = 0,
                    .keeper_start = 0,
                    .keeper_socket = -1,
                    .subnet = kFirstSubnet,
                    .tree = tree};
  const Result<std::vector<Instance>> others = list();
  if (!others) return others.status();
  for (const Instance& other : *others)
    if (other.name == name)
      return invalid(fmt::format(
          "an emulated fabric '{}' is up already: `sennit emulate down --name {}` ends it", name,
          name));
  const auto taken = [&](int subnet) {
    return std::any_of(others->begin(), others->end(),
                       [&](const Instance& other) { return other.subnet == subnet; });
  };
  while (instance.subnet <= kLastSubnet && taken(instance.subnet)) instance.subnet++;
  if (instance.subnet > kLastSubnet)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  "no address range left: `sennit emulate down --all` ends all instances");
  SENNIT_RETURN_IF_ERROR(start_keeper(&instance));
  for (size_t h = 0; h < instance.tree.hosts.size(); h++)
    for (int rail = 0; rail < tree.rails; rail++)
      instance.tree.hosts[h].nics[static_cast<size_t>(rail)].address =
          address_of(instance.subnet, h, rail);
  Status status = write_state(instance);  // claims the name and the addresses
  lock.reset();
  for (Host& host : instance.tree.hosts)
    if (status.ok()) status = start_holder(instance.keeper, &host);
  if (status.ok()) status = wire(instance);
  if (status.ok()) status = write_state(instance);
  if (!status.ok()) {
    destroy(instance);
    return status;
  }
  return instance;
}

Status detach(Instance* instance) {
  char byte = 0;
  const bool done =
      write(instance->keeper_socket, &byte, 1) == 1 && read(instance->keeper_socket, &byte, 1) == 1;
  close(std::exchange(instance->keeper_socket, -1));
  if (!done) return {SENNIT_INTERNAL, fmt::format("the keeper of '{}' is gone", instance->name)};
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

Status check_up(const Instance& instance) {
  for (const Host& host : instance.tree.hosts)
    if (host.holder == 0)
      return {
          SENNIT_NOT_FOUND,
          fmt::format("'{}' is not up yet; `sennit emulate up` says when it is", instance.name)};
  return {};
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

Status join_owner(const Instance& instance) {
  struct stat ours {
  }, theirs{};
  if (stat("/proc/self/ns/user", &ours) != 0 ||
      stat(fmt::format("/proc/{}/ns/user", instance.keeper).c_str(), &theirs) != 0)
    return {SENNIT_UNSUPPORTED,
            fmt::format("the keeper of '{}': {}; a tree is for who brought it up", instance.name,
                        std::strerror(errno))};
  if (ours.st_ino == theirs.st_ino) return {};
  SENNIT_RETURN_IF_ERROR(enter_namespace(instance.keeper, "user"));
  prctl(PR_SET_DUMPABLE, 1);  // else nobody may open our children's /proc/PID/ns
  return {};
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

void destroy(const Instance& instance) {
  if (alive(instance)) {
    kill(instance.keeper, SIGKILL);
    waitpid(instance.keeper, nullptr, 0);  // where it is our child
    for (int i = 0; i < kLooksAtKeeper && alive(instance); i++) usleep(kBetweenLooksUs);
  }
  // Whoever holds it may be stopped. Without it the file stays, until somebody brings up a tree or
  // asks which are up.
  StateLock lock;
  if (lock.take_soon()) remove_dead(instance.name);
}

}  // namespace sennit::emulate
