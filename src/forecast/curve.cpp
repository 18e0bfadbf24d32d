// curve.cpp: a tree of the same shape for other numbers of GPUs, what it is built of, and the job
// on each. See forecast/curve.hpp.
#include "forecast/curve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/index.hpp"
#include "forecast/search.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"

namespace sennit::forecast {
namespace {

constexpr int kGpuCounts[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The outermost tier's oversubscription is replaced; without tiers above the hosts there is none.
Result<TierTree> make_tree(const Shape& shape, int gpus, double oversubscription) {
  int64_t group = shape.ranks_per_host;  // GPUs of an outermost group
  for (const int children : shape.children) group *= children;
  std::string text = fmt::format("shape={}", divide_up(gpus, group));
  for (size_t t = shape.children.size(); t-- > 0;) text += fmt::format("x{}", shape.children[t]);
  text += fmt::format(";ranks={};nic={}B/s", shape.ranks_per_host,
                      static_cast<uint64_t>(shape.nic_bytes_per_s));
  for (size_t t = 0; t < shape.oversubscription.size(); t++)
    text += fmt::format(
        "{}{:.4f}", t == 0 ? ";oversubscription=" : ",",
        t + 1 == shape.oversubscription.size() ? oversubscription : shape.oversubscription[t]);
  if (shape.latency_ns > 0) text += fmt::format(";latency={}", format_time(shape.latency_ns));
  if (shape.local_latency_ns > 0 && shape.ranks_per_host > 1)
    text += fmt::format(";local_latency={}", format_time(shape.local_latency_ns));
  if (shape.wire != Wire::unknown) text += fmt::format(";wire={}", name(shape.wire));
  return synthetic_tree(text);
}

}  // namespace

Shape shape_of(const TierTree& tree) {
  Shape shape;
  int group = tree.leaf_of_position[0];
  const auto tier = [&](int g) { return tree.tiers[tree.groups[index(g)].tier].name; };
  int host = group;  // the group that is the host, also where that is all, or the rank itself
  for (int g = group; g >= 0; g = tree.groups[index(g)].parent)
    if (tier(g) == "host") host = g;
  shape.ranks_per_host = tree.groups[index(host)].size;
  shape.nic_bytes_per_s = static_cast<double>(tree.groups[index(host)].egress.bytes_per_s);
  shape.local_latency_ns = host == group ? 0 : tree.groups[index(host)].latency_ns;
  shape.latency_ns = tree.root().latency_ns;
  shape.wire = tree.root().wire;
  for (int g = tree.groups[index(host)].parent; g > 0; g = tree.groups[index(g)].parent) {
    shape.children.push_back(tree.groups[index(g)].children);
    const double over = tree.oversubscription(g);
    shape.oversubscription.push_back(over > 0 ? over : 1);
  }
  return shape;
}

Parts parts_of(const Shape& shape, int gpus, double oversubscription, int switch_ports) {
  Parts parts;
  int64_t below = gpus;  // cables that come from below, in all; a GPU has a NIC's port
  parts.cables = gpus;
  int64_t groups = divide_up(gpus, shape.ranks_per_host);
  for (size_t t = 0; t < shape.children.size(); t++) {
    groups = divide_up(groups, shape.children[t]);
    const bool outermost = t + 1 == shape.children.size();
    const double over = outermost ? oversubscription : shape.oversubscription[t];
    const int64_t down = divide_up(below, groups);
    const int64_t up =
        groups == 1 ? 0 : static_cast<int64_t>(std::ceil(static_cast<double>(down) / over));
    parts.switches += groups * divide_up(down + up, switch_ports);
    below = groups * up;
    parts.cables += below;
  }
  // what joins the outermost groups
  if (below > 0) parts.switches += divide_up(below, switch_ports);
  return parts;
}

std::vector<CurvePoint> curve(const Job& job, const Operation& operation, const TierTree& tree,
                              int switch_ports) {
  const Shape shape = shape_of(tree);
  if (shape.nic_bytes_per_s <= 0) return {};
  std::vector<CurvePoint> points;
  const double sequences = static_cast<double>(job.batch) * job.mesh.size(Axis::data);
  std::vector<int> counts(std::begin(kGpuCounts), std::end(kGpuCounts));
  if (std::find(counts.begin(), counts.end(), job.mesh.gpus()) == counts.end())
    counts.push_back(job.mesh.gpus());
  std::sort(counts.begin(), counts.end());
  for (const int gpus : counts) {
    const Result<TierTree> widest = make_tree(shape, gpus, kOversubscriptions[0]);
    if (!widest) continue;
    const GpuFabric network_of_it(*widest, job.gpu.scale_up_bytes_per_s.value);
    Result<Job> scaled = job;
    for (const int tensor :
         {job.mesh.size(Axis::tensor), 0}) {  // any number of tensor ranks where this fits in none
      if (gpus == job.mesh.gpus() || (tensor == 0 && scaled.ok())) break;
      scaled = fastest_job(job, network_of_it, gpus, {sequences, 0, tensor, shape.ranks_per_host});
    }
    if (!scaled) {
      CurvePoint point;
      point.gpus = gpus;
      point.fits = false;
      points.push_back(std::move(point));
      continue;
    }
    CurvePoint point;
    point.gpus = gpus;
    point.mesh = scaled->mesh;
    point.batch = scaled->batch;
    point.tokens_per_step = scaled->tokens_per_step();
    point.memory_bytes = memory_of(*scaled).total();
    for (const double over : kOversubscriptions) {
      const Result<TierTree> made = make_tree(shape, gpus, over);
      if (!made) continue;
      const GpuFabric network(*made, job.gpu.scale_up_bytes_per_s.value);
      const std::vector<int> positions = placements(*made, gpus)[0].positions;
      CurvePoint::Fabric fabric;
      fabric.oversubscription = over;
      fabric.step = step_time(*scaled, lay_out(scaled->mesh, network, positions));
      Mesh reversed = scaled->mesh;
      std::reverse(reversed.order.begin(), reversed.order.end());
      fabric.reversed = step_time(*scaled, lay_out(reversed, network, positions));
      fabric.cost = cost_of(*scaled, fabric.step, operation);
      fabric.parts = parts_of(shape, gpus, over, switch_ports);
      point.fabrics.push_back(fabric);
      if (shape.children.empty()) break;
    }
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace sennit::forecast
