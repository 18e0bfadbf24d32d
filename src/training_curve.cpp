#include "training_curve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "source.hpp"
#include "units.hpp"

namespace sennit::training {
namespace {

constexpr int kGpuCounts[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 100'000};
constexpr int64_t kMostRanks = 250'000;

size_t index(int i) { return static_cast<size_t>(i); }
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The outermost tier's oversubscription is replaced; without tiers above the hosts there is none.
Result<TierTree> make_tree(const Shape& shape, int gpus, double oversubscription) {
  int64_t group = shape.ranks_per_host;  // GPUs of an outermost group
  for (const int children : shape.children) group *= children;
  std::string text = fmt::format("shape={}", divide_up(gpus, group));
  for (size_t t = shape.children.size(); t-- > 0;) text += fmt::format("x{}", shape.children[t]);
  text +=
      fmt::format(";ranks={};nic={}B/s", shape.ranks_per_host, static_cast<uint64_t>(shape.nic_bytes_per_s));
  for (size_t t = 0; t < shape.oversubscription.size(); t++)
    text +=
        fmt::format("{}{:.4f}", t == 0 ? ";oversubscription=" : ",",
                    t + 1 == shape.oversubscription.size() ? oversubscription : shape.oversubscription[t]);
  if (shape.latency_ns > 0) text += fmt::format(";latency={}", format_time(shape.latency_ns));
  if (shape.local_latency_ns > 0 && shape.ranks_per_host > 1)
    text += fmt::format(";local_latency={}", format_time(shape.local_latency_ns));
  return synthetic_tree(text);
}

}  // namespace

Shape shape_of(const TierTree& tree) {
  Shape shape;
  int group = tree.leaf_of_position[0];
  const auto tier = [&](int g) { return tree.tiers[tree.groups[index(g)].tier].name; };
  int host = group;  // the group that is the host, or the rank itself
  for (int g = group; g > 0; g = tree.groups[index(g)].parent)
    if (tier(g) == "host") host = g;
  shape.ranks_per_host = tree.groups[index(host)].size;
  shape.nic_bytes_per_s = static_cast<double>(tree.groups[index(host)].egress.bytes_per_s);
  shape.local_latency_ns = host == group ? 0 : tree.groups[index(host)].latency_ns;
  shape.latency_ns = tree.root().latency_ns;
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
    const int64_t up = groups == 1 ? 0 : static_cast<int64_t>(std::ceil(static_cast<double>(down) / over));
    parts.switches += groups * divide_up(down + up, switch_ports);
    below = groups * up;
    parts.cables += below;
  }
  if (below > 0) parts.switches += divide_up(below, switch_ports);  // what joins the outermost groups
  return parts;
}

std::vector<CurvePoint> curve(const Job& job, const Operation& operation, const TierTree& tree,
                              int switch_ports) {
  const Shape shape = shape_of(tree);
  const int copy = job.mesh.gpus() / job.mesh.size(Axis::data);  // GPUs of a copy of the model
  const double sequences = static_cast<double>(job.batch) * job.mesh.size(Axis::data);
  std::vector<CurvePoint> points;
  for (const int wanted : kGpuCounts) {
    const int data = wanted / copy;
    if (data < 1 || (!points.empty() && points.back().mesh.size(Axis::data) == data)) continue;
    Job scaled = job;
    scaled.mesh.sizes[static_cast<size_t>(Axis::data)] = data;
    const int gpus = scaled.mesh.gpus();
    const auto batch = static_cast<int64_t>(std::ceil(sequences / data / job.microbatch)) * job.microbatch;
    scaled.batch = static_cast<int>(batch);
    CurvePoint point;
    point.mesh = scaled.mesh;
    point.batch = scaled.batch;
    point.tokens_per_step = scaled.tokens_per_step();
    point.memory_bytes = memory_of(scaled).total();
    point.fits = point.memory_bytes <= job.gpu.memory_bytes.value;
    for (const double over : kOversubscriptions) {
      const Result<TierTree> made = make_tree(shape, gpus, over);
      if (!made || made->ranks() > kMostRanks) continue;
      const Network network(*made, job.gpu.scale_up_bytes_per_s.value);
      const std::vector<int> positions = placements(*made, gpus)[0].positions;
      CurvePoint::Fabric fabric;
      fabric.oversubscription = over;
      for (const Mesh& order : orders_of(scaled.mesh)) {
        const StepTime step = step_time(scaled, lay_out(order, network, positions));
        if (order == scaled.mesh) fabric.step = step;
        if (step.total > fabric.worst.total) fabric.worst = step;
      }
      fabric.cost = cost_of(scaled, fabric.step, operation);
      fabric.parts = parts_of(shape, gpus, over, switch_ports);
      point.fabrics.push_back(fabric);
      if (shape.children.empty()) break;
    }
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace sennit::training
