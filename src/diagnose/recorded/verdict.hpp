// verdict.hpp: what is wrong with a job, by its recordings: first a sentence for somebody who was
// woken by it, then why that is said, and what was looked at and found well.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/hang/hang.hpp"
#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit::diagnose {

// From what stops a job to what only costs it time.
enum class VerdictKind : uint8_t { well, hang, failed, gone, slow_link, late_rank, starved_rank };
std::string_view name(VerdictKind kind);  // "slow_link"

// A link that carries less than it should, or several of which one does.
struct FoundLink {
  std::vector<std::string> names;  // as Verdict::links
  double factor = 1;               // as Verdict::factor
  bool whole_tier = false;         // all of them do
  std::optional<uint32_t> comm;    // by whose calls it was found, where that is known
};

// The first line, what stands behind it, and the same for programs.
struct Verdict {
  VerdictKind kind = VerdictKind::well;
  std::string sentence;
  std::vector<std::string> evidence;
  std::vector<std::string> ruled_out;
  std::string next;  // what to do, or to run

  std::vector<int> ranks;          // to blame, world ranks
  int latest = -1;                 // of late ones
  std::vector<std::string> links;  // of which one is to blame: "out of rack1"
  // Which of a link's cables, by the forwarding tables; empty: not known.
  std::vector<std::string> cables;
  double factor = 1;      // of a slow link: what it should carry over what it does; 0: not known
  double cost = 0;        // part of the time that is lost to it
  double confidence = 0;  // 0 to 1; of a slow link alone
  std::optional<Hang> hang;
  std::vector<FoundLink> slow;  // all that were found, also beside what costs more
};

// What was told last of that while the job ran, and still holds. Where the job has gone on or ended
// since, a hang is over that nobody has withdrawn. Null: nothing.
const VerdictNote* told_still(const JobRecording& job, VerdictAbout about);

// The sentence, also where nothing is wrong.
std::string headline(const Verdict& verdict);
// What stands behind it, a line each, and what was ruled out, which is marked so.
std::vector<std::string> reasons(const Verdict& verdict);

// From when on something is wrong.
struct JudgeOptions {
  uint64_t quiet_ns = 2'000'000'000;  // a call in which nothing moves for so long hangs
  // Of a job that runs, CLOCK_REALTIME now, by which it is said how long ago rank 0 told something.
  std::optional<uint64_t> now_ns;
  double least_factor = 1.1;   // of slow links
  double least_cost = 0.05;    // of slow ranks
  double least_starved = 0.1;  // part of the time without a core, over the usual rank's
  // Of the job's InfiniBand subnet, with forwarding tables: they tell which cable of a slow link.
  const IbSubnet* subnet = nullptr;
  // What messages took, where that is known otherwise than by the recordings, which have none then.
  const ObservedPlan* observed = nullptr;
};
// What stops the job comes before what costs it time; of what costs time, that which costs most.
Verdict judge(const JobRecording& job, Plans& plans, const JudgeOptions& options);

}  // namespace sennit::diagnose
