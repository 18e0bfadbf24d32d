// table.cpp: the tuning table and its file; the text form is in plan/tuning/text.cpp. See
// plan/tuning/table.hpp.
#include "plan/tuning/table.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>

#include "base/options.hpp"
#include "base/process/cached_file.hpp"
#include "collectives/algorithm.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {
Tuning::Key Tuning::key(uint64_t tree, const Request& request, int ranks) {
  const auto bytes = static_cast<uint64_t>(std::min(payload_bytes(request, ranks), 9e18));
  return {tree, request.collective, std::bit_floor(bytes)};
}

const Tuned* Tuning::find(uint64_t tree, const Request& request, int ranks) const {
  const auto found = entries_.find(key(tree, request, ranks));
  return found == entries_.end() ? nullptr : &found->second;
}

void Tuning::set(uint64_t tree, const Request& request, int ranks, Tuned tuned) {
  entries_[key(tree, request, ranks)] = std::move(tuned);
}

void Tuning::calibrate(const TierTree& tree, CostModel* cost) const {
  const auto found = costs_.find({tree.fingerprint(), cost->way == Way::rdma});
  if (found == costs_.end() || found->second.tiers.size() != tree.tiers.size()) return;
  const CostModel& fitted = found->second;
  cost->post_ns = fitted.post_ns;
  cost->shared_cores.message_cpu_ns = fitted.shared_cores.message_cpu_ns;
  cost->latency_ns = fitted.latency_ns;  // its part by tier was fitted beside it
  cost->shared_memory_post_ns = fitted.shared_memory_post_ns;
  cost->reduce_bytes_per_s = fitted.reduce_bytes_per_s;
  cost->tiers = fitted.tiers;
}

void Tuning::merge(const Tuning& newer) {
  for (const auto& [key, tuned] : newer.entries_) entries_[key] = tuned;
  for (const auto& [key, cost] : newer.costs_) costs_[key] = cost;
}

Result<Tuning> Tuning::read(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return Tuning();
  const Result<std::string> text = read_file(path);
  if (!text) return text.status();
  return parse(*text, path);
}

Status Tuning::add_to(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const auto lacking = [&](const char* what) {
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("{}: {}: {}; SENNIT_TUNING names another place", path, what,
                              std::strerror(errno)));
  };
  // Two jobs that end at once must not lose what the other found.
  const std::string lock = path + ".lock";
  const int guard = open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (guard < 0) return lacking("cannot keep what was measured there");
  flock(guard, LOCK_EX);
  Result<Tuning> all = read(path);
  Status status = all.status();
  if (all) {
    all->merge(*this);
    const std::string temporary = fmt::format("{}.{}", path, getpid());
    std::ofstream file(temporary);
    file << all->to_text();
    file.close();
    if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
      status = lacking("cannot be written");
      std::filesystem::remove(temporary, error);
    }
  }
  close(guard);
  return status;
}

std::string tuning_path(uint64_t fabric_fingerprint) {
  if (std::string given = option_text("SENNIT_TUNING"); !given.empty()) return given;
  return cached_file(fmt::format("tuning-{:016x}", fabric_fingerprint));
}

void apply(const Tuned& tuned, const Request& request, const TierTree& tree, Plan* plan) {
  const Algorithm* algorithm = find_algorithm(tuned.algorithm);
  if (!algorithm || !algorithm->applies(tree, request)) return;
  std::erase_if(plan->candidates, [&](const Candidate& c) {
    return c.algorithm == tuned.algorithm && c.parameters == tuned.parameters;
  });
  for (Candidate& c : plan->candidates)
    if (c.rejected.empty()) c.rejected = "slower when measured";
  plan->candidates.insert(plan->candidates.begin(), {tuned.algorithm, tuned.parameters,
                                                     tuned.predicted_ns, "", tuned.measured_ns});
  plan->asked_for = true;
  choose(request, tree, 0, plan);
}

}  // namespace sennit
