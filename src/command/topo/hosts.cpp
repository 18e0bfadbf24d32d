// The hosts of a job's ranks: from a file (one host or hostlist a line, as mpirun, srun and MPICH
// take them), from the job that this runs in, or all of the fabric's; and the files that launchers
// read.
#include <charconv>
#include <cstdlib>

#include <fmt/core.h>

#include "command/topo/order.hpp"
#include "topology/text/read_file.hpp"
#include "topology/text/scan.hpp"

namespace sennit::topo {
namespace {

constexpr int kMostSlots = 1024;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool read_number(std::string_view text, int most, int* number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return failed == std::errc() && end == text.data() + text.size() && *number >= 1 &&
         *number <= most;
}

// "h0", "h[0-3] slots=2", "h0:2"; max_slots= says nothing about ranks.
Status add_line(const std::vector<Token>& words, const std::string& file,
                std::vector<std::string>* hosts) {
  Token list = words[0];
  int slots = 1;
  if (const size_t colon = list.text.rfind(':');
      colon != list.text.npos && list.text.find(']', colon) == list.text.npos) {
    Token count = list;
    count.text = list.text.substr(colon + 1);
    count.column += colon + 1;
    if (!read_number(count.text, kMostSlots, &slots))
      return error_at(file, count, fmt::format("how many ranks, 1 to {}", kMostSlots));
    list.text = list.text.substr(0, colon);
  }
  for (size_t i = 1; i < words.size(); i++) {
    const std::string_view word = words[i].text;
    if (word.rfind("max_slots=", 0) == 0 || word.rfind("max-slots=", 0) == 0) continue;
    constexpr std::string_view kSlots = "slots=";
    if (word.rfind(kSlots, 0) != 0 || !read_number(word.substr(kSlots.size()), kMostSlots, &slots))
      return error_at(
          file, words[i],
          fmt::format("slots=N with N from 1 to {}, or the end of the line", kMostSlots));
  }
  const Result<std::vector<std::string>> names = expand_hostlist(file, list, kMaxVertices);
  if (!names) return names.status();
  for (const std::string& name : *names) {
    if (hosts->size() + static_cast<size_t>(slots) > kMaxVertices)
      return error_at(file, words[0], fmt::format("at most {} ranks", kMaxVertices));
    hosts->insert(hosts->end(), static_cast<size_t>(slots), name);
  }
  return {};
}

Result<std::vector<std::string>> read_hosts(const std::string& file) {
  const Result<std::string> text = read_file(file);
  if (!text) return text.status();
  const Result<std::vector<std::vector<Token>>> lines = scan(*text, file, false);
  if (!lines) return lines.status();
  std::vector<std::string> hosts;
  for (const std::vector<Token>& words : *lines)
    SENNIT_RETURN_IF_ERROR(add_line(words, file, &hosts));
  if (hosts.empty())
    return invalid(fmt::format("{}: no hosts; expected one a line, such as \"h0 slots=8\"", file));
  return hosts;
}

// SLURM_TASKS_PER_NODE "2(x3),1": tasks of each node in turn; without it SLURM_NTASKS_PER_NODE "2",
// of every node. With srun -m arbitrary a file says where each is.
Result<std::vector<std::string>> slurm_hosts() {
  if (const std::string file = environment("SLURM_HOSTFILE");
      !file.empty() && environment("SLURM_DISTRIBUTION") == "arbitrary")
    return read_hosts(file);
  const std::string list = environment("SLURM_JOB_NODELIST");
  const std::string tasks = environment("SLURM_TASKS_PER_NODE");
  const std::string each = tasks.empty() ? environment("SLURM_NTASKS_PER_NODE") : "";
  int of_others = 1;
  if (!each.empty() && !read_number(each, kMostSlots, &of_others))
    return error_at("SLURM_NTASKS_PER_NODE", {each, 1, 1, false},
                    fmt::format("how many tasks, 1 to {}", kMostSlots));
  std::vector<std::string> nodes;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); i++) {  // commas outside of brackets separate lists
    if (i < list.size()) depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    const Token token{std::string_view(list).substr(begin, i - begin), 1, begin + 1, false};
    const Result<std::vector<std::string>> names =
        expand_hostlist("SLURM_JOB_NODELIST", token, kMaxVertices);
    if (!names) return names.status();
    nodes.insert(nodes.end(), names->begin(), names->end());
    begin = i + 1;
  }
  std::vector<std::string> hosts;
  size_t node = 0;
  for (size_t at = 0; at < tasks.size();) {
    const size_t end = std::min(tasks.find(',', at), tasks.size());
    const std::string_view part = std::string_view(tasks).substr(at, end - at);
    const size_t times = part.find("(x");
    int count = 1, repeat = 1;
    const bool read =
        read_number(part.substr(0, times), kMostSlots, &count) &&
        (times == part.npos ||
         (part.back() == ')' &&
          read_number(part.substr(times + 2, part.size() - times - 3), 1 << 20, &repeat)));
    if (!read) return error_at("SLURM_TASKS_PER_NODE", {part, 1, at + 1, false}, "N or N(xNODES)");
    for (; repeat > 0 && node < nodes.size(); repeat--, node++)
      hosts.insert(hosts.end(), static_cast<size_t>(count), nodes[node]);
    at = end + 1;
  }
  for (; node < nodes.size(); node++)
    hosts.insert(hosts.end(), static_cast<size_t>(of_others), nodes[node]);
  return hosts;
}

}  // namespace

Result<HostOrder> read_order(const std::string& file, const Fabric& fabric) {
  HostOrder order;
  Result<std::vector<std::string>> hosts = std::vector<std::string>{};
  if (!file.empty()) {
    order.from = file;
    hosts = read_hosts(file);
  } else if (!environment("SLURM_JOB_NODELIST").empty()) {
    order.from = fmt::format("Slurm's job {}", environment("SLURM_JOB_ID"));
    hosts = slurm_hosts();
  } else if (const std::string nodes = environment("PBS_NODEFILE"); !nodes.empty()) {
    order.from = "PBS_NODEFILE";
    hosts = read_hosts(nodes);
  } else {
    order.from = "no job here: the fabric's hosts as written";
    for (const Placement& rank : ranks_on_all_hosts(fabric, 0)) hosts->push_back(rank.host);
  }
  if (!hosts) return hosts.status();
  order.hosts = *std::move(hosts);
  return order;
}

// A line a rank, as Open MPI's sequential mapper wants it; with "slots=" and any other mapper
// mpirun puts the host that it runs on first.
std::string hostfile_text(const std::vector<std::string>& hosts) {
  return "# mpirun --map-by seq --hostfile THIS; without --map-by seq, mpirun begins with its own "
         "host\n" +
         nodelist_text(hosts);
}

std::string nodelist_text(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += host + "\n";
  return text;
}

std::string rankfile_text(const std::vector<std::string>& hosts) {
  std::string text;
  for (size_t rank = 0, slot = 0; rank < hosts.size(); rank++) {
    slot = rank > 0 && hosts[rank] == hosts[rank - 1] ? slot + 1 : 0;
    text += fmt::format("rank {}={} slot={}\n", rank, hosts[rank], slot);
  }
  return text;
}

}  // namespace sennit::topo
