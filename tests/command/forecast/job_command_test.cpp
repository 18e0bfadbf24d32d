// job_command_test.cpp: `sennit job` as its users call it: what a badly ordered mesh costs, curves,
// files, and calls that are off.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

namespace {

using nlohmann::json;
using sennit_test::Outcome;
using sennit_test::sh;

const std::string kSennit = SENNIT_BINARY_DIR "/bin/sennit job ";
// Four pods of 4 racks of 2 hosts of 8 GPUs.
const std::string kSmall =
    " --fabric "
    "'pods=4x4x2;ranks=8;nic=400GB/s;oversubscription=1,7;local=500GB/"
    "s;latency=14us;local_latency=3.4us'";

json answer(const std::string& arguments) {
  const Outcome outcome = sh(kSennit + arguments + " --json - 2>&1");
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.output;
  return json::parse(outcome.output, nullptr, false);
}

TEST(JobCommand, ReferenceJob) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const json job = answer(
      "llama3-405b --fabric meta24k --gpus 16384 --mesh tp8,pp16,dp128 --no-curve --gpu-hour-usd "
      "2");
  ASSERT_TRUE(job.is_object());
  EXPECT_NEAR(job["flops_6np"].get<double>(), 3.8e25, 0.01e25);
  EXPECT_NEAR(job["step"]["mfu"].get<double>(), 0.41, 0.02);
  EXPECT_NEAR(job["cost"]["usd_gpus"].get<double>(), 2 * job["cost"]["gpu_hours"].get<double>(), 1);
  EXPECT_TRUE(job["cost"]["usd_staff"].is_null());
  ASSERT_EQ(job["groups"].size(), 3u);
  EXPECT_EQ(job["groups"][2]["number"], 128);
  EXPECT_EQ(job["groups"][2]["spread"]["pod"]["most"], 6);
  // Data-parallel transfers at a NIC's rate: the groups have 24 members in a pod, so 7:1 does not
  // bind.
  for (const json& call : job["calls"]) {
    if (call["groups"] != "dp") continue;
    EXPECT_NEAR(call["bound_s"].get<double>(), call["bytes"].get<double>() * (1 - 1.0 / 128) / 50e9,
                1e-4);
  }
  // Tensor parallelism across pods: no order is worse, and it shows.
  const json& orders = job["orders"];
  EXPECT_EQ(orders.front()["mesh"], "tp8,pp16,dp128");
  EXPECT_GT(orders.back()["step_s"].get<double>(), 4 * orders.front()["step_s"].get<double>());
  double parts = 0;
  for (const char* part : {"matmul_s", "attention_s", "elementwise_s", "tensor_s", "context_s",
                           "bubble_s", "pipeline_s", "data_s", "optimizer_s"})
    parts += job["step"][part].get<double>();
  EXPECT_NEAR(parts, job["step"]["seconds"].get<double>(), 1e-9);
}

TEST(JobCommand, ChoosesAMeshThatFits) {
  const json job = answer("llama3-70b --no-curve" + kSmall);
  ASSERT_TRUE(job.is_object());
  EXPECT_EQ(job["gpus"], 256);
  EXPECT_LE(job["memory_bytes"]["total"], job["memory_bytes"]["available"]);
}

TEST(JobCommand, CurveCountsSwitchesAndCables) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const json job = answer("llama3-8b --mesh tp2,dp128 --batch 16" + kSmall);
  ASSERT_TRUE(job.is_object());
  ASSERT_FALSE(job["curve"].empty());
  EXPECT_EQ(job["curve"][0]["gpus"], 256) << "the job's own number";
  const json& first = job["curve"][1];
  EXPECT_EQ(first["gpus"], 512);
  ASSERT_EQ(first["fabrics"].size(), 3u);
  // 8 pods of 4 racks of 2 hosts: 32 racks' switches, a pod's 64 + 64 ports on 1, and 512 more
  // ports at 1:1 on 4.
  EXPECT_EQ(first["fabrics"][0]["switches"], 32 + 8 + 4);
  EXPECT_EQ(first["fabrics"][0]["cables"], 3 * 512);
  // 7:1: a pod has 10 cables up.
  EXPECT_EQ(first["fabrics"][2]["switches"], 32 + 8 + 1);
  EXPECT_EQ(first["fabrics"][2]["cables"], 2 * 512 + 8 * 10);
}

