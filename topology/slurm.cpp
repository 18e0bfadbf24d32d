// slurm.cpp: Slurm as a source. Every task's environment has its own host's path; topology.conf, where it can
// be read, has the whole network. If the site uses topology.yaml, topology.conf is not what Slurm goes by,
// and is left alone.
#include <cstdlib>

#include "read_file.hpp"
#include "slurm.hpp"
#include "source.hpp"

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

Result<std::optional<Fabric>> read_conf(const SourceContext&) {
  const std::string conf = environment("SLURM_CONF");
  if (conf.empty() && environment("SLURM_JOB_ID").empty()) return std::optional<Fabric>();
  const size_t slash = conf.rfind('/');
  const std::string folder = slash == std::string::npos ? "/etc/slurm" : conf.substr(0, slash);
  const std::string path = folder + "/topology.conf";
  if (file_exists(folder + "/topology.yaml") || !file_exists(path)) return std::optional<Fabric>();
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Fabric> fabric = parse_topology_conf(*text, path);
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

const SourceEntry kConf({"slurm_conf", 61, false, read_conf});

}  // namespace

SENNIT_SOURCE_ENTRY("slurm", 60, true, read_address)

}  // namespace sennit
