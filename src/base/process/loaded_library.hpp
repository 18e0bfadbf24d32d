// loaded_library.hpp: a library that this process may have loaded, or may load at any time.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <atomic>

namespace sennit {

// Any thread. It is looked for again only where libraries have been loaded since the last look.
class LoadedLibrary {
 public:
  constexpr explicit LoadedLibrary(const char* name) : name_(name) {}

  // For dlsym(); null where the process has not loaded it. Threads that ask at the same time all
  // look, and none goes on before it knows.
  void* find() {
    if (void* const known = handle_.load()) return known;
    const unsigned long long loaded = libraries_loaded();
    if (looked_at_.load() == loaded) return handle_.load();
    if (void* const found = dlopen(name_, RTLD_NOW | RTLD_NOLOAD)) handle_ = found;
    looked_at_ = loaded;
    return handle_.load();
  }
  // As the last look found it, which costs nothing.
  void* known() const { return handle_.load(std::memory_order_acquire); }

 private:
  // How many this process has loaded so far, and one.
  static unsigned long long libraries_loaded() {
    unsigned long long loaded = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* argument) {
          *static_cast<unsigned long long*>(argument) = info->dlpi_adds + 1;
          return 1;
        },
        &loaded);
    return loaded;
  }
  const char* const name_;
  std::atomic<void*> handle_{nullptr};
  std::atomic<unsigned long long> looked_at_{0};  // how many there were at the last look
};

}  // namespace sennit
