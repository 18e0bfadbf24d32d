// judge.cpp: see watch/judge.hpp.
#include "watch/judge.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/by_chance.hpp"
#include "base/clock.hpp"
#include "base/index.hpp"
#include "base/median.hpp"
#include "diagnose/links.hpp"
#include "diagnose/sentences.hpp"

namespace sennit::watch {
namespace {

// A plan that has fewer says nothing yet, as connections are made in the first calls.
constexpr uint64_t kLeastCalls = 4;
// In a few calls it is chance which messages wait for which. So of long ones some of the latest
// digests are taken together, until they have as many calls.
constexpr uint32_t kEnoughCalls = 6;
constexpr size_t kMostTold = 4;
constexpr size_t kMostPlans = 256;    // of a communicator; of more, nothing is kept
constexpr size_t kMostComms = 4096;   // those that come later are not watched
constexpr size_t kMostNotes = 65536;  // on plans, likewise
// Calls that take longer than they should by less are well.
constexpr double kSlower = 1.05;
constexpr uint64_t kWellFor = 20'000'000'000;  // ns
// Of the time: who is in calls for less hardly uses the network.
constexpr double kBusy = 0.1;

// Of this thread: on a busy host the ranks' work does not count.
uint64_t own_cpu_ns() {
  constexpr uint64_t kNsPerS = 1'000'000'000;
  struct timespec time {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerS + static_cast<uint64_t>(time.tv_nsec);
}

bool all_fresh(const std::vector<bool>& fresh) {
  return !fresh.empty() && std::find(fresh.begin(), fresh.end(), false) == fresh.end();
}

uint64_t received(const DigestPlan& plan) {
  uint64_t bytes = 0;
  for (const DigestEdge& edge : plan.edges) bytes += edge.bytes;
  return bytes;
}

// Both together, in what links are judged by. `plan` is the older one.
void add(DigestPlan* plan, const DigestPlan& newer) {
  plan->last = newer.last;
  plan->calls += newer.calls;
  plan->alone += newer.alone;
  plan->alone_ns += newer.alone_ns;
  plan->quickest_ns = std::min(plan->quickest_ns, newer.quickest_ns);
  for (const DigestEdge& edge : newer.edges) {
    const auto known = std::find_if(plan->edges.begin(), plan->edges.end(),
                                    [&](const DigestEdge& one) { return one.peer == edge.peer; });
    if (known == plan->edges.end()) {
      plan->edges.push_back(edge);
      continue;
    }
    known->bytes += edge.bytes;
    known->service_ns += edge.service_ns;
  }
}

bool crosses(const TierTree& tree, const diagnose::ObservedPlan& observed,
             const LiveVerdict& verdict) {
  for (const diagnose::EdgeTime& edge : *observed.edges.front()) {
    if (edge.bytes < diagnose::kLeastEdgeBytes) continue;
    for (const diagnose::DirectedGroup& link : diagnose::way_of(tree, edge.from, edge.to))
      if (is_blamed(verdict, link)) return true;
  }
  return false;
}

// Of a member, how long a call took it, whoever it waited for.
double mean_ns(const DigestPlan& plan) {
  return static_cast<double>(plan.alone_ns) / static_cast<double>(std::max(1u, plan.alone));
}

// What a call takes once the last has come. The rank that came last waits for nobody; in a call
// with a root, whoever does not need the others may be gone before they begin.
double time_of(const std::vector<DigestPlan>& by_member, bool rooted) {
  std::vector<double> times;
  for (const DigestPlan& plan : by_member) times.push_back(mean_ns(plan));
  return rooted ? median(std::move(times)) : *std::min_element(times.begin(), times.end());
}

// The shortest call, as it was for whom it was longest.
double quickest_of(const std::vector<DigestPlan>& by_member) {
  uint64_t quickest_ns = 0;
  for (const DigestPlan& plan : by_member) quickest_ns = std::max(quickest_ns, plan.quickest_ns);
  return static_cast<double>(quickest_ns);
}

diagnose::JobRecording job_of(const std::string& fabric, std::vector<Placement> placements) {
  diagnose::JobRecording job;
  job.size = static_cast<int>(placements.size());
  job.fabric = fabric;
  job.placements = std::move(placements);
  return job;
}

// What one look has found, if anything.
void see(Streak* streak, std::optional<LiveVerdict> found, std::vector<LiveVerdict>* out) {
  if (found) found->since_ns = realtime_ns();
  for (LiveVerdict& verdict : streak->see(std::move(found))) out->push_back(std::move(verdict));
}

}  // namespace

Judge::Judge(const std::string& fabric, std::vector<Placement> placements, const JudgeRules& rules)
    : rules_(rules),
      job_(job_of(fabric, std::move(placements))),
      plans_(job_),
      without_core_(index(job_.size)),
      cores_between_(index(job_.size)) {}

Judge::~Judge() = default;

void Judge::note(int rank, const Note& note) {
  if (const auto* comm = std::get_if<CommunicatorNote>(&note)) {
    if (!diagnose::is_sound(*comm, rank, job_.size) || numbers_.knows(*comm) ||
        comms_.size() >= kMostComms)
      return;
    OfComm& of = comms_[numbers_.take(*comm)];
    of.known_as = comm->id;
    of.members = comm->members;
    of.paces.resize(of.members.size());
    of.fresh_paces.resize(of.members.size());
    of.heard_ns = listened_ns_;
  } else if (const auto* plan = std::get_if<PlanNote>(&note)) {
    const std::optional<uint32_t> number = numbers_.of(plan->comm, rank);
    if (!number || job_.plans.size() >= kMostNotes) return;
    PlanNote renumbered = *plan;
    renumbered.comm = *number;
    job_.plans.try_emplace({*number, plan->hash}, std::move(renumbered));
  }
}

void Judge::digest(int rank, Digest digest, uint64_t now_ns) {
  without_core_[index(rank)] = static_cast<double>(digest.without_core_ns) /
                               static_cast<double>(std::max<uint64_t>(1, digest.span_ns));
  cores_between_[index(rank)] = digest.cores_between;
  listened_ns_ += std::min(now_ns - std::min(now_ns, last_digest_ns_), digest.span_ns);
  last_digest_ns_ = now_ns;
  std::map<uint32_t, uint64_t> in_calls;
  const auto find = [&](uint32_t known_as) -> std::pair<OfComm*, size_t> {
    const std::optional<uint32_t> number = numbers_.of(known_as, rank);
    if (!number || !comms_.contains(*number)) return {nullptr, 0};
    OfComm& comm = comms_.at(*number);
    comm.heard = true;
    const auto at = std::find(comm.members.begin(), comm.members.end(), rank);
    return {&comm, static_cast<size_t>(at - comm.members.begin())};
  };
  for (DigestPlan& plan : digest.plans) {
    const auto [comm, member] = find(plan.comm);
    if (!comm) continue;
    in_calls[plan.comm] += plan.in_calls_ns;
    if (static_cast<double>(in_calls[plan.comm]) > kBusy * static_cast<double>(digest.span_ns))
      comm->busy_until_ns = now_ns + rules_.forgotten_ns;
    if (plan.alone == 0) continue;
    if (!comm->plans.contains(plan.plan) && comm->plans.size() >= kMostPlans) comm->plans.clear();
    OfPlan& of = comm->plans[plan.plan];
    of.told.resize(comm->members.size());
    of.fresh.resize(comm->members.size());
    if (member == 0) of.calls += plan.calls;
    of.fresh[member] = true;
    if (of.told[member].size() >= kMostTold) of.told[member].erase(of.told[member].begin());
    of.told[member].push_back({now_ns, std::move(plan)});
  }
  for (const DigestPace& pace : digest.paces) {
    const auto [comm, member] = find(pace.comm);
    if (!comm || pace.pairs == 0) continue;
    comm->fresh_paces[member] = true;
    comm->paces[member] = pace;
  }
}

std::vector<LiveVerdict> Judge::look(uint64_t now_ns) {
  std::vector<LiveVerdict> told;
  forget_unheard(&told);
  // Who had no time goes first: else those with the lowest numbers would take all of it for ever.
  const auto first = comms_.lower_bound(std::exchange(without_time_, std::nullopt).value_or(0));
  const auto links = [&](auto& one) { look_at_links(one.first, &one.second, now_ns, &told); };
  std::for_each(first, comms_.end(), links);
  std::for_each(comms_.begin(), first, links);
  for (auto& [number, comm] : comms_) look_at_ranks(&comm, &told);
  for (LiveVerdict& verdict : told) verdict.when_ns = realtime_ns();
  return told;
}

// A communicator that was freed, or is not used any more, would blame its links and ranks for ever.
void Judge::forget_unheard(std::vector<LiveVerdict>* out) {
  constexpr uint64_t kFades = 32;  // in so many looks, about
  for (auto& [number, comm] : comms_) {
    const uint64_t unheard_ns = listened_ns_ - comm.heard_ns;
    if (std::exchange(comm.heard, false)) {
      comm.apart_ns = std::max(unheard_ns, comm.apart_ns - comm.apart_ns / kFades);
      comm.heard_ns = listened_ns_;
    } else if (unheard_ns > std::max(rules_.forgotten_ns, Streak::kLookLong * comm.apart_ns)) {
      for (Streak* const streak : {&comm.link, &comm.late, &comm.starved})
        if (std::optional<LiveVerdict> over = streak->end()) out->push_back(*std::move(over));
    }
  }
}

// ---- links ----

// Whether ranks that are not members may be in calls of another communicator meanwhile, and use the
// same links. What members do besides, they know themselves (DigestPlan::alone).
bool Judge::disturbed(uint32_t number, uint64_t now_ns) const {
  const std::vector<int>& members = comms_.at(number).members;
  const std::set<int> own(members.begin(), members.end());
  for (const auto& [other, comm] : comms_)
    if (other != number && comm.busy_until_ns > now_ns &&
        !std::all_of(comm.members.begin(), comm.members.end(),
                     [&](int rank) { return own.contains(rank); }))
      return true;
  return false;
}

// By member.
std::vector<double> Judge::without_core(const OfComm& comm) const {
  std::vector<double> parts;
  for (const int rank : comm.members) parts.push_back(without_core_[index(rank)]);
  return parts;
}

// The part of the time in which most members were not halted, as by the machine under them. Calls
// take longer by the rest, at most.
double Judge::usually_ran(const OfComm& comm) const { return 1 - lower_median(without_core(comm)); }

// By member: as many of the latest digests together, of each member, as have enough calls.
std::vector<DigestPlan> Judge::lately(const OfPlan& plan, uint64_t now_ns) const {
  size_t together = kMostTold;
  for (const std::vector<Told>& told : plan.told) {
    const auto first = std::find_if(told.begin(), told.end(), [&](const Told& one) {
      return one.at_ns + rules_.forgotten_ns > now_ns;
    });
    together = std::min(together, static_cast<size_t>(told.end() - first));
  }
  const auto has_enough = [](const std::vector<Told>& told, size_t digests) {
    uint32_t calls = 0;
    for (size_t back = 1; back <= digests; back++) calls += told[told.size() - back].plan.alone;
    return calls >= kEnoughCalls;
  };
  size_t digests = 1;
  while (digests < together &&
         !std::all_of(plan.told.begin(), plan.told.end(),
                      [&](const std::vector<Told>& told) { return has_enough(told, digests); }))
    digests++;
  std::vector<DigestPlan> by_member;
  for (const std::vector<Told>& told : plan.told) {
    auto from = told.end() - static_cast<std::ptrdiff_t>(digests);
    by_member.push_back((from++)->plan);
    for (; from != told.end(); ++from) add(&by_member.back(), from->plan);
  }
  return by_member;
}

// One call, made of the means of all; nothing where no edge moved enough to say something.
std::optional<diagnose::ObservedPlan> Judge::observe(
    uint32_t number, const OfPlan& plan, const std::vector<DigestPlan>& by_member) const {
  const DigestPlan& any = by_member.front();
  const PlanNote* const note = plans_.note(number, any.plan);
  const TierTree* const tree = plans_.tree(number);
  // Where ranks do not know each other's counts nothing is expected of them.
  if (!note || !tree || (note->request.vector_variant && note->request.counts.empty()))
    return std::nullopt;
  diagnose::ObservedPlan observed;
  observed.comm = number;
  observed.plan = any.plan;
  observed.calls = {any.last};
  const double ran = usually_ran(comms_.at(number));
  std::vector<diagnose::EdgeTime> edges;
  bool enough = false;
  for (size_t m = 0; m < by_member.size(); m++) {
    const DigestPlan& of_member = by_member[m];
    const int to = plans_.position(number, comms_.at(number).members[m]);
    for (const DigestEdge& edge : of_member.edges) {
      const int from = plans_.position(number, edge.peer);
      if (from < 0 || to < 0 || from == to) continue;
      diagnose::EdgeTime time;
      time.from = from;
      time.to = to;
      time.bytes = edge.bytes / of_member.alone;
      time.service_ns = ran * static_cast<double>(edge.service_ns) / of_member.alone;
      enough |= time.bytes >= diagnose::kLeastEdgeBytes;
      edges.push_back(std::move(time));
    }
  }
  observed.edges = {std::make_shared<const std::vector<diagnose::EdgeTime>>(std::move(edges))};
  observed.time_ns = {ran * time_of(by_member, has_root(note->request.collective))};
  observed.quickest_ns = ran * quickest_of(by_member);
  observed.well_ns = plan.well_ns;
  // Where a plan was made around a slow link, calls are well while that is slow.
  if (note->slow.empty()) observed.well_service_ns = plan.well_service_ns;
  return enough ? std::optional(std::move(observed)) : std::nullopt;
}

// Calls that take as long as they did when nothing was found are well, for a while: what was too
// little to be named may be more by and by.
bool Judge::is_suspicious(uint32_t number, const OfPlan& plan, double took_ns,
                          uint64_t now_ns) const {
  const PlanNote& note = *plans_.note(number, plan.told.front().back().plan.plan);
  // Planned around a slow link, it takes what it should while that is slow: only the solver can
  // tell when it is not any more.
  if (!note.slow.empty()) return true;
  const bool lately = plan.well_at_ns + kWellFor > now_ns;
  if (plan.well_ns > 0 && lately && took_ns <= kSlower * plan.well_ns) return false;
  return took_ns > kSlower * static_cast<double>(note.predicted_ns);
}

std::optional<LiveVerdict> Judge::solve(uint32_t number, const OfComm& comm,
                                        const diagnose::ObservedPlan& observed) {
  const std::optional<diagnose::SlowLink> slow =
      diagnose::find_slow_link(plans_, observed, rules_.least_factor, diagnose::kWhileItRuns).slow;
  if (!slow) return std::nullopt;
  const TierTree& tree = *plans_.tree(number);
  LiveVerdict verdict;
  verdict.about = VerdictAbout::link;
  verdict.comm = comm.known_as;
  verdict.members = comm.members;
  verdict.plan = observed.plan;
  verdict.judged = *plans_.note(number, observed.plan);
  verdict.suspects = slow->suspects;
  verdict.links = diagnose::link_names(tree, *slow);
  verdict.tier = slow->tier;
  verdict.both_ways = slow->both_ways;
  verdict.factor = slow->factor;
  verdict.confidence = slow->confidence;
  verdict.cost = slow->cost;
  verdict.sentence =
      diagnose::slow_link_sentence(tree, *slow, "", plans_.call_name(number, observed.plan));
  return verdict;
}

// What was not used of its time it may use later, but no more than it takes to find something.
void Judge::spend(uint64_t ns, uint64_t now_ns) {
  const uint64_t rest_ns = rules_.solver_part * ns, saved_ns = Streak::kLookLong * rest_ns;
  next_solving_ns_ = std::max(next_solving_ns_, now_ns - std::min(now_ns, saved_ns)) + rest_ns;
}

// Whether calls that were found well are well because of the links that are blamed.
bool Judge::says_something(uint32_t number, const OfComm& comm,
                           const diagnose::ObservedPlan& observed) const {
  const TierTree& tree = *plans_.tree(number);
  const LiveVerdict* const told = comm.link.told();
  const LiveVerdict* const candidate = comm.link.candidate();
  return (told && crosses(tree, observed, *told)) ||
         (candidate && crosses(tree, observed, *candidate));
}

// What begins to be slow is in a few of a digest's calls at first, and one look may miss it. So a
// look counts as well once some more have found nothing after it. What calls took is kept as it
// was: they may have waited less for those that were halted than was taken out.
void Judge::remember_well(OfPlan* plan, const diagnose::ObservedPlan& observed, double ran) const {
  constexpr double kNew = 0.3, kLeastRan = 0.5;
  if (ran < kLeastRan) return;
  plan->found_nothing.push_back({ran, observed.time_ns.front() / ran, observed.edges.front()});
  if (plan->found_nothing.size() < Streak::kLookLong) return;
  const FoundNothing well = std::move(plan->found_nothing.front());
  plan->found_nothing.pop_front();
  // Connections were made in the first calls, or others used the links.
  if (plan->well_ns > kSlower * well.took_ns) plan->well_service_ns.clear();
  plan->well_ns = plan->well_ns > 0 ? std::min(plan->well_ns, well.took_ns) : well.took_ns;
  if (well.took_ns > kSlower * plan->well_ns) return;
  for (const diagnose::EdgeTime& edge : *well.edges) {
    const double service_ns = edge.service_ns / well.ran;
    const auto [known, added] = plan->well_service_ns.try_emplace({edge.from, edge.to}, service_ns);
    if (!added) known->second += kNew * (service_ns - known->second);
  }
}

// By the plan that moved most. What is not judged now, for want of time, is judged later.
void Judge::look_at_links(uint32_t number, OfComm* comm, uint64_t now_ns,
                          std::vector<LiveVerdict>* out) {
  OfPlan* most = nullptr;
  uint64_t most_bytes = 0;
  for (auto& [hash, plan] : comm->plans) {
    if (!all_fresh(plan.fresh)) continue;
    uint64_t bytes = 0;
    for (const std::vector<Told>& told : plan.told) bytes += received(told.back().plan);
    if (most && bytes <= most_bytes) continue;
    most = &plan;
    most_bytes = bytes;
  }
  if (!most) return;
  if (now_ns < next_solving_ns_) {
    if (!without_time_) without_time_ = number;
    return;
  }
  most->fresh.assign(most->fresh.size(), false);
  const std::optional<diagnose::ObservedPlan> observed =
      observe(number, *most, lately(*most, now_ns));
  if (!observed || most->looks++ == 0 || most->calls < kLeastCalls || disturbed(number, now_ns))
    return;
  // What waits for a rank that does not run waits for no link.
  if (!starved(*comm).empty()) return;
  const double took_ns = observed->time_ns.front();
  std::optional<LiveVerdict> found;
  if (is_suspicious(number, *most, took_ns, now_ns)) {
    const uint64_t begin_ns = own_cpu_ns();
    found = solve(number, *comm, *observed);
    spend(own_cpu_ns() - begin_ns, now_ns);
    if (!found) most->well_at_ns = now_ns;
  }
  const bool blamed = says_something(number, *comm, *observed);
  if (!found && !blamed) return remember_well(most, *observed, usually_ran(*comm));
  for (auto& [hash, plan] : comm->plans) plan.found_nothing.clear();
  see(&comm->link, std::move(found), out);
}

// ---- ranks ----

// Members that get no core for more of their time than the usual one, and than most differ from it.
// On hosts whose cores many ranks share all of them are without one at times, some more and some
// less: there it takes twice as much.
std::vector<int> Judge::starved(const OfComm& comm) const {
  std::vector<double> parts = without_core(comm);
  const double usual = lower_median(parts);
  const double least =
      usual + std::max({rules_.least_starved, chance_above(std::move(parts)), usual});
  std::vector<int> ranks;
  for (const int rank : comm.members)
    if (without_core_[index(rank)] >= least) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<LiveVerdict> Judge::starvation(const OfComm& comm,
                                             const std::vector<int>& ranks) const {
  if (ranks.empty()) return std::nullopt;
  std::vector<double> periods;
  for (const DigestPace& pace : comm.paces) periods.push_back(static_cast<double>(pace.period_ns));
  LiveVerdict verdict;
  verdict.about = VerdictAbout::starved_ranks;
  verdict.comm = comm.known_as;
  verdict.members = comm.members;
  verdict.ranks = ranks;
  for (const int rank : ranks) verdict.cost = std::max(verdict.cost, without_core_[index(rank)]);
  verdict.late_ns = verdict.cost * median(std::move(periods));
  verdict.sentence = diagnose::starved_ranks_sentence(verdict.ranks, verdict.cost);
  return verdict;
}

// Who is in no call for longer than the others, between calls that all make: for longer than most
// differ from one another, and than any differs from look to look, and not in this look alone; or
// as well, if by less, so often that chance does not explain it. Where half of them are late the
// usual one is late, and nobody is.
std::vector<size_t> Judge::late_members(OfComm* comm, double period_ns) const {
  constexpr size_t kLooks = 32, kLeastLooks = 4;
  constexpr double kMostLikely = 1e-6;  // it is asked again and again
  constexpr double kTimes = 4;
  std::vector<double> between;
  for (const DigestPace& pace : comm->paces)
    between.push_back(static_cast<double>(pace.between_ns));
  const double usual = lower_median(between);
  comm->late_ns.resize(between.size());
  double differs = 0;
  for (size_t m = 0; m < between.size(); m++) {
    std::vector<double>& its = comm->late_ns[m];
    if (its.size() == kLooks) its.erase(its.begin());
    its.push_back(between[m] - usual);
    for (size_t look = 1; look < its.size(); look++) differs += std::abs(its[look] - its[look - 1]);
  }
  // In one look nobody can tell that.
  const size_t looks = comm->late_ns.front().size();
  if (looks < 2) return {};
  differs /= static_cast<double>((looks - 1) * between.size());
  const double least = std::max(rules_.least_late_ns, rules_.least_late_cost * period_ns);
  const double by_far = std::max({least, chance_above(between), kTimes * differs});
  std::vector<double> likely;  // asked for where it matters alone
  std::vector<size_t> late;
  for (size_t m = 0; m < between.size(); m++) {
    const std::vector<double>& its = comm->late_ns[m];
    if (its.back() < least) continue;
    if (its.back() < by_far || *(its.end() - 2) < by_far / 2) {
      if (median(its) < least) continue;
      if (likely.empty()) likely = likely_by_chance(comm->late_ns, kLeastLooks);
      if (static_cast<double>(between.size()) * likely[m] > kMostLikely) continue;
    }
    late.push_back(m);
  }
  return late;
}

// `known`: it is known why these are late.
std::optional<LiveVerdict> Judge::late(OfComm* comm, const std::set<int>& known) const {
  std::vector<double> periods;
  for (const DigestPace& pace : comm->paces) periods.push_back(static_cast<double>(pace.period_ns));
  const double period = median(std::move(periods));
  LiveVerdict verdict;
  verdict.about = VerdictAbout::late_ranks;
  verdict.comm = comm->known_as;
  verdict.members = comm->members;
  for (const size_t m : late_members(comm, period)) {
    const double late_ns = comm->late_ns[m].back();
    if (known.contains(comm->members[m])) continue;
    verdict.ranks.push_back(comm->members[m]);
    if (late_ns < verdict.late_ns) continue;
    verdict.late_ns = late_ns;
    verdict.latest = comm->members[m];
    verdict.cores = cores_between_[index(comm->members[m])];
  }
  if (verdict.ranks.empty()) return std::nullopt;
  std::sort(verdict.ranks.begin(), verdict.ranks.end());
  verdict.cost = verdict.late_ns / period;
  verdict.sentence = diagnose::late_ranks_sentence(verdict.ranks, verdict.late_ns, verdict.cost,
                                                   verdict.latest, verdict.cores);
  return verdict;
}

void Judge::look_at_ranks(OfComm* comm, std::vector<LiveVerdict>* out) {
  if (!all_fresh(comm->fresh_paces)) return;
  comm->fresh_paces.assign(comm->fresh_paces.size(), false);
  if (comm->pace_looks++ == 0) return;
  const std::vector<int> without = starved(*comm);
  const std::set<int> told = told_by_others(&OfComm::starved, *comm);
  std::vector<int> untold = without;
  std::erase_if(untold, [&](int rank) { return told.contains(rank); });
  see(&comm->starved, starvation(*comm, untold), out);
  std::set<int> known = told_by_others(&OfComm::late, *comm);
  known.insert(without.begin(), without.end());
  see(&comm->late, late(comm, known), out);
}

// Of ranks that are in several communicators it is told by the calls of one alone: those of which
// it is told by another's.
std::set<int> Judge::told_by_others(Streak OfComm::*streak, const OfComm& comm) const {
  std::set<int> ranks;
  for (const auto& [number, other] : comms_)
    if (const LiveVerdict* const told = (other.*streak).told(); told && &other != &comm)
      ranks.insert(told->ranks.begin(), told->ranks.end());
  return ranks;
}

}  // namespace sennit::watch
