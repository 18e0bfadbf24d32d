// keep.cpp: see trainer/checkpoint/keep.hpp, and newest_checkpoint() of
// trainer/checkpoint/checkpoint.hpp.
#include "trainer/checkpoint/keep.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "base/log.hpp"
#include "topology/source.hpp"
#include "trainer/base/files.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLockName = ".lock";
// A network file system shows another host's file some seconds later: 5 s in all.
constexpr int kLooks = 50;
constexpr std::chrono::milliseconds kBetweenLooks{100};

// Under a hidden name first: a folder that is being removed is no checkpoint any more.
void remove_checkpoint(const std::string& folder, const std::string& name) {
  const std::string hidden = folder + "/." + name + ".removed";
  std::error_code error;
  fs::remove_all(hidden, error);
  if (::rename((folder + "/" + name).c_str(), hidden.c_str()) != 0) {
    log(LogLevel::warn, "{}", file_error(folder + "/" + name, "removed").text());
    return;
  }
  fs::remove_all(hidden, error);
  if (error) log(LogLevel::warn, "{}: cannot be removed: {}", hidden, error.message());
}

struct Known {
  std::string name;
  int64_t step = 0;
};

Result<std::vector<Known>> checkpoints_in(const std::string& folder) {  // by step
  const Result<std::vector<std::string>> names = listed_names(folder);
  if (!names) return names.status();
  std::vector<Known> known;
  for (const std::string& name : *names)
    if (const auto step = step_of(name)) known.push_back({name, *step});
  std::sort(known.begin(), known.end(),
            [](const Known& a, const Known& b) { return a.step < b.step; });
  return known;
}

std::optional<double> loss_of(const std::string& folder) {
  const Result<nlohmann::json> json = read_sealed(folder + "/" + kManifestName);
  if (!json) return std::nullopt;
  const Result<Manifest> manifest = parse_manifest(*json, folder);
  return manifest.ok() ? manifest->held_out_loss : std::nullopt;
}

}  // namespace

Status put_in_place(const std::string& hidden, const std::string& final) {
  if (::rename(hidden.c_str(), final.c_str()) == 0) return {};
  if (errno != EEXIST && errno != ENOTEMPTY) return file_error(final, "renamed into place");
  if (::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS)
      return file_error(final, "exchanged for the one that was there");
    // A file system without an exchange: for a moment neither has the name, and older steps are the
    // newest.
    const std::string aside = hidden + ".replaced";
    if (::rename(final.c_str(), aside.c_str()) != 0) return file_error(final, "put aside");
    if (::rename(hidden.c_str(), final.c_str()) != 0)
      return file_error(final, "renamed into place");
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    return {};
  }
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  return {};
}

bool keep_chosen(const std::string& folder, int64_t step, int keep_last, bool keep_best) {
  const Result<std::vector<Known>> listed = checkpoints_in(folder);
  if (!listed) {
    log(LogLevel::warn, "no older checkpoint is removed: {}", listed.status().text());
    return false;
  }
  const std::vector<Known>& known = *listed;
  const Known* best = nullptr;
  double lowest = 0;
  for (const Known& one : known) {
    const std::optional<double> loss = loss_of(folder + "/" + one.name);
    if (loss && (!best || *loss < lowest)) {
      best = &one;
      lowest = *loss;
    }
  }
  if (keep_last > 0)
    for (size_t i = 0; i + static_cast<size_t>(keep_last) < known.size(); i++)
      if (known[i].step != step && !(keep_best && &known[i] == best))
        remove_checkpoint(folder, known[i].name);
  return best && best->step == step;
}

void remove_leftovers(const std::string& folder, const std::string& attempt) {
  for (const std::string& name : names_in(folder)) {
    if (name.rfind(".step-", 0) != 0 || name.find("." + attempt + ".") != std::string::npos)
      continue;
    std::error_code error;
    fs::remove_all(fs::path(folder) / name, error);
    if (error) log(LogLevel::warn, "{}/{}: cannot be removed: {}", folder, name, error.message());
  }
}

