// layout.cpp: see schedule/layout.hpp.
#include "schedule/layout.hpp"

namespace sennit {

uint64_t read_bytes(const Program& program, const Layout& layout, uint64_t element_bytes) {
  uint64_t elements = 0;
  for (const Step& step : program.steps)
    if (step.kind == StepKind::reduce || step.kind == StepKind::copy)
      for (const Range& range : program.ranges_of(step.target))
        elements += step.sources * layout.length(range, {});
  return elements * element_bytes;
}

}  // namespace sennit
