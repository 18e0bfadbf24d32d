// mesh.hpp: which GPU is in which process group.
//
// A mesh is sizes of the parallel dimensions, written from the fastest network outwards:
// "tp8,cp1,pp16,dp128". GPU number g of the job has the coordinate (g / stride) % size in a
// dimension, where the stride is the product of the sizes before it. A group over some dimensions
// is the GPUs that differ in those alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace sennit::forecast {

// What a dimension of the mesh divides.
enum class Axis : uint8_t { tensor, context, pipeline, data };
inline constexpr int kAxes = 4;
std::string_view short_name(Axis axis);  // "tp", "cp", "pp", "dp"

// How many GPUs work side by side in each dimension, and which dimension is nearest.
struct Mesh {
  std::array<int, kAxes> sizes = {1, 1, 1, 1};  // by Axis
  std::array<Axis, kAxes> order = {Axis::tensor, Axis::context, Axis::pipeline,
                                   Axis::data};  // innermost first

  int size(Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
  int gpus() const;
  int stride(Axis axis) const;
  // Dimensions of more than one; all "tp1": "dp1".
  std::string to_text() const;
  bool operator==(const Mesh&) const = default;
};

// "tp8,pp16,dp128": a dimension that is not named has the size 1.
Result<Mesh> parse_mesh(std::string_view text);

// The groups over these dimensions; members in the order of their coordinates, the mesh's order
// innermost first.
using Groups = std::vector<std::vector<int>>;
Groups groups_of(const Mesh& mesh, const std::vector<Axis>& axes);

// The mesh in every order of its dimensions that have more than one; the given one first.
std::vector<Mesh> orders_of(const Mesh& mesh);

}  // namespace sennit::forecast