Result<std::optional<std::string>> newest_checkpoint(const std::string& folder) {
  const Result<std::vector<Known>> listed = checkpoints_in(folder);
  if (!listed) return listed.status();
  const std::vector<Known>& known = *listed;
  Status newest;
  for (size_t i = known.size(); i-- > 0;) {
    const std::string path = folder + "/" + known[i].name;
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (checkpoint.ok()) return std::optional<std::string>(path);
    if (i + 1 == known.size()) newest = checkpoint.status();
    log(LogLevel::warn, "{}: passed over: {}", path, checkpoint.status().text());
  }
  if (newest.ok()) return std::optional<std::string>();
  return invalid(fmt::format("{}: none of its {} checkpoints opens; of the newest: {}", folder,
                             known.size(), newest.text()));
}

std::string whole_checkpoint_before(const std::string& folder, int64_t step) {
  const Result<std::vector<Known>> listed = checkpoints_in(folder);
  if (!listed) return {};
  const std::vector<Known>& known = *listed;
  for (size_t i = known.size(); i-- > 0;) {
    if (known[i].step >= step) continue;
    const std::string path = folder + "/" + known[i].name;
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (checkpoint.ok() && checkpoint->verify([](const std::string&) {}) == 0) return path;
  }
  return {};
}

Result<std::optional<SetAside>> set_aside_after(const std::string& folder, int64_t step) {
  SetAside aside;
  const Result<std::vector<Known>> known = checkpoints_in(folder);
  if (!known) return known.status();
  for (const Known& one : *known) {
    if (one.step <= step) continue;
    for (int number = 1; aside.folder.empty(); number++) {
      const std::string name = fmt::format("{}/set-aside-{}", folder, number);
      if (::mkdir(name.c_str(), 0755) == 0) {
        aside.folder = name;
      } else if (errno != EEXIST) {
        return file_error(name, "made");
      }
    }
    const std::string from = folder + "/" + one.name, to = aside.folder + "/" + one.name;
    if (::rename(from.c_str(), to.c_str()) != 0) return file_error(from, "set aside");
    aside.checkpoints++;
  }
  if (aside.checkpoints == 0) return std::optional<SetAside>();
  SENNIT_RETURN_IF_ERROR(sync_folder(aside.folder));
  SENNIT_RETURN_IF_ERROR(sync_folder(folder));
  return std::optional(aside);
}

Result<FolderLock> FolderLock::take(const std::string& folder, const std::string& attempt) {
  SENNIT_RETURN_IF_ERROR(make_folders(folder));
  const std::string file = folder + "/" + kLockName;
  FolderLock lock;
  lock.descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock.descriptor_ < 0) return file_error(file, "opened");
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      const Result<std::string> there = read_file(file);
      const size_t blank = there.ok() ? there->find(' ') : std::string::npos;
      return invalid(fmt::format(
          "{}: another run saves its checkpoints there{}: wait for its end, or name another "
          "--checkpoint-dir",
          folder, blank == std::string::npos ? "" : " (" + there->substr(blank + 1) + ")"));
    }
    log(LogLevel::warn,
        "{}: this file system has no locks ({}): see to it that no other run saves there", file,
        std::strerror(errno));
  }
  const std::string text = fmt::format("{} process {} on {}", attempt, getpid(), this_host());
  if (::ftruncate(lock.descriptor_, 0) != 0 ||
      ::pwrite(lock.descriptor_, text.data(), text.size(), 0) !=
          static_cast<ssize_t>(text.size()) ||
      ::fsync(lock.descriptor_) != 0)
    return file_error(file, "written");
  return lock;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status see_lock(const std::string& folder, const std::string& attempt) {
  for (int look = 0; look < kLooks; look++) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    const Result<std::string> there = read_file(folder + "/" + kLockName);
    if (there.ok() && there->starts_with(attempt + " ")) return {};
  }
  return invalid(
      fmt::format("{} is not the folder that rank 0 sees under this name; all ranks must see the "
                  "same --checkpoint-dir, on a file system that all hosts share",
                  folder));
}

}  // namespace sennit::trainer
