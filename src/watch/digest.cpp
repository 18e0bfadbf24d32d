// digest.cpp: see watch/digest.hpp.
#include "watch/digest.hpp"

#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"

namespace sennit::watch {
namespace {

constexpr uint8_t kVersion = 5;
// As write() lays them out.
constexpr size_t kEdgeBytes = 12, kPaceBytes = 24;
constexpr size_t kPlanBytes = 60 + 8 * DigestPlan::kTiers;
constexpr size_t kHeadBytes = 29;
// Cores are told in thousandths, and one more; 0: they are not known.
constexpr double kThousandths = 1000, kMostCores = 1e6;
// Paces take no more than this part of the room.
constexpr size_t kMostPaces = 8;
// What an edge's numbers are written in, so that many have room.
constexpr uint64_t kWrittenBytes = 64, kWrittenNs = 1000;

uint64_t moved(const DigestPlan& plan) {
  uint64_t bytes = 0;
  for (const uint64_t of_tier : plan.tier_bytes) bytes += of_tier;
  return bytes;
}

uint32_t in_units(uint64_t value, uint64_t unit) {
  return static_cast<uint32_t>(std::min<uint64_t>((value + unit / 2) / unit, UINT32_MAX));
}

uint32_t in_thousandths(double cores) {
  return static_cast<uint32_t>(std::lround(kThousandths * std::clamp(cores, 0.0, kMostCores)));
}

void write(ByteWriter& out, const DigestPlan& plan, const std::vector<DigestEdge>& edges) {
  out.u32(plan.comm).u64(plan.plan).u32(plan.first).u32(plan.last).u32(plan.calls);
  out.u64(plan.in_calls_ns).u32(plan.alone).u64(plan.alone_ns).u64(plan.quickest_ns);
  for (const uint64_t bytes : plan.tier_bytes) out.u64(bytes);
  out.u32(static_cast<uint32_t>(edges.size())).u32(0);
  for (const DigestEdge& edge : edges)
    out.rank(edge.peer)
        .u32(in_units(edge.bytes, kWrittenBytes))
        .u32(in_units(edge.service_ns, kWrittenNs));
}

DigestPlan read_plan(ByteReader& in) {
  DigestPlan plan;
  plan.comm = in.u32();
  plan.plan = in.u64();
  plan.first = in.u32();
  plan.last = in.u32();
  plan.calls = in.u32();
  plan.in_calls_ns = in.u64();
  plan.alone = in.u32();
  plan.alone_ns = in.u64();
  plan.quickest_ns = in.u64();
  for (uint64_t& bytes : plan.tier_bytes) bytes = in.u64();
  const uint32_t edges = in.count(kEdgeBytes);
  in.u32();
  for (uint32_t e = 0; e < edges && in.ok(); e++) {
    DigestEdge edge;
    edge.peer = in.rank();
    edge.bytes = in.u32() * kWrittenBytes;
    edge.service_ns = in.u32() * kWrittenNs;
    if (edge.peer < 0) in.fail();
    plan.edges.push_back(edge);
  }
  if (plan.alone > plan.calls || plan.alone_ns > plan.in_calls_ns ||
      plan.quickest_ns > plan.alone_ns)
    in.fail();
  return plan;
}

}  // namespace

std::vector<std::byte> encode(const Digest& digest) {
  std::vector<const DigestPace*> paces;
  for (const DigestPace& pace : digest.paces) paces.push_back(&pace);
  std::stable_sort(paces.begin(), paces.end(),
                   [](const auto* a, const auto* b) { return a->pairs > b->pairs; });
  if (paces.size() > kMostPaces) paces.resize(kMostPaces);
  std::vector<const DigestPlan*> plans;
  for (const DigestPlan& plan : digest.plans) plans.push_back(&plan);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto* a, const auto* b) { return moved(*a) > moved(*b); });
  size_t room = kMostDigestBytes - kHeadBytes - paces.size() * kPaceBytes;
  // Each plan with as many of its edges as there is room for.
  ByteWriter body;
  uint32_t written = 0;
  for (const DigestPlan* const plan : plans) {
    if (room < kPlanBytes) break;
    room -= kPlanBytes;
    std::vector<DigestEdge> edges = plan->edges;
    std::stable_sort(edges.begin(), edges.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    edges.resize(std::min(edges.size(), room / kEdgeBytes));
    room -= edges.size() * kEdgeBytes;
    write(body, *plan, edges);
    written++;
  }
  ByteWriter out;
  out.u8(kVersion).u64(digest.span_ns).u64(digest.without_core_ns);
  out.u32(digest.cores_between ? 1 + in_thousandths(*digest.cores_between) : 0);
  out.u32(static_cast<uint32_t>(paces.size()));
  for (const DigestPace* const pace : paces)
    out.u32(pace->comm).u32(pace->pairs).u64(pace->between_ns).u64(pace->period_ns);
  out.u32(written).bytes(body.take());
  return out.take();
}

Result<Digest> decode_digest(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Digest digest;
  if (in.u8() != kVersion || bytes.size() > kMostDigestBytes) in.fail();
  digest.span_ns = in.u64();
  digest.without_core_ns = in.u64();
  if (digest.without_core_ns > digest.span_ns) in.fail();
  if (const uint32_t cores = in.u32(); cores > 0) digest.cores_between = (cores - 1) / kThousandths;
  const uint32_t paces = in.count(kPaceBytes);
  for (uint32_t p = 0; p < paces && in.ok(); p++) {
    DigestPace pace;
    pace.comm = in.u32();
    pace.pairs = in.u32();
    pace.between_ns = in.u64();
    pace.period_ns = in.u64();
    digest.paces.push_back(pace);
  }
  const uint32_t plans = in.count(kPlanBytes);
  for (uint32_t p = 0; p < plans && in.ok(); p++) digest.plans.push_back(read_plan(in));
  SENNIT_RETURN_IF_ERROR(in.finish("a digest"));
  return digest;
}

}  // namespace sennit::watch
