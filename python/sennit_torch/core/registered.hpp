// registered.hpp: tensors whose memory peers on this host read in place, since a process group uses
// them again and again.
//
// Where the user asks for it, the memory of a large tensor is registered with the library when a
// collective uses it for the second time, and deregistered when its storage is freed. It is no
// default, because registered memory is shared with forked children, both ways: a program that
// forks to keep a snapshot of its tensors would not have one.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/held.hpp"

namespace sennit_torch {

// Whether memory is registered from now on.
void register_memory(bool wanted);

// A collective is about to use these, of which no other thread changes anything meanwhile. One that
// stands there twice is used once. Never fails: what cannot be registered is used as it is.
void used(const std::shared_ptr<HeldCommunicator>& comm, const std::vector<at::Tensor>& tensors);

}  // namespace sennit_torch
