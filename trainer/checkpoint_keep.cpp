// checkpoint_keep.cpp: see checkpoint_keep.hpp, and newest_checkpoint() of checkpoint.hpp.
#include "checkpoint_keep.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "checkpoint.hpp"
#include "files.hpp"
#include "log.hpp"
#include "manifest.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

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

std::vector<Known> checkpoints_in(const std::string& folder) {  // by step
  std::vector<Known> known;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_of(name)) known.push_back({name, *step});
  std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) { return a.step < b.step; });
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
    if (errno != EINVAL && errno != ENOSYS) return file_error(final, "exchanged for the one that was there");
    // A file system without an exchange: for a moment neither has the name, and older steps are the newest.
    const std::string aside = hidden + ".replaced";
    if (::rename(final.c_str(), aside.c_str()) != 0) return file_error(final, "put aside");
    if (::rename(hidden.c_str(), final.c_str()) != 0) return file_error(final, "renamed into place");
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    return {};
  }
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  return {};
}

bool keep_chosen(const std::string& folder, int64_t step, int keep_last, bool keep_best) {
  const std::vector<Known> known = checkpoints_in(folder);
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
    if (name.rfind(".step-", 0) != 0 || name.find("." + attempt + ".") != std::string::npos) continue;
    std::error_code error;
    fs::remove_all(fs::path(folder) / name, error);
    if (error) log(LogLevel::warn, "{}/{}: cannot be removed: {}", folder, name, error.message());
  }
}

Result<std::optional<std::string>> newest_checkpoint(const std::string& folder) {
  const std::vector<Known> known = checkpoints_in(folder);
  for (size_t i = known.size(); i-- > 0;) {
    const std::string path = folder + "/" + known[i].name;
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (checkpoint.ok()) return std::optional<std::string>(path);
    log(LogLevel::warn, "{}: passed over: {}", path, checkpoint.status().text());
  }
  return std::optional<std::string>();
}

}  // namespace sennit::trainer
