// layout.cpp: see schedule/layout.hpp.
#include "schedule/layout.hpp"

namespace sennit {

uint64_t read_bytes(const Program& program, const Layout& layout, uint64_t element_bytes) {
  Wide elements = 0;
  for (const Step& step : program.steps)
    if (step.kind == StepKind::reduce || step.kind == StepKind::copy)
      elements += Wide{step.sources} * layout.length(program, step.target, {});
  return saturated(elements * element_bytes);
}

}  // namespace sennit
