// api_library.cpp: the library itself: its version, its errors, the NCCL_* variables as it reads
// them.
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "nccl/exported.hpp"
#include "nccl/numbers.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

// A variable that a program has asked for.
struct ncclParamHandle {
  std::string key;
};

namespace {

// Handles are never given back: one for each name that is asked for.
struct Handles {
  sennit::Mutex mutex;
  std::map<std::string, ncclParamHandle> by_key SENNIT_GUARDED_BY(mutex);
};
Handles& handles() {
  static auto* const all = new Handles;
  return *all;
}

// NCCL's keys go with and without their prefix.
std::string variable(const char* key) {
  return std::strncmp(key, "NCCL_", 5) == 0 ? key : std::string("NCCL_") + key;
}

Outcome text_of_parameter(ncclParamHandle_t handle, const char** text) {
  if (!handle) return {ncclInvalidArgument, "the parameter's handle is NULL"};
  *text = std::getenv(handle->key.c_str());
  if (*text) return {};
  return {ncclInvalidArgument, handle->key + " is not set"};
}

template <typename T>
ncclResult_t get_number(ncclParamHandle_t handle, T* value) {
  return guarded([&]() -> Outcome {
    if (!value) return {ncclInvalidArgument, "the place for the value is NULL"};
    const char* text = nullptr;
    if (Outcome off = text_of_parameter(handle, &text); !off.ok()) return off;
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(text, &end, 0);
    if (end == text || *end != '\0' || errno != 0 ||
        static_cast<long long>(static_cast<T>(number)) != number)
      return {ncclInvalidArgument, handle->key + "=" + text + ": no number of that size"};
    *value = static_cast<T>(number);
    return {};
  });
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  return guarded([&]() -> Outcome {
    if (!version) return {ncclInvalidArgument, "version is NULL"};
    *version = kNcclVersion;
    return {};
  });
}

const char* ncclGetErrorString(ncclResult_t result) { return text_of(result); }

const char* ncclGetLastError(ncclComm_t) { return last_error(); }

void ncclResetDebugInit(void) {}
void ncclResetDebugInitInternal(void) {}

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t*) {
  return refuse("ncclSetEncryption",
                "encrypts what SENNIT_WIRE=sealed says, with a key of the job's own");
}

ncclResult_t ncclParamBind(ncclParamHandle_t* handle, const char* key) {
  return guarded([&]() -> Outcome {
    if (!handle || !key) return {ncclInvalidArgument, "handle or key is NULL"};
    Handles& all = handles();
    const sennit::MutexLock lock(all.mutex);
    std::string name = variable(key);
    *handle = &all.by_key.try_emplace(name, ncclParamHandle{name}).first->second;
    return {};
  });
}

ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* value) { return get_number(h, value); }
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* value) { return get_number(h, value); }

ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char** value) {
  return guarded([&]() -> Outcome {
    if (!value) return {ncclInvalidArgument, "the place for the value is NULL"};
    return text_of_parameter(handle, value);
  });
}

ncclResult_t ncclParamGet(ncclParamHandle_t handle, void* value, int most, int* length) {
  return guarded([&]() -> Outcome {
    if (!value || most < 1) return {ncclInvalidArgument, "no place for the value"};
    const char* text = nullptr;
    if (Outcome off = text_of_parameter(handle, &text); !off.ok()) return off;
    const size_t bytes = std::strlen(text) + 1;
    if (length) *length = static_cast<int>(bytes - 1);
    if (bytes > static_cast<size_t>(most))
      return {ncclInvalidArgument, handle->key + " has " + std::to_string(bytes) + " bytes"};
    std::memcpy(value, text, bytes);
    return {};
  });
}

ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length) {
  return guarded([&]() -> Outcome {
    if (!key || !value) return {ncclInvalidArgument, "key or value is NULL"};
    const std::string name = variable(key);
    *value = std::getenv(name.c_str());
    if (!*value) return {ncclInvalidArgument, name + " is not set"};
    if (length) *length = static_cast<int>(std::strlen(*value));
    return {};
  });
}

// Those that are set. The table belongs to the thread until it asks again.
ncclResult_t ncclParamGetAllParameterKeys(const char*** keys, int* count) {
  return guarded([&]() -> Outcome {
    if (!keys || !count) return {ncclInvalidArgument, "table or tableLen is NULL"};
    thread_local std::vector<std::string> t_names;
    thread_local std::vector<const char*> t_table;
    t_names.clear();
    t_table.clear();
    for (char** entry = environ; entry && *entry; entry++)
      if (std::strncmp(*entry, "NCCL_", 5) == 0)
        t_names.emplace_back(*entry, std::strcspn(*entry, "="));
    for (const std::string& name : t_names) t_table.push_back(name.c_str());
    *keys = t_table.data();
    *count = static_cast<int>(t_table.size());
    return {};
  });
}

void ncclParamDumpAll(void) {
  for (char** entry = environ; entry && *entry; entry++)
    if (std::strncmp(*entry, "NCCL_", 5) == 0) std::fprintf(stderr, "%s\n", *entry);
}
