// player.hpp: a process's part of a program: its ranks' threads run their events, and each looks at
// once whether what it got is among what the model allows. Differences go to the board.
#pragma once

#include <vector>

#include "tests/random/board.hpp"
#include "tests/random/model.hpp"

namespace random_programs {

// Returns when all events of these ranks are over.
void play(const Program& program, const Model& model, const std::vector<int>& ranks, Board* board);

}  // namespace random_programs