// There is nothing to oversubscribe, and every column stays below its heading.
TEST(JobCommand, CurveOfHostsOnOneSwitch) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const std::string file =
      testing::TempDir() + "/sennit-job-switch-" + std::to_string(getpid()) + ".json";
  std::ofstream(file)
      << R"({"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
    "num_hidden_layers": 4, "vocab_size": 32000})";
  const Outcome outcome = sh(kSennit + file + " --mesh dp8 --fabric 'hosts=8;nic=50GB/s'");
  std::remove(file.c_str());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  size_t rows = 0;
  std::vector<size_t> bars;
  for (const std::string& line : outcome.lines()) {
    std::vector<size_t> of_line;
    for (size_t at = line.find('|'); at != line.npos; at = line.find('|', at + 1))
      of_line.push_back(at);
    if (of_line.empty()) continue;
    if (rows++ == 0) bars = of_line;
    EXPECT_EQ(of_line, bars) << line;
  }
  EXPECT_GT(rows, 9u) << outcome.output;
  EXPECT_NE(outcome.output.find("; there is no tier above the hosts"), std::string::npos)
      << outcome.output;
}

TEST(JobCommand, ReadsAModelAndWritesItsFiles) {
  const std::string stem = testing::TempDir() + "/sennit-job-" + std::to_string(getpid());
  std::ofstream(stem + ".json")
      << R"({"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": true})";
  const Outcome outcome = sh(kSennit + stem + ".json --no-curve --tokens 1T --html " + stem +
                             ".html" + kSmall + " 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("MFU"), std::string::npos) << outcome.output;
  std::ifstream page(stem + ".html");
  const std::string html((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  for (const char* words : {"6 N P", "at once:", "arXiv 2407.08608", "data sheet", "</html>"})
    EXPECT_NE(html.find(words), std::string::npos) << words;
  std::remove((stem + ".json").c_str());
  std::remove((stem + ".html").c_str());
}

TEST(JobCommand, TakesOtherConstants) {
  const std::string call = "llama3-8b --mesh tp2,dp128 --batch 16 --no-curve" + kSmall;
  const json usual = answer(call), faster = answer(call + " --constants matmul=0.7,network=0.9");
  EXPECT_GT(faster["step"]["mfu"], usual["step"]["mfu"]);
  EXPECT_EQ(faster["constants"][0]["source"], "--constants");
}

TEST(JobCommand, OneHostAndOneGpu) {
  const json host = answer("llama3-8b --no-curve --fabric 'hosts=1;nic=50GB/s' --gpus-per-host 8");
  ASSERT_TRUE(host.is_object());
  EXPECT_EQ(host["gpus"], 8);
  const Outcome one = sh(kSennit + "llama3-8b --fabric 'hosts=1;nic=50GB/s' 2>&1");
  EXPECT_EQ(one.status, 2) << one.output;
  EXPECT_NE(one.output.find("does not fit"), std::string::npos) << one.output;
  const std::string file =
      testing::TempDir() + "/sennit-job-small-" + std::to_string(getpid()) + ".json";
  std::ofstream(file)
      << R"({"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
    "num_hidden_layers": 8, "vocab_size": 32000})";
  const std::string call = file + " --no-curve --fabric 'hosts=1;nic=50GB/s'";
  const json small = answer(call);
  const Outcome said = sh(kSennit + call);
  std::remove(file.c_str());
  EXPECT_NE(said.output.find("one GPU: nothing is communicated\n"), std::string::npos)
      << said.output;
  ASSERT_TRUE(small.is_object());
  EXPECT_EQ(small["mesh"], "dp1");
  EXPECT_TRUE(small["calls"].empty());
}

TEST(JobCommand, ListsAccelerators) {
  const Outcome outcome = sh(kSennit + "--gpu list 2>&1");
  EXPECT_EQ(outcome.status, 0);
  for (const char* name : {"h100", "h200", "b200", "a100", "l40s", "mi250x", "mi300x", "tpu-v4"})
    EXPECT_NE(outcome.output.find(name), std::string::npos) << name;
}

TEST(JobCommand, AnotherMeshIsWithoutTheInterleavingOfThisOne) {
  const std::string call = "llama3-8b --mesh tp8,pp4,dp8 --no-curve" + kSmall;
  const Outcome usual = sh(kSennit + call), interleaved = sh(kSennit + call + " --interleave 3");
  EXPECT_NE(usual.output.find("faster by this model"), std::string::npos) << usual.output;
  EXPECT_EQ(usual.output.find("without --interleave"), std::string::npos) << usual.output;
  EXPECT_NE(interleaved.output.find(" without --interleave: "), std::string::npos)
      << interleaved.output;
}

TEST(JobCommand, MarksWhatIsAssumed) {
  const std::string call = kSennit + "llama3-8b --no-curve --fabric 'racks=2x4;ranks=8'";
  const Outcome refused = sh(call + " 2>&1");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("--assume"), std::string::npos) << refused.output;
  const Outcome assumed = sh(call + " --assume 2>&1");
  EXPECT_EQ(assumed.status, 0) << assumed.output;
  EXPECT_NE(assumed.output.find("ASSUMED"), std::string::npos) << assumed.output;
}

