// tensors.hpp: what a call's tensors must be, and what the library gets in their place: memory that
// lies together, from which results go back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sennit_torch {

using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;

// All throw where tensors are not what they must be; `call` is named.

// A process group of PyTorch's has one device a rank, so its lists have one tensor.
Tensor& only(const char* call, Tensors& tensors);
// The tensor itself where its elements lie one after the other, else a copy.
Tensor dense(const char* call, const Tensor& tensor);
size_t bytes_of(const Tensor& tensor);
// All tensors, one after the other, in one. They may have any shapes.
Tensor joined(const char* call, const Tensors& tensors, bool with_contents);
// The other way round.
void scattered(const Tensor& all, const Tensors& tensors);
// What is left to do when the result came to lie in `dense_one` in place of `tensor`.
std::function<void()> back_into(const Tensor& tensor, const Tensor& dense_one);
// There is one for each of so many ranks, and each has so many elements.
void equal_sizes(const char* call, const Tensors& tensors, int64_t elements, int ranks);
// What goes from the one to the other is moved as bytes.
void equal_types(const char* call, const Tensor& from, const Tensor& to);

}  // namespace sennit_torch
