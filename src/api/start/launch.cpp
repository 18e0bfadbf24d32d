// launch.cpp: rank, size, rank 0's address and the job's secret from the launcher's environment.
//
// Who is asked, first come first served:
//   torchrun itself   TORCHELASTIC_RUN_ID is set; then as torchrun-style below
//   Open MPI          OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, ..._LOCAL_RANK, ..._LOCAL_SIZE;
//                     the id by PMIx
//   torchrun-style    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK, LOCAL_WORLD_SIZE
//   PMIx              PMIX_RANK, PMIX_NAMESPACE (srun --mpi=pmix, prun): size and id by PMIx
//   Slurm             SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_STEP_NODELIST, ...
//
// PMI (PMI_RANK, PMI_SIZE: mpiexec of MPICH and of Intel) does not tell where rank 0 is: an error.
// Within a step of Slurm such a launcher's processes inherit the variables of the one task that
// started them. So Slurm's count only where PMI's are the same or not there.
//
// Without PMIx rank 0's address is MASTER_ADDR, under Slurm also the first host of the step. Its
// port is SENNIT_PORT; else MASTER_PORT + 1, because torchrun's store listens on MASTER_PORT
// itself; else, under Slurm, one worked out from the job and step numbers. The secret is
// SENNIT_SECRET. A job without secret whose ranks are all on one host uses the loopback interface,
// whatever MASTER_ADDR says.
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "api/start/launch.hpp"
#include "api/start/launch_pmix.hpp"
#include "api/start/secret.hpp"
#include "base/options.hpp"

namespace sennit {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return {};
  return value;
}

Result<int64_t> number(const char* name, int64_t least, int64_t most) {
  const auto text = variable(name);
  if (!text) return Status{SENNIT_NOT_FOUND, fmt::format("{} is not set", name)};
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most)
    return invalid(fmt::format("{}={}: expected a number from {} to {}", name, *text, least, most));
  return value;
}

constexpr int64_t kMaxRanks = 1 << 26;
constexpr int64_t kMaxPort = 65535;
// Under Slurm, without a port from anybody: one of these, by the numbers of job and step.
constexpr int64_t kFirstSlurmPort = 16384;
constexpr int64_t kSlurmPorts = 16000;
constexpr int64_t kSlurmPortsPerJob = 31;  // apart, so that steps of jobs in a row differ

// A number that may be missing, but not malformed.
Status optional_number(const char* name, int* value) {
  if (!variable(name)) return {};
  const Result<int64_t> parsed = number(name, 0, kMaxRanks);
  if (!parsed) return parsed.status();
  *value = static_cast<int>(*parsed);
  return {};
}

Status rank_and_size(const char* rank_name, const char* size_name, Launch* launch) {
  const Result<int64_t> size = number(size_name, 1, kMaxRanks);
  if (!size) return size.status();
  const Result<int64_t> rank = number(rank_name, 0, *size - 1);
  if (!rank) return rank.status();
  launch->bootstrap.rank = static_cast<int>(*rank);
  launch->bootstrap.size = static_cast<int>(*size);
  return {};
}

// "node[03-05,7],other" -> "node03"
std::string first_host(const std::string& list) {
  const size_t open = list.find_first_of("[,");
  if (open == list.npos || list[open] == ',') return list.substr(0, open);
  const size_t stop = list.find_first_of("-,]", open);
  const size_t close = list.find(']', open);
  if (stop == list.npos || close == list.npos) return {};
  const std::string rest = list.substr(close + 1);  // "rack[1-2]node5" and the like
  return list.substr(0, open) + list.substr(open + 1, stop - open - 1) + first_host(rest);
}

// The host of rank 0 in a step of Slurm; empty: not known.
std::string slurm_root_host() {
  if (variable("SLURM_DISTRIBUTION") == "arbitrary") {  // the list of nodes is sorted; this is not
    const auto file = variable("SLURM_HOSTFILE");
    std::string host;
    if (file) std::ifstream(*file) >> host;
    return first_host(host);
  }
  return first_host(variable("SLURM_STEP_NODELIST").value_or(""));
}

// One that works for steps in a row, and for steps at the same time.
Result<uint16_t> slurm_root_port() {
  const Result<int64_t> job = number("SLURM_JOB_ID", 0, INT64_MAX);
  if (!job) return job.status();
  const Result<int64_t> step = number("SLURM_STEP_ID", 0, INT64_MAX);
  const int64_t number = *job * kSlurmPortsPerJob + (step ? *step : 0);
  return static_cast<uint16_t>(kFirstSlurmPort + number % kSlurmPorts);
}

