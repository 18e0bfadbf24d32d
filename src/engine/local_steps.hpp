// local_steps.hpp: the steps of a program that send nothing: reductions and copies, over operands
// that may lie in many pieces.
//
// All operands of a step are walked together, in stretches that are contiguous in each. Not
// thread-safe. Cost: that of the reduction or copy, and some instructions a stretch; nothing is
// allocated once the lists of pieces have grown.
#pragma once

#include <cstddef>
#include <vector>

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

 private:
  // In a list of segments.
  struct SegmentPosition {
    size_t segment = 0;
    size_t bytes = 0;  // of it, which lie behind
  };
  void combine(const Step& step, size_t bytes);

  const Prepared& prepared_;
  const DataPlaces& places_;
  // By operand, the target first, then the sources.
  std::vector<std::vector<Segment>> segments_;
  std::vector<SegmentPosition> at_;
  std::vector<const void*> inputs_;
};

}  // namespace sennit
