// llama_foreign.hpp: keys of a Hugging Face config that change what a model computes and that are
// not computed here. Trained without them the model would be another than its config says.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace sennit::trainer {

// What the first such key of an object asks for, and what to do; empty: there is none. Keys that
// are not known, and those with a value that asks for nothing (null, no experts, a window of none),
// pass.
std::string foreign_key(const nlohmann::json& config);

}  // namespace sennit::trainer
