// graph.cpp: see graph.hpp.
#include "tests/soft_gpu/graph.hpp"

#include <algorithm>
#include <atomic>

namespace soft_gpu {
namespace {

uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

// Never destroyed, as all that threads of streams use.
std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::shared_ptr<Capture>>;
  return all;
}
std::atomic<size_t> going_on{0};

}  // namespace

std::mutex& captures_mutex() {
  static std::mutex& it = *new std::mutex;
  return it;
}

int& mode_of_this_thread() {
  thread_local int mode = kGlobal;
  return mode;
}

std::shared_ptr<Capture> begin_capture(int mode) {
  static uint64_t captured = 0;
  const std::lock_guard lock(captures_mutex());
  auto made = std::make_shared<Capture>();
  made->number = ++captured;
  made->mode = mode;
  made->thread = this_thread();
  captures().push_back(made);
  going_on = captures().size();
  return made;
}

void end_capture(const Capture& capture) {
  const std::lock_guard lock(captures_mutex());
  std::erase_if(captures(), [&](const auto& other) { return other.get() == &capture; });
  going_on = captures().size();
}

int forbidden_while_capturing() {
  const int mode = mode_of_this_thread();
  if (going_on == 0 || mode == kRelaxed) return 0;
  const std::lock_guard lock(captures_mutex());
  int error = 0;
  for (const auto& capture : captures()) {
    const bool own = capture->thread == this_thread() && capture->mode != kRelaxed;
    const bool anybodys = capture->mode == kGlobal && mode == kGlobal;
    if (!own && !anybodys) continue;
    capture->invalid = true;
    error = kCaptureUnsupported;
  }
  return error;
}

}  // namespace soft_gpu