TEST(JobCommand, AssumedCapacitiesAreThoseBetweenHosts) {
  const std::string call = "llama3-8b --mesh tp8,dp8 --no-curve --fabric 'racks=2x4;ranks=8";
  const json assumed = answer(call + "' --assume"),
             declared = answer(call + ";nic=400GB/s;oversubscription=4'");
  ASSERT_TRUE(assumed.is_object() && declared.is_object());
  EXPECT_EQ(assumed["capacities_known"], false);
  EXPECT_DOUBLE_EQ(assumed["step"]["tensor_s"].get<double>(),
                   declared["step"]["tensor_s"].get<double>())
      << "links within a host are the accelerator's";
  EXPECT_DOUBLE_EQ(assumed["step"]["seconds"].get<double>(),
                   declared["step"]["seconds"].get<double>());
}

// The accelerator's links lead from one to the other, at the rate of each GPU's own boundary.
TEST(JobCommand, NumaNodesOfAHostAreNotSlowerThanItsLinks) {
  const std::string file = testing::TempDir() + "/sennit-job-numa-" + std::to_string(getpid());
  const std::string hosts = "switch s\nhost h[0-1]\nlink h[0-1] s unknown\n",
                    gpus = "gpu h0/gpu[0-3] host h0\ngpu h1/gpu[0-3] host h1\n";
  std::string inside;
  for (const std::string h : {"h0", "h1"}) {
    inside += "numa " + h + "/numa[0-1] host " + h + "\n";
    inside += "link " + h + "/numa0 " + h + "/gpu[0-1] unknown\n";
    inside += "link " + h + "/numa1 " + h + "/gpu[2-3] unknown\n";
  }
  json answers[2];
  for (const bool numa : {false, true}) {
    std::ofstream(file) << hosts + gpus + (numa ? inside : "");
    answers[numa ? 1 : 0] =
        answer("llama3-8b --mesh tp4,dp2 --batch 2 --no-curve --assume --fabric " + file);
  }
  std::remove(file.c_str());
  ASSERT_TRUE(answers[0].is_object() && answers[1].is_object());
  EXPECT_GT(answers[1]["step"]["tensor_s"].get<double>(), 0);
  for (const char* part : {"tensor_s", "seconds"})
    EXPECT_DOUBLE_EQ(answers[0]["step"][part].get<double>(),
                     answers[1]["step"][part].get<double>());
}

TEST(JobCommand, ShardedWeightsAreGatheredForTheBackwardPassAsWell) {
  const json job = answer("llama3-8b --mesh tp2,dp128 --batch 16 --zero 3 --no-curve" + kSmall);
  ASSERT_TRUE(job.is_object());
  EXPECT_EQ(job["at_once"][0]["calls"], "64 tp all_gather, 64 tp reduce_scatter, 1 dp all_gather");
  EXPECT_EQ(job["at_once"][1]["calls"],
            "128 tp all_gather, 64 tp reduce_scatter, 1 dp all_gather, 1 dp reduce_scatter");
}

TEST(JobCommand, AStageMayHoldTheOutputLayerAlone) {
  const Outcome outcome = sh(kSennit + "llama3-8b --mesh tp8,pp32 --no-curve" + kSmall);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("nan"), std::string::npos) << outcome.output;
}

// What NCCL takes, by the kind of wire, as plan, topo and bench say it.
TEST(JobCommand, MarksLatenciesThatAreAssumed) {
  const std::string page =
      testing::TempDir() + "/sennit-job-latency-" + std::to_string(getpid()) + ".html";
  const std::string call =
      "llama3-8b --no-curve --fabric 'racks=2x4;ranks=8;nic=400GB/s;oversubscription=1";
  const Outcome wired = sh(kSennit + call + ";wire=infiniband' --html " + page + " 2>&1");
  const std::string words = "3.4us within a host, 14us over RDMA";
  EXPECT_NE(wired.output.find("ASSUMED: latencies that the fabric does not declare: " + words),
            std::string::npos)
      << wired.output;
  std::ifstream written(page);
  const std::string html((std::istreambuf_iterator<char>(written)),
                         std::istreambuf_iterator<char>());
  EXPECT_NE(html.find("ASSUMED: latencies that nobody declared: " + words), std::string::npos);
  std::remove(page.c_str());
  const json infiniband = answer(call + ";wire=infiniband'"), sockets = answer(call + "'"),
             declared = answer(call + ";latency=14us;local_latency=3400ns'");
  EXPECT_EQ(infiniband["latency_assumed"], true);
  EXPECT_EQ(declared["latency_assumed"], false);
  EXPECT_DOUBLE_EQ(infiniband["latency_by_tier"]["root"]["seconds"].get<double>(), 14e-6);
  EXPECT_EQ(infiniband["latency_by_tier"]["host"]["assumed"], true);
  EXPECT_EQ(declared["latency_by_tier"]["host"]["assumed"], false);
  EXPECT_DOUBLE_EQ(sockets["latency_by_tier"]["root"]["seconds"].get<double>(), 30e-6);
  EXPECT_DOUBLE_EQ(infiniband["step"]["seconds"].get<double>(),
                   declared["step"]["seconds"].get<double>());
  for (size_t i = 0; i < declared["calls"].size(); i++)
    for (const char* time : {"predicted_s", "simulated_s"})
      EXPECT_EQ(infiniband["calls"][i][time], declared["calls"][i][time]) << i << " " << time;
}