// How a launcher that was recognised is called, and what it tells of where rank 0 is, for when
// nobody has set that.
struct Launcher {
  const char* name;
  std::string (*root_host)() = nullptr;  // "": not known. Null: it does not tell
  Result<uint16_t> (*root_port)() = nullptr;
  const char* host_remedy = "";  // what to set, besides MASTER_ADDR
};
constexpr Launcher kTorchrun{"torchrun"};
constexpr Launcher kOpenMpi{"open mpi"};
constexpr Launcher kPmix{"pmix"};
constexpr Launcher kSlurm{"slurm", slurm_root_host, slurm_root_port,
                          " (or SLURM_STEP_NODELIST; with srun -m arbitrary a SLURM_HOSTFILE that "
                          "can be read)"};

Result<std::string> find_root_host(const Launcher& launcher) {
  std::string host = variable("MASTER_ADDR").value_or("");
  if (host.empty() && launcher.root_host) host = launcher.root_host();
  if (!host.empty()) return host;
  return Status{SENNIT_NOT_FOUND, fmt::format("started by {}, but where rank 0 is cannot be told: "
                                              "set MASTER_ADDR{} on all ranks",
                                              launcher.name, launcher.host_remedy)};
}

Result<uint16_t> find_root_port(const Launcher& launcher) {
  if (variable("SENNIT_PORT")) {
    const Result<int64_t> port = number("SENNIT_PORT", 0, kMaxPort);
    if (!port) return port.status();
    if (*port != 0) return static_cast<uint16_t>(*port);
  }
  if (variable("MASTER_PORT")) {
    const Result<int64_t> port = number("MASTER_PORT", 1, kMaxPort - 1);
    if (!port) return port.status();
    return static_cast<uint16_t>(*port + 1);
  }
  if (launcher.root_port) return launcher.root_port();
  return Status{SENNIT_NOT_FOUND,
                fmt::format("started by {}, but rank 0's port is not known: set MASTER_PORT or "
                            "SENNIT_PORT on all ranks",
                            launcher.name)};
}

// Where rank 0 is, and what proves that one belongs to the job, without PMIx.
Status find_root(const Launcher& launcher, Launch* launch) {
  BootstrapOptions& bootstrap = launch->bootstrap;
  Result<std::string> host = find_root_host(launcher);
  if (!host) return host.status();
  bootstrap.root_host = *std::move(host);
  const Result<uint16_t> port = find_root_port(launcher);
  if (!port) return port.status();
  bootstrap.root_port = *port;
  Result<std::vector<std::byte>> secret =
      job_secret(bootstrap.root_host, bootstrap.root_port, bootstrap.rank == 0);
  if (!secret) return secret.status();
  bootstrap.secret = std::move(*secret);
  if (bootstrap.secret.empty() && !bootstrap.insecure && launch->local_size == bootstrap.size)
    bootstrap.root_host = "127.0.0.1";
  return {};
}

Status by_torchrun(Launch* launch) {
  launch->launcher = kTorchrun.name;
  SENNIT_RETURN_IF_ERROR(rank_and_size("RANK", "WORLD_SIZE", launch));
  SENNIT_RETURN_IF_ERROR(optional_number("LOCAL_RANK", &launch->local_rank));
  SENNIT_RETURN_IF_ERROR(optional_number("LOCAL_WORLD_SIZE", &launch->local_size));
  return find_root(kTorchrun, launch);
}

// Rank, size and id from the launcher's PMIx server. SENNIT_UNSUPPORTED: there is none.
Status by_pmix(Launch* launch, int size) {
  const Interruption interruption = launch->bootstrap.interruption;
  Result<PmixJob> job = launch_by_pmix(size, launch->bootstrap.arrival_timeout_ms, interruption);
  if (!job) return job.status();
  Result<BootstrapOptions> options = options_from_launch_id(job->unique_id, job->rank, job->size);
  if (!options) return options.status();
  launch->bootstrap = std::move(*options);
  launch->bootstrap.interruption = interruption;
  if (launch->local_rank < 0) launch->local_rank = job->local_rank;
  if (launch->local_size < 0) launch->local_size = job->local_size;
  return {};
}

