// local_steps.cpp: see engine/local_steps.hpp.
#include "engine/local_steps.hpp"

#include <algorithm>
#include <cstring>

#include "reduce/reduce.hpp"

namespace sennit {

size_t LocalSteps::run(const SlotPlaces& slots, const Step& step) {
  const auto sources = prepared_.program.sources_of(step);
  if (segments_.size() < sources.size() + 1) segments_.resize(sources.size() + 1);
  for (auto& segments : segments_) segments.clear();
  const size_t bytes = places_.locate(slots, step.target, &segments_[0]);
  for (size_t i = 0; i < sources.size(); i++) places_.locate(slots, sources[i], &segments_[i + 1]);
  combine(step, bytes);
  return bytes;
}

void LocalSteps::combine(const Step& step, size_t bytes) {
  const Request& request = prepared_.request;
  const size_t sources = step.sources;
  const uint64_t divisor = step.finish ? places_.buffers.divisor : 1;
  const bool plain_copy = sources == 1 && divisor == 1;
  at_.assign(sources + 1, {});
  inputs_.resize(sources);
  const auto here = [&](size_t operand) {
    const SegmentPosition& at = at_[operand];
    const Segment& segment = segments_[operand][at.segment];
    return Segment{segment.data + at.bytes, segment.bytes - at.bytes};
  };
  for (size_t left = bytes; left > 0;) {
    size_t stretch = left;
    for (size_t i = 0; i <= sources; i++) stretch = std::min(stretch, here(i).bytes);
    std::byte* const out = here(0).data;
    for (size_t i = 0; i < sources; i++) inputs_[i] = here(i + 1).data;
    if (!plain_copy)
      reduce(request.type, request.op, out, inputs_, stretch / places_.element_bytes(), divisor);
    else if (inputs_[0] != out)
      std::memmove(out, inputs_[0], stretch);
    for (size_t i = 0; i <= sources; i++) {
      SegmentPosition& at = at_[i];
      at.bytes += stretch;
      if (at.bytes == segments_[i][at.segment].bytes) at = {at.segment + 1, 0};
    }
    left -= stretch;
  }
}

}  // namespace sennit
