// report_test.cpp: the fabric as traffic has shown it: what a slow link carries, of a whole tier
// what each does, and notes on what cannot be said; and the verdict for programs.
//
// ctest links: sennit_commands
// ctest not-under-tsan: it has one thread
#include "command/diagnose/report.hpp"

#include <string>

#include <gtest/gtest.h>

#include "base/text/json.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"

namespace sennit::diagnose {
namespace {

// A job of six hosts in three racks, of which nothing is recorded but what they plan with.
class FabricOf : public testing::Test {
 protected:
  FabricOf() {
    const Fabric fabric = *synthetic_fabric("racks=2,2,2;nic=400Mbit/s;oversubscription=4");
    job_.fabric = fabric.to_text();
    job_.placements = ranks_on_all_hosts(fabric, 1);
    job_.size = static_cast<int>(job_.placements.size());
    for (int number = 0; number < job_.size; number++) {
      RankRecording& rank = job_.ranks.emplace_back();
      rank.rank = number;
      rank.size = job_.size;
      rank.state = RankState::ended;
      job_.communicators[1].push_back(number);
    }
    job_.index();
  }
  // What the rack's uplink carries by that fabric.
  double out_of(const std::string& rack, const std::string& fabric) const {
    const TierTree tree = *contract(*parse_fabric(fabric, "it"), job_.placements);
    for (const Group& group : tree.groups)
      if (group.name == rack) return static_cast<double>(group.egress.bytes_per_s);
    ADD_FAILURE() << "no group is called " << rack;
    return 0;
  }
  JobRecording job_;
};

TEST_F(FabricOf, ALinkWhoseRateIsNotKnownGetsANote) {
  Plans plans(job_);
  Verdict verdict;
  for (const bool several : {false, true}) {
    FoundLink slow{{"out of h1"}, 0, false, 1};
    if (several) slow.names.emplace_back("into h2");
    verdict.slow.push_back(slow);
  }
  const std::string text = *fabric_text(job_, verdict, plans);
  for (const std::string& note :
       {std::string("by traffic: out of h1 is slower than its like; its rate is not known"),
        std::string("by traffic: out of h1 or into h2 is slower than its like")})
    EXPECT_NE(text.find(note), std::string::npos) << note << " in:\n" << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  EXPECT_EQ(out_of("rack1", text), out_of("rack1", job_.fabric));
}

// Of a split's groups but the first the number in the job is none that its ranks know.
TEST_F(FabricOf, AHangIsOfTheCommunicatorThatItsRanksKnow) {
  constexpr uint32_t kSecondGroup = 0x78000001;
  job_.communicators[kSecondGroup] = {3, 4, 5};
  job_.numbers = {{1, 1}, {3, 3}, {kSecondGroup, 3}};
  Plans plans(job_);
  Verdict verdict;
  verdict.kind = VerdictKind::hang;
  verdict.hang.emplace().comm = kSecondGroup;
  const std::string json = verdict_json(job_, verdict, plans);
  EXPECT_NE(json.find("\"communicator\": 3,"), std::string::npos) << json;
  const nlohmann::json hang = nlohmann::json::parse(json)["hang"];
  EXPECT_EQ(hang["members"], nlohmann::json({3, 4, 5})) << json;
}

// As it was told while the job ran.
TEST_F(FabricOf, AWholeTierThatWasToldOfIsSlowerAltogether) {
  VerdictNote told;
  told.when_ns = 1;
  told.sentence = "every rack's link: 50% of its capacity";
  told.links = {"rack0", "rack1", "rack2"};
  told.factor = 2;
  told.tier = 1;
  job_.verdicts = {{0, told}};
  Plans plans(job_);
  const Verdict verdict = judge(job_, plans, {});
  EXPECT_EQ(verdict.kind, VerdictKind::slow_link) << verdict.sentence;
  const std::string text = *fabric_text(job_, verdict, plans);
  for (const std::string& rack : told.links)
    EXPECT_NEAR(out_of(rack, text) / out_of(rack, job_.fabric), 0.5, 0.001) << text;
}

}  // namespace
}  // namespace sennit::diagnose
