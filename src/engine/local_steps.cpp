// local_steps.cpp: see engine/local_steps.hpp.
#include "engine/local_steps.hpp"

#include <cstring>

#include "reduce/reduce.hpp"

namespace sennit {

size_t LocalSteps::locate(const SlotPlaces& slots, const Step& step) {
  const auto sources = prepared_.program.sources_of(step);
  if (segments_.size() < sources.size() + 1) segments_.resize(sources.size() + 1);
  for (auto& segments : segments_) segments.clear();
  const size_t bytes = places_.locate(slots, step.target, &segments_[0]);
  for (size_t i = 0; i < sources.size(); i++) places_.locate(slots, sources[i], &segments_[i + 1]);
  return bytes;
}

size_t LocalSteps::run(const SlotPlaces& slots, const Step& step) {
  const size_t all = locate(slots, step);
  const Request& request = prepared_.request;
  const bool copies = only_copies(step);
  for_each_stretch(step.sources, all, [&](std::byte* out, size_t bytes) {
    if (!copies)
      reduce(request.type, request.op, out, inputs_, bytes / places_.element_bytes(),
             divisor(step));
    else if (inputs_[0] != out)
      std::memmove(out, inputs_[0], bytes);
  });
  return all;
}

}  // namespace sennit