TEST(JobCommand, RefusesACallThatIsOff) {
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"llama3-405b --gpus 256 --mesh tp8,pp16,dp4" + kSmall, "multiplies to 512"},
      {"llama3-405b --mesh tp8,dp32" + kSmall, "It would fit with"},
      {"llama3-405b --gpus 257" + kSmall, "has 256"},
      {"llama3-8b --mesh tp8,tp4" + kSmall, "each at most once"},
      {"llama3-8b --mesh tp3,dp1" + kSmall, "32 heads"},
      {"llama3-8b --mesh pp64" + kSmall, "only 32 layers"},
      {"llama3-8b --mesh tp8 --batch 3 --microbatch 2" + kSmall, "--microbatch 2"},
      {"llama3-8b --batch 3 --microbatch 2" + kSmall, "--microbatch 2: does not divide the 3"},
      {"llama3-8b --interleave 4" + kSmall, "--interleave 4: the search"},
      {"llama3-8b --gpus-per-host 4096 --fabric meta24k", "is 12582912 GPUs, of at most 1048576"},
      {"llama3-9b", "llama3-405b"},
      {"", "no model"},
      {"llama3-8b --mesh ''" + kSmall, "--mesh: expected a value"},
      {"llama3-8b --constants ''" + kSmall, "--constants: expected a value"},
      {"llama3-8b --fabric ''", "--fabric: expected a value"},
      {"llama3-8b --gpus 0", "not in range 1 to 1048576"},
      {"llama3-8b --gpus 99999999999", "not in range 1 to 1048576"},
      {"llama3-405b --gpus 256 --mesh tp8,pp16,dp4" + kSmall, "with dp2 it would"},
      {"llama3-405b --gpus 8" + kSmall, "512 GPUs would do, as in --gpus 512 --mesh"},
      {"llama3-8b --tokens 1e300", "--tokens 1e300"},
      {"llama3-8b --staff a:b" + kSmall, "--staff a:b"},
      {"llama3-8b --staff 1:2:3" + kSmall, "--staff 1:2:3"},
      {"llama3-8b --mtbf 0" + kSmall, "--mtbf 0"},
      {"llama3-8b --no-curve --mtbf 0.00001" + kSmall, "of the time for training"},
      {"llama3-8b --no-curve --storage 1B/s" + kSmall, "of the time for training"},
      {"llama3-8b --json - --html -" + kSmall, "standard output holds one"},
      {"llama3-8b --json ./x --html ./x" + kSmall, "a file holds one of them"},
      {"llama3-8b --gpu list", "leave out model"},
      {"llama3-8b --gpu h300", "h100"},
      {"llama3-8b --tokens many", "--tokens many"},
      {"llama3-8b --recompute some", "--recompute some"},
      {"llama3-8b --constants matmul=1.5", "matmul=1.5"},
      {"llama3-8b --constants luck=0.5", "matmul, attention"},
      {"llama3-8b --constants matmul=1e-300", "0.0001 to 1"},
      {"llama3-8b --gpus 0", "--gpus"},
      {"llama3-8b --batch 0", "--batch"},
      {"llama3-8b --interleave 0", "--interleave"},
      {"llama3-8b --switch-ports 2", "--switch-ports 2"},
      {"--gpu list --json -", "leave out --json"},
      {"llama3-8b --zero 4", "--zero 4"},
      {"llama3-8b --pue 0.5" + kSmall, "--pue 0.5"},
      {"llama3-8b --staff 100" + kSmall, "--staff 100"},
      {"llama3-8b --restart soon" + kSmall, "--restart soon"},
      {"llama3-8b --fabric no_such_file", "no such file"},
      {"llama3-8b --unknown", "--unknown"}};
  for (const auto& [call, word] : calls) {
    const Outcome outcome = sh(kSennit + call + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << call << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(word), std::string::npos) << call << "\n" << outcome.output;
  }
}

}  // namespace
