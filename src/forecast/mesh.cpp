// mesh.cpp: see forecast/mesh.hpp.
#include "forecast/mesh.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "base/index.hpp"

namespace sennit::forecast {
namespace {

constexpr int kMostGpus = 1 << 20;

}  // namespace

std::string_view short_name(Axis axis) {
  constexpr std::string_view kNames[] = {"tp", "cp", "pp", "dp"};
  return kNames[static_cast<size_t>(axis)];
}

int Mesh::gpus() const {
  int product = 1;
  for (const int size : sizes) product *= size;
  return product;
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (const Axis inner : order) {
    if (inner == axis) break;
    stride *= size(inner);
  }
  return stride;
}

std::string Mesh::to_text() const {
  std::string text;
  for (const Axis axis : order)
    if (size(axis) > 1)
      text += fmt::format("{}{}{}", text.empty() ? "" : ",", short_name(axis), size(axis));
  return text.empty() ? "dp1" : text;
}

Result<Mesh> parse_mesh(std::string_view text) {
  const auto error = [&](std::string_view item) {
    return invalid(fmt::format(
        "--mesh {}: \"{}\": expected tp, cp, pp or dp and a size, each at most once, such as "
        "tp8,pp16,dp128, from the fastest network outwards",
        text, item));
  };
  Mesh mesh;
  std::vector<Axis> named;
  int64_t product = 1;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view item = text.substr(from, comma - from);
    from = comma + 1;
    if (item.size() < 3) return error(item);
    const auto axis = std::find_if(mesh.order.begin(), mesh.order.end(), [&](Axis known) {
      return short_name(known) == item.substr(0, 2);
    });
    int size = 0;
    const auto [end, failed] = std::from_chars(item.data() + 2, item.data() + item.size(), size);
    if (axis == mesh.order.end() || failed != std::errc() || end != item.data() + item.size() ||
        size < 1 || size > kMostGpus || std::find(named.begin(), named.end(), *axis) != named.end())
      return error(item);
    product *= size;
    if (product > kMostGpus)
      return invalid(fmt::format("--mesh {}: more than {} GPUs", text, kMostGpus));
    named.push_back(*axis);
    mesh.sizes[static_cast<size_t>(*axis)] = size;
  }
  size_t next = 0;
  std::array<Axis, kAxes> order = mesh.order;
  for (const Axis axis : named) order[next++] = axis;
  for (const Axis axis : mesh.order)
    if (std::find(named.begin(), named.end(), axis) == named.end()) order[next++] = axis;
  mesh.order = order;
  return mesh;
}

Groups groups_of(const Mesh& mesh, const std::vector<Axis>& axes) {
  int members = 1;
  for (const Axis axis : axes) members *= mesh.size(axis);
  Groups groups;
  groups.reserve(index(mesh.gpus() / members));
  for (int gpu = 0; gpu < mesh.gpus(); gpu++) {
    const bool first = std::all_of(axes.begin(), axes.end(), [&](Axis axis) {
      return gpu / mesh.stride(axis) % mesh.size(axis) == 0;
    });
    if (!first) continue;
    std::vector<int> group = {gpu};
    for (const Axis axis : mesh.order) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
      const size_t before = group.size();
      for (int step = 1; step < mesh.size(axis); step++)
        for (size_t i = 0; i < before; i++) group.push_back(group[i] + step * mesh.stride(axis));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<Mesh> orders_of(const Mesh& mesh) {
  std::vector<Axis> moving, resting;
  for (const Axis axis : mesh.order) (mesh.size(axis) > 1 ? moving : resting).push_back(axis);
  std::vector<Mesh> orders = {mesh};
  std::vector<Axis> turn = moving;
  std::sort(turn.begin(), turn.end());
  do {
    Mesh next = mesh;
    std::copy(turn.begin(), turn.end(), next.order.begin());
    std::copy(resting.begin(), resting.end(),
              next.order.begin() + static_cast<std::ptrdiff_t>(turn.size()));
    if (turn != moving) orders.push_back(next);
  } while (std::next_permutation(turn.begin(), turn.end()));
  return orders;
}

}  // namespace sennit::forecast