Status by_open_mpi(Launch* launch) {
  launch->launcher = kOpenMpi.name;
  SENNIT_RETURN_IF_ERROR(rank_and_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch));
  SENNIT_RETURN_IF_ERROR(optional_number("OMPI_COMM_WORLD_LOCAL_RANK", &launch->local_rank));
  SENNIT_RETURN_IF_ERROR(optional_number("OMPI_COMM_WORLD_LOCAL_SIZE", &launch->local_size));
  const Status status = by_pmix(launch, launch->bootstrap.size);
  if (status.kind() != SENNIT_UNSUPPORTED) return status;
  const Status without = find_root(kOpenMpi, launch);
  if (without.kind() != SENNIT_NOT_FOUND) return without;
  return {SENNIT_NOT_FOUND,
          fmt::format("{}; PMIx would tell, but {}", without.text(), status.text())};
}

bool under_pmi() { return variable("PMI_RANK") && variable("PMI_SIZE"); }

// `slurm`: what Slurm says beside it, with a blank before it.
Status by_pmi(const std::string& slurm) {
  return {SENNIT_NOT_FOUND,
          fmt::format("an MPI launcher started this process as PMI_RANK={} of PMI_SIZE={}{}, and "
                      "PMI does not tell where rank 0 is: call sennit_comm_init_mpi in place of "
                      "sennit_comm_init_env, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                      *variable("PMI_RANK"), *variable("PMI_SIZE"), slurm)};
}

Status by_slurm(Launch* launch) {
  launch->launcher = kSlurm.name;
  SENNIT_RETURN_IF_ERROR(rank_and_size(
      "SLURM_PROCID", variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
      launch));
  const std::string rank = std::to_string(launch->bootstrap.rank);
  const std::string size = std::to_string(launch->bootstrap.size);
  if (under_pmi() && (variable("PMI_RANK") != rank || variable("PMI_SIZE") != size))
    return by_pmi(fmt::format(" (Slurm says {} of {})", rank, size));
  SENNIT_RETURN_IF_ERROR(optional_number("SLURM_LOCALID", &launch->local_rank));
  const auto nodes = variable("SLURM_STEP_NUM_NODES");
  if (nodes && *nodes == "1") launch->local_size = launch->bootstrap.size;
  return find_root(kSlurm, launch);
}

Status by_pmix_alone(Launch* launch) {
  launch->launcher = kPmix.name;
  const Status status = by_pmix(launch, -1);
  if (status.kind() == SENNIT_UNSUPPORTED && variable("SLURM_PROCID")) return by_slurm(launch);
  return status;
}

Status by_nobody() {
  return {SENNIT_NOT_FOUND,
          "no launcher is to be seen: neither OMPI_COMM_WORLD_RANK (mpirun), nor RANK with "
          "WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun, or set by hand), nor PMIX_RANK, "
          "nor SLURM_PROCID in a step (srun) is set"};
}

// Who says which rank this is.
enum class SeenLauncher { nobody, torchrun, open_mpi, pmix, slurm, pmi };

SeenLauncher seen() {
  const bool open_mpi = variable("OMPI_COMM_WORLD_RANK").has_value();
  const bool like_torchrun = variable("RANK") && variable("WORLD_SIZE");  // by hand, too
  if (variable("TORCHELASTIC_RUN_ID") || (like_torchrun && !open_mpi))
    return SeenLauncher::torchrun;
  if (open_mpi) return SeenLauncher::open_mpi;
  if (variable("PMIX_RANK") && variable("PMIX_NAMESPACE")) return SeenLauncher::pmix;
  // A script of sbatch has the variables of a task, and is none.
  const bool in_step = variable("SLURM_STEP_ID") || variable("SLURM_STEP_NODELIST");
  if (variable("SLURM_PROCID") && in_step) return SeenLauncher::slurm;
  return under_pmi() ? SeenLauncher::pmi : SeenLauncher::nobody;
}

}  // namespace

bool launcher_seen() { return seen() != SeenLauncher::nobody; }

Result<Launch> launch_from_environment(Interruption interruption) {
  Launch launch;
  launch.bootstrap = bootstrap_defaults();
  launch.bootstrap.interruption = std::move(interruption);
  Status status;
  switch (seen()) {
    case SeenLauncher::torchrun:
      status = by_torchrun(&launch);
      break;
    case SeenLauncher::open_mpi:
      status = by_open_mpi(&launch);
      break;
    case SeenLauncher::pmix:
      status = by_pmix_alone(&launch);
      break;
    case SeenLauncher::slurm:
      status = by_slurm(&launch);
      break;
    case SeenLauncher::pmi:
      status = by_pmi("");
      break;
    case SeenLauncher::nobody:
      status = by_nobody();
      break;
  }
  if (!status.ok()) return status;
  return launch;
}

}  // namespace sennit
