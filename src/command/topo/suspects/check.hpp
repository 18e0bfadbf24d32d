// check.hpp: what looks wrong in a fabric.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "command/topo/model/model.hpp"
#include "command/topo/read/read.hpp"

namespace sennit::topo {

// Fills in the model's suspects, notes and counts of links. `group_of_vertex` is that of Origins.
Status find_suspects(Model* model, const std::vector<int>& group_of_vertex);
// For --check: the suspects, a line each, then what sources could not tell and all notes.
std::string check_text(const Reading& reading, const Model& model);

}  // namespace sennit::topo
