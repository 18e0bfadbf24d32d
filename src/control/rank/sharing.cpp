// sharing.cpp: see control/rank/sharing.hpp.
#include "control/rank/sharing.hpp"

#include <sodium.h>

#include <algorithm>
#include <set>
#include <utility>

namespace sennit::control {
namespace {

constexpr std::string_view kLabel = "sennit membership 1";

// Worth nothing for another new job, another rank of it, or another membership.
std::array<std::byte, sizeof(Claim::proof)> prove(const std::vector<std::byte>& secret,
                                                  uint64_t new_job, int new_rank, uint64_t job,
                                                  int rank) {
  ByteWriter said;
  said.text(kLabel).u64(new_job).rank(new_rank).u64(job).rank(rank);
  const std::vector<std::byte> bytes = said.take();
  std::array<std::byte, sizeof(Claim::proof)> proof;
  crypto_generichash(reinterpret_cast<unsigned char*>(proof.data()), proof.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  return proof;
}

}  // namespace

std::vector<Claim> claims_of(const Self& self) {
  std::vector<Claim> claims;
  if (self.options.job == 0) return claims;
  for (const Membership& one : self.options.memberships) {
    if (claims.size() == kMostClaims) break;
    claims.push_back(
        {one.job, one.rank, prove(one.secret, self.options.job, self.rank, one.job, one.rank)});
  }
  return claims;
}

void Sharing::begin() {
  if (self_.options.job == 0 || self_.size == 1) return;
  for (const Membership& one : self_.options.memberships) candidates_.emplace(one.job, &one);
  hear(self_.rank, claims_of(self_));
}

bool Sharing::proves(int rank, const Claim& claim) const {
  const auto found = candidates_.find(claim.job);
  if (found == candidates_.end()) return false;
  const Membership& mine = *found->second;
  if (claim.rank < 0 || claim.rank >= mine.size) return false;
  const auto proof = prove(mine.secret, self_.options.job, rank, claim.job, claim.rank);
  return sodium_memcmp(proof.data(), claim.proof.data(), proof.size()) == 0;
}

void Sharing::hear(int rank, const std::vector<Claim>& claims) {
  if (!possible()) return;
  std::set<uint64_t> jobs;
  std::vector<Claim>& proved = claims_[rank];
  proved.clear();
  for (const Claim& claim : claims) {
    if (!proves(rank, claim)) continue;
    jobs.insert(claim.job);
    proved.push_back(claim);
  }
  std::erase_if(candidates_, [&](const auto& one) { return !jobs.contains(one.first); });
  if (!possible()) claims_.clear();
}

// The lowest rank that is left, for one new rank after the other. That fails where it need not only
// if ranks claim memberships that overlap in part, which those of processes do not.
std::optional<SharedJob> Sharing::members_of(const Membership& membership) const {
  SharedJob shared{membership.job, 0, {}};
  std::set<int> taken;
  for (int rank = 0; rank < self_.size; rank++) {
    const auto claims = claims_.find(rank);
    if (claims == claims_.end()) return std::nullopt;
    int lowest = membership.size;
    for (const Claim& claim : claims->second)
      if (claim.job == membership.job && !taken.contains(claim.rank))
        lowest = std::min(lowest, claim.rank);
    if (lowest == membership.size) return std::nullopt;
    taken.insert(lowest);
    shared.members.push_back(lowest);
  }
  return shared;
}

std::optional<SharedJob> Sharing::choose() {
  const auto candidates = std::exchange(candidates_, {});
  for (const auto& [job, any_of_mine] : candidates) {
    std::optional<SharedJob> shared = members_of(*any_of_mine);
    if (!shared) continue;
    // The number is one that this rank 0 may give out as the rank that it is there.
    for (const Membership& mine : self_.options.memberships)
      if (mine.job == job && mine.rank == shared->members[0]) shared->number = mine.number;
    if (shared->number != 0) return shared;
  }
  claims_.clear();
  return std::nullopt;
}

}  // namespace sennit::control
