// make_model.hpp: from what was read to the model: its tree of items, each with its origin and with
// what looks wrong in it.
#pragma once

#include "base/status.hpp"
#include "command/topo/model/model.hpp"

namespace sennit::topo {

// An invalid argument where the fabric has no hosts; else the errors of contract().
Result<Model> make_model(Fabric fabric);

}  // namespace sennit::topo
