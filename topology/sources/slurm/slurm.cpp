// slurm.cpp: Slurm as a source. Every task's environment has its own host's path; topology.yaml or
// topology.conf, where it can be read, has the whole network.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/core.h>

#include "topology/source.hpp"
#include "topology/sources/slurm/slurm.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::optional<Fabric>> read_address(const SourceContext& context) {
  const std::string address = environment("SLURM_TOPOLOGY_ADDR");
  const std::string pattern = environment("SLURM_TOPOLOGY_ADDR_PATTERN");
  if (address.empty() || pattern.empty() || pattern == "node") return std::optional<Fabric>();
  Result<Fabric> fabric = parse_topology_addr(address, pattern, context.host);
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

// topology.yaml where there is one, for Slurm then goes by that alone; else topology.conf.
Result<std::optional<Fabric>> read_conf(const SourceContext&) {
  const std::string conf = environment("SLURM_CONF");
  if (conf.empty() && environment("SLURM_JOB_ID").empty()) return std::optional<Fabric>();
  const size_t slash = conf.rfind('/');
  const std::string folder = slash == std::string::npos ? "/etc/slurm" : conf.substr(0, slash);
  const bool yaml = file_exists(folder + "/topology.yaml");
  const std::string path = folder + (yaml ? "/topology.yaml" : "/topology.conf");
  if (!file_exists(path)) return std::optional<Fabric>();
  const std::span<const TextForm> forms = text_forms();
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const TextForm& known) {
    return known.name == (yaml ? "slurm_yaml" : "slurm_conf");
  });
  if (form == forms.end())
    return Status(
        SENNIT_UNSUPPORTED,
        path +
            ": cannot be read, for this build has no yaml-cpp; install libyaml-cpp-dev, build "
            "again");
  if (access(path.c_str(), R_OK) != 0)
    return Status(
        SENNIT_UNSUPPORTED,
        fmt::format("{}: {}; have it made readable, or give what `scontrol show topology` says in "
                    "SENNIT_FABRIC",
                    path, std::strerror(errno)));
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Fabric> fabric = form->parse(*text, path, "");
  if (!fabric) return fabric.status();
  if (fabric->links.empty()) return std::optional<Fabric>();  // flat: not a word about the network
  Result<std::string> missing = missing_nodes(*fabric, path, environment("SLURM_JOB_NODELIST"));
  if (!missing) return missing.status();
  if (!missing->empty()) fabric->conflicts.push_back(*std::move(missing));
  return std::optional<Fabric>(*std::move(fabric));
}

const SourceEntry kConf({"slurm_conf", 61, false, read_conf});

}  // namespace

SENNIT_SOURCE_ENTRY(slurm, 60, true, read_address)

}  // namespace sennit
