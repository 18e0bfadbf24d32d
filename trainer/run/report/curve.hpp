// curve.hpp: the loss over the steps as lines of text, for a terminal.
//
// Braille patterns: a cell is two dots wide and four high, so 60 x 12 cells show 120 x 48 points,
// joined by lines. "o": the held-out loss.
#pragma once

#include <span>
#include <string>

#include "trainer/run/report/log.hpp"

namespace sennit::trainer {

// Lines of `columns` cells behind the axis; empty for fewer than two steps with a finite loss.
// Pure.
std::string loss_curve(std::span<const StepRecord> records, int columns = 60, int rows = 12);

}  // namespace sennit::trainer
