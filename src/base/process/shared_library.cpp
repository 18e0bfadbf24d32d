// shared_library.cpp: see base/process/shared_library.hpp.
#include "base/process/shared_library.hpp"

#include <dlfcn.h>

#include <fmt/core.h>

#include "base/log.hpp"

namespace sennit {

SharedLibrary::SharedLibrary(const char* soname, Symbols symbols)
    : soname_(soname),
      handle_(dlopen(soname, RTLD_NOW | (symbols == Symbols::global ? RTLD_GLOBAL : RTLD_LOCAL))) {
  if (handle_ != nullptr) return;
  const char* const error = dlerror();
  log(LogLevel::info, "{} is not used: {}", soname_, error != nullptr ? error : "it does not open");
  why_not_ = fmt::format("{} is not installed here", soname_);
}

void* SharedLibrary::find(const char* name, Need need) {
  if (handle_ == nullptr) return nullptr;
  void* const found = dlsym(handle_, name);
  if (found == nullptr && need == Need::required && usable()) {
    log(LogLevel::info, "{} is not used: it has no {}", soname_, name);
    why_not_ = fmt::format("{} is another version: it has no {}", soname_, name);
  }
  return found;
}

}  // namespace sennit
