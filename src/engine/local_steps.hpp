// local_steps.hpp: the steps of a program that send nothing: reductions and copies, over operands
// that may lie in many pieces.
//
// All operands of a step are walked together, in stretches that are contiguous in each. Not
// thread-safe. Cost: that of the reduction or copy, and some instructions a stretch; nothing is
// allocated once the lists of pieces have grown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "engine/data_places.hpp"
#include "schedule/prepared.hpp"
#include "transports/transport.hpp"

namespace sennit {

class LocalSteps {
 public:
  // Both outlive this; `places` are of the program of `prepared`.
  LocalSteps(const Prepared& prepared, const DataPlaces& places)
      : prepared_(prepared), places_(places) {}

  // Does what `step`, a reduction or a copy, is for the chunk of these slots. Returns the bytes of
  // its target.
  size_t run(const SlotPlaces& slots, const Step& step);
  // The same for somebody else to do: f(const LocalWork&) for each stretch.
  template <typename F>
  void for_each_piece(const SlotPlaces& slots, const Step& step, F f);

 private:
  // In a list of segments.
  struct SegmentPosition {
    size_t segment = 0;
    size_t bytes = 0;  // of it, which lie behind
  };
  size_t locate(const SlotPlaces& slots, const Step& step);
  // Calls f(out, bytes) with inputs_ set, for each stretch that is contiguous in all operands.
  template <typename F>
  void for_each_stretch(size_t sources, size_t bytes, F f);
  bool only_copies(const Step& step) const { return step.sources == 1 && divisor(step) == 1; }
  uint64_t divisor(const Step& step) const { return step.finish ? places_.buffers.divisor : 1; }

  const Prepared& prepared_;
  const DataPlaces& places_;
  // By operand, the target first, then the sources.
  std::vector<std::vector<Segment>> segments_;
  std::vector<SegmentPosition> at_;
  std::vector<const void*> inputs_;
};

template <typename F>
void LocalSteps::for_each_stretch(size_t sources, size_t bytes, F f) {
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
    f(out, stretch);
    for (size_t i = 0; i <= sources; i++) {
      SegmentPosition& at = at_[i];
      at.bytes += stretch;
      if (at.bytes == segments_[i][at.segment].bytes) at = {at.segment + 1, 0};
    }
    left -= stretch;
  }
}

template <typename F>
void LocalSteps::for_each_piece(const SlotPlaces& slots, const Step& step, F f) {
  LocalWork work;
  work.copies = only_copies(step);
  work.type = prepared_.request.type;
  work.op = prepared_.request.op;
  work.divisor = divisor(step);
  for_each_stretch(step.sources, locate(slots, step), [&](std::byte* out, size_t bytes) {
    if (work.copies && inputs_[0] == out) return;
    work.out = out;
    work.inputs = inputs_;
    work.count = work.copies ? bytes : bytes / places_.element_bytes();
    f(work);
  });
}

}  // namespace sennit
