// launch_pmix.cpp: see api/start/launch_pmix.hpp.
#include "api/start/launch_pmix.hpp"

#include <chrono>
#include <cstring>
#include <optional>

#include <fmt/core.h>

#include "api/start/launch.hpp"
#include "base/process/forked.hpp"
#include "base/process/shared_library.hpp"

#if defined(SENNIT_HAVE_PMIX)
#include <pmix.h>

namespace sennit {
namespace {

constexpr auto kBetweenAsks = std::chrono::milliseconds(20);

// Global, because PMIx's own plug-ins look for its symbols.
struct Library : SharedLibrary {
  Library() : SharedLibrary("libpmix.so.2", Symbols::global) {}
  const Function<decltype(PMIx_Init)> init{*this, "PMIx_Init"};
  const Function<decltype(PMIx_Put)> put{*this, "PMIx_Put"};
  const Function<decltype(PMIx_Commit)> commit{*this, "PMIx_Commit"};
  const Function<decltype(PMIx_Get)> get{*this, "PMIx_Get"};
  const Function<decltype(PMIx_Finalize)> finalize{*this, "PMIx_Finalize"};
  const Function<decltype(PMIx_Error_string)> text{*this, "PMIx_Error_string"};
};

const Library& library() {
  static const Library instance;
  return instance;
}

// A number that the server knows about this process or the whole job; -1 if it does not.
int number(const Library& pmix, const pmix_proc_t& who, const char* key) {
  pmix_value_t* value = nullptr;
  if (pmix.get(&who, key, nullptr, 0, &value) != PMIX_SUCCESS || !value) return -1;
  int result = -1;
  if (value->type == PMIX_UINT32) result = static_cast<int>(value->data.uint32);
  if (value->type == PMIX_UINT16) result = static_cast<int>(value->data.uint16);
  if (value->type == PMIX_PROC_RANK) result = static_cast<int>(value->data.rank);
  std::free(value);
  return result;
}

std::optional<Origin> g_asked;
// asked once: processes need not agree on how often they started a job
std::optional<PmixJob> g_known;

constexpr const char* kKey = "sennit.id";

Status give_id(const Library& pmix, std::vector<std::byte>* id) {
  Result<std::vector<std::byte>> made = make_unique_id();
  if (!made) return made.status();
  *id = std::move(*made);
  pmix_value_t value;
  std::memset(&value, 0, sizeof value);
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = reinterpret_cast<char*>(id->data());
  value.data.bo.size = id->size();
  pmix_status_t code = pmix.put(PMIX_GLOBAL, kKey, &value);
  if (code == PMIX_SUCCESS) code = pmix.commit();
  if (code != PMIX_SUCCESS)
    return {SENNIT_UNSUPPORTED,
            fmt::format("PMIx does not take the job's id: {}", pmix.text(code))};
  return {};
}

// No fence: rank 0 may come later than the others, so they ask again until it has.
Status take_id(const Library& pmix, const pmix_proc_t& self, int64_t timeout_ms,
               const Interruption& interruption, std::vector<std::byte>* id) {
  pmix_proc_t root = self;
  root.rank = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  pmix_status_t code;
  do {
    pmix_value_t* value = nullptr;
    code = pmix.get(&root, kKey, nullptr, 0, &value);
    if (code == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT) {
      const auto* bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
      id->assign(bytes, bytes + value->data.bo.size);
      std::free(value->data.bo.bytes);
      std::free(value);
      return {};
    }
    interruption.sleep(kBetweenAsks);
    if (interruption.wanted()) return Interruption::status();
  } while (std::chrono::steady_clock::now() < deadline);
  return {SENNIT_TIMED_OUT,
          fmt::format("rank 0 did not come within {} ms: PMIx has no id of it ({})", timeout_ms,
                      pmix.text(code))};
}

}  // namespace

Result<PmixJob> launch_by_pmix(int size, int64_t timeout_ms, const Interruption& interruption) {
  if (g_known) return *g_known;
  if (g_asked && g_asked->forked())
    return Status{SENNIT_UNSUPPORTED,
                  "this process was made by fork() from one that was just asking PMIx, which "
                  "answers that one only"};
  g_asked.emplace();
  const Library& pmix = library();
  if (!pmix.usable()) return Status{SENNIT_UNSUPPORTED, pmix.why_not()};
  pmix_proc_t self;
  std::memset(&self, 0, sizeof self);
  if (const pmix_status_t code = pmix.init(&self, nullptr, 0); code != PMIX_SUCCESS)
    return Status{SENNIT_UNSUPPORTED,
                  fmt::format("no PMIx server to talk to ({})", pmix.text(code))};
  PmixJob job;
  job.rank = static_cast<int>(self.rank);
  pmix_proc_t everybody = self;
  everybody.rank = PMIX_RANK_WILDCARD;
  job.size = size >= 0 ? size : number(pmix, everybody, PMIX_JOB_SIZE);
  job.local_rank = number(pmix, self, PMIX_LOCAL_RANK);
  job.local_size = number(pmix, everybody, PMIX_LOCAL_SIZE);
  const Status status = job.rank == 0
                            ? give_id(pmix, &job.unique_id)
                            : take_id(pmix, self, timeout_ms, interruption, &job.unique_id);
  pmix.finalize(nullptr, 0);  // counted: an MPI in this process keeps its own
  if (!status.ok()) return status;
  const ForeignCall whole;  // where a fork finds it
  g_known = job;
  return job;
}

}  // namespace sennit

#else

namespace sennit {

Result<PmixJob> launch_by_pmix(int, int64_t, const Interruption&) {
  return Status{SENNIT_UNSUPPORTED, "this sennit was built without PMIx"};
}

}  // namespace sennit
#endif
