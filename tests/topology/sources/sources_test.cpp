// sources_test.cpp: the sources: what they make of what this host and its environment say. Their
// text forms are in tests/topology/forms_test.cpp.
//
// ctest not-under-tsan: it has one thread
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "tests/topology/cases.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"
#include "topology/sources/hwloc.hpp"
#include "topology/sources/slurm/slurm.hpp"

namespace sennit {
namespace {

TEST(Slurm, MissingNodesAreNamed) {
  const Fabric fabric = parse_topology_conf("SwitchName=s Nodes=n[1-4]\n", "t").value();
  EXPECT_EQ(missing_nodes(fabric, "t", "n[1-4]").value(), "");
  EXPECT_EQ(missing_nodes(fabric, "t", "").value(), "");
  for (const char* list : {"n1 ,n2", "n1, n2 ", " n1 n[2-3]\tn4\n"})
    EXPECT_EQ(missing_nodes(fabric, "t", list).value(), "") << list;
  EXPECT_EQ(
      missing_nodes(fabric, "t", "n[3-6]").value(),
      "2 of the job's 4 nodes are not in t: n5, n6; they hang below the root, by unknown links");
  EXPECT_EQ(missing_nodes(fabric, "t", "n[01-20]").value(),
            "20 of the job's 20 nodes are not in t: n01, n02, n03, n04, n05, n06, n07, n08, ...; "
            "they hang "
            "below the root, by unknown links");
  EXPECT_EQ(missing_nodes(fabric, "t", "n[1-").status().text(),
            "SLURM_JOB_NODELIST:1:5: expected a number of at most 15 digits, found the end");
}

// First line the address, second the pattern, third (if any) the host's name.
TEST(Slurm, Environment) {
  run_cases("slurm", "env", [](const std::filesystem::path& path) {
    std::istringstream lines(read_text(path));
    std::string address, pattern, host;
    std::getline(lines, address);
    std::getline(lines, pattern);
    std::getline(lines, host);
    const Result<Fabric> fabric = parse_topology_addr(address, pattern, host);
    return fabric ? fabric->to_text() : fabric.status().text() + "\n";
  });
}

// From now on this process may not ask which cores it may use. False: no such filter can be set.
bool forbid_asking_for_cores() {
  sock_filter refuse[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(refuse), refuse};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Hwloc, IsLeftOutWhereCoresMustNotBeAskedFor) {
  enum : int { kLeftOut = 0, kFound = 1, kNoFilter = 2 };
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // it asks for ever otherwise
    if (!forbid_asking_for_cores()) _exit(kNoFilter);
    const auto hwloc = std::ranges::find(sources(), "hwloc", &Source::name);
    const Result<std::optional<Fabric>> fabric = hwloc->read({"this", ""});
    _exit(fabric.status().kind() == SENNIT_UNSUPPORTED ? kLeftOut : kFound);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter)
    GTEST_SKIP() << "SKIPPED: no filter of system calls can be set here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kLeftOut) << status;
}

// X.xml is a machine as hwloc writes it, X.rates "DEVICE RATE" a line; the host is called X.
TEST(Hwloc, CapturedMachines) {
  run_cases("hwloc", "xml", [](std::filesystem::path path) {
    std::map<std::string, uint64_t> rates;
    const std::string xml = read_text(path);
    std::istringstream lines(read_text(path.replace_extension("rates")));
    for (std::string device, rate; lines >> device >> rate;)
      rates[device] = parse_rate(rate).value();
    hwloc_topology_t topology = nullptr;
    hwloc_topology_init(&topology);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    EXPECT_EQ(hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1),
              0);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
    const Fabric fabric = fabric_from_hwloc(
        topology, path.stem(), [&](const std::string& device) { return rates[device]; });
    hwloc_topology_destroy(topology);
    return fabric.to_text();
  });
}

TEST(Hwloc, LineRatesFromTheKernelsFiles) {
  const std::filesystem::path sys =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/hwloc/sys";
  EXPECT_EQ(line_rate_from_sysfs(sys, "eth0"), 3'125'000'000u);
  EXPECT_EQ(line_rate_from_sysfs(sys, "eth1"), 0u) << "no link";
  EXPECT_EQ(line_rate_from_sysfs(sys, "veth0"), 0u) << "nothing behind it";
  EXPECT_EQ(line_rate_from_sysfs(sys, "mlx5_0"), 25'000'000'000u);
  EXPECT_EQ(line_rate_from_sysfs(sys, "mlx5_1"), 0u) << "no link";
  EXPECT_EQ(line_rate_from_sysfs(sys, "mlx5_2"), 50'000'000'000u) << "a link without a subnet";
  EXPECT_EQ(line_rate_from_sysfs(sys, "absent"), 0u);
}

// Nothing is wrong with the network where this user may not ask lldpd: that is a note, and what
// else is read goes on.
TEST(Sources, WhatCannotBeReadHereIsANote) {
  if (std::filesystem::exists("/etc/sennit/lldp.json"))
    GTEST_SKIP() << "this host has saved neighbours";
  char folder[] = "/tmp/sennit-sources-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::filesystem::path program = std::filesystem::path(folder) / "lldpctl";
  std::ofstream(program) << "#!/bin/sh\necho permission denied >&2\nexit 1\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (std::string(folder) + ":" + path).c_str(), 1);
  const Result<Fabric> inside = read_sources({"here", ""}, true);
  setenv("PATH", path.c_str(), 1);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(inside.ok()) << inside.status().text();
  ASSERT_FALSE(inside->notes.empty());
  EXPECT_EQ(inside->notes[0].rfind(
                "lldp is left out: lldpctl -f json: permission denied; let this user", 0),
            0u)
      << inside->notes[0];
  EXPECT_TRUE(inside->conflicts.empty()) << inside->conflicts[0];
  EXPECT_GE(inside->find("here"), 0) << "hwloc goes on";
  const Fabric merged = merge(Fabric{}, *inside, "host");
  EXPECT_EQ(merged.notes, inside->notes);
  EXPECT_EQ(merge(merged, *inside, "host").notes, inside->notes)
      << "said once, whatever the number of hosts";
  EXPECT_EQ(parse_fabric(merged.to_text(), "again").value().notes, inside->notes);
}

TEST(Sources, AreRegisteredByPriority) {
  const std::span<const Source> all = sources();
  ASSERT_FALSE(all.empty());
  std::set<std::string_view> names;
  for (size_t i = 0; i < all.size(); i++) {
    EXPECT_TRUE(names.insert(all[i].name).second) << all[i].name << " is there twice";
    EXPECT_TRUE(i == 0 || all[i - 1].priority >= all[i].priority) << all[i].name;
  }
}

class SourceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"SLURM_CONF", "SLURM_JOB_ID", "SLURM_TOPOLOGY_ADDR",
                             "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_JOB_NODELIST"})
      unsetenv(name);
    char pattern[] = "/tmp/sennit_topology_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

TEST_F(SourceFiles, FileTakesBothSyntaxes) {
  const std::string text_form = write("fabric", "switch s\nhost a\nlink a s 1GB/s\n");
  EXPECT_EQ(read_sources({"a", text_form}, false).value().to_text(),
            "switch s\nhost a\nlink a s 8Gbit/s declared source file\n");
  const std::string conf = write("conf", "# site\nswitchname=s nodes=a\n");
  EXPECT_EQ(read_sources({"a", conf}, false).value().to_text(),
            "switch s\nhost a\nlink a s unknown source file\n");
  EXPECT_EQ(
      read_sources({"a", "synthetic:hosts=2"}, false).value().to_text(),
      "fabric \"hosts=2\"\nswitch root\nhost h0\nhost h1\nlink h0 root unknown source synthetic\n"
      "link h1 root unknown source synthetic\n");
}

TEST_F(SourceFiles, FileErrorsNameTheFile) {
  const std::string absent = folder_ / "absent";
  EXPECT_EQ(read_sources({"a", absent}, false).status().text(),
            "SENNIT_FABRIC: " + absent + ": cannot be read: No such file or directory");
  EXPECT_EQ(read_sources({"a", folder_}, false).status().text(),
            "SENNIT_FABRIC: " + folder_.string() + ": cannot be read: Is a directory");
  const std::string bad = write("bad", "host a\nlink a b 1GB/s\n");
  EXPECT_EQ(read_sources({"a", bad}, false).status().text(),
            bad + ":2:8: expected the name of a vertex declared in this file, found \"b\"");
  EXPECT_EQ(read_sources({"a", "synthetic:racks=0"}, false).status().text(),
            "synthetic:1:7: expected a number from 1 to 524288, found \"0\"");
}

TEST_F(SourceFiles, SlurmFromTheEnvironment) {
  const std::string conf = write("slurm.conf", "");
  setenv("SLURM_CONF", conf.c_str(), 1);
  EXPECT_EQ(read_sources({"n1", ""}, false).value().to_text(), "");
  write("topology.conf", "SwitchName=s Nodes=n[1-2]\n");
  EXPECT_EQ(read_sources({"n1", ""}, false).value().to_text(),
            "switch s\nhost n1\nhost n2\nlink n1 s unknown source slurm_conf\n"
            "link n2 s unknown source slurm_conf\n");
  setenv("SLURM_JOB_NODELIST", "n[2-3]", 1);
  const std::string warned = read_sources({"n1", ""}, false).value().to_text();
  EXPECT_NE(warned.find("conflict \"1 of the job's 2 nodes are not in "), std::string::npos)
      << warned;
  unsetenv("SLURM_JOB_NODELIST");
  write("topology.yaml", "- topology: t\n  flat: true\n");
  EXPECT_EQ(read_sources({"n1", ""}, false).value().links.size(), 0u)
      << "topology.yaml is what Slurm goes by";
  setenv("SLURM_TOPOLOGY_ADDR", "top.leaf.n1", 1);
  setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node", 1);
  const std::string text = read_sources({"n1.cluster", ""}, true).value().to_text();
  EXPECT_NE(text.find("link n1.cluster leaf unknown source slurm\n"), std::string::npos) << text;
  // A node's name there need not be its host's.
  EXPECT_NE(this_host(), "n1");
  setenv("SLURMD_NODENAME", "n1", 1);
  EXPECT_EQ(this_host(), "n1");
  unsetenv("SLURMD_NODENAME");
  setenv("SLURM_TOPOLOGY_ADDR", "top.n1", 1);
  // Nobody asked for it: it is noted, and the other sources go on.
  EXPECT_NE(read_sources({"n1", ""}, true)
                .value()
                .to_text()
                .find("conflict \"slurm is left out: SLURM_TOPOLOGY_ADDR:1:7: expected 3 parts, as "
                      "in the pattern "
                      "switch.switch.node, found the end\"\n"),
            std::string::npos);
}

// A program in PATH answers, refuses, or hangs.
TEST_F(SourceFiles, LldpFromTheProgram) {
  const std::filesystem::path data =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/lldp";
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder_.string() + ":" + path).c_str(), 1);
  const auto say = [&](const std::string& script) {
    std::filesystem::permissions(write("lldpctl", "#!/bin/sh\n" + script + "\n"),
                                 std::filesystem::perms::owner_all);
    for (const Source& source : sources())
      if (source.name == "lldp") return source.read({"here", ""});
    return Result<std::optional<Fabric>>(invalid("no such source"));
  };
  EXPECT_EQ((*say("cat " + (data / "two_ports.json").string()))->to_text(),
            read_text(data / "two_ports.json.expected"));
  EXPECT_FALSE(say("cat " + (data / "no_neighbour.json").string())->has_value());
  EXPECT_FALSE(say("echo 'unable to connect to socket: No such file or directory' >&2; exit 1")
                   ->has_value());
  EXPECT_EQ(
      say("echo 'unable to connect to socket: Permission denied' >&2; exit 1").status().text(),
      "lldpctl -f json: unable to connect to socket: Permission denied; let this user ask lldpd "
      "(its "
      "socket's "
      "group), or save what root gets from that command as /etc/sennit/lldp.json");
  EXPECT_EQ(say("exec sleep 60").status().text().substr(0, 34),
            "lldpctl -f json: no answer in time");
  EXPECT_EQ(say("exec >&- 2>&-; exec sleep 60").status().text().substr(0, 34),
            "lldpctl -f json: no answer in time");
  setenv("PATH", path.c_str(), 1);
}

// What each host says of itself, sent as text and added at rank 0, gives the tree.
TEST_F(SourceFiles, PathsOfAllHostsGiveTheTree) {
  Merger merger;
  std::vector<Placement> ranks;
  for (int host = 0; host < 6; host++) {
    const std::string name = fmt::format("n{}", host);
    const Fabric path = parse_topology_addr(fmt::format("root.rack{}.{}", host % 2, name),
                                            "switch.switch.node", name)
                            .value();
    merger.add(parse_fabric(path.to_text(), name).value(), "slurm");
    ranks.push_back({name, -1, ""});
  }
  const Fabric fabric = merger.take();
  EXPECT_TRUE(fabric.conflicts.empty());
  const TierTree tree = contract(fabric, ranks).value();
  EXPECT_EQ(tree.rank_of_position, (std::vector<int32_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(tree.groups[1].size, 3);
  EXPECT_FALSE(tree.capacities_known());
}

TEST(Place, ThisProcess) {
  const Placement place = place_this_process("here");
  EXPECT_EQ(place.host, "here");
  EXPECT_GE(place.numa, -1);
}

TEST(Place, TheOnlyDeviceThatUcxMayUseIsTaken) {
  const auto nic_where = [](const char* devices) {
    setenv("UCX_NET_DEVICES", devices, 1);
    const std::string nic = place_this_process("here").nic;
    unsetenv("UCX_NET_DEVICES");
    return nic;
  };
  EXPECT_EQ(nic_where("mlx5_3:1"), "mlx5_3");
  EXPECT_EQ(nic_where("ib0"), "ib0");
  for (const char* const several : {"", "all", "mlx5_0:1,mlx5_1:1"})
    EXPECT_EQ(nic_where(several), "");
  EXPECT_EQ(place_this_process("here").nic, "");
}

// Damaged inputs give a fabric, or an error that names a place.
TEST(Slurm, DamagedTextsAreHandled) {
  std::mt19937 random(sennit_test::seed());
  const std::vector<std::string> good = {
      "SwitchName=s0 Nodes=dev[0-5] # leaf\nSwitchName=s1 Nodes=dev[6-8]\nSwitchName=s3 "
      "Switches=s[0-1]\n",
      "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n"};
  const std::string alphabet = "[]-,=#\n\\ 0139sbn.x();\x01\xff";
  for (int round = 0; round < 3000; round++) {
    std::string text = good[random() % good.size()];
    std::string spec = "racks=2x(1,3),2;ranks=2;nic=1GB/s;oversubscription=5,2.5";
    std::string address = "root.s[0-1].leaf.node";
    for (std::string* damaged : {&text, &spec, &address}) {
      for (unsigned changes = 1 + random() % 4; changes-- > 0;) {
        const size_t at = random() % damaged->size();
        if (random() % 2 == 0)
          damaged->insert(at, 1, alphabet[random() % alphabet.size()]);
        else
          (*damaged)[at] = alphabet[random() % alphabet.size()];
      }
    }
    const Result<Fabric> fabric = parse_topology_conf(text, "f");
    if (fabric) {
      EXPECT_TRUE(parse_fabric(fabric->to_text(), "again").ok()) << text;
    } else {
      EXPECT_EQ(fabric.status().text().rfind("f:", 0), 0u) << fabric.status().text();
    }
    const Result<TierTree> tree = synthetic_tree(spec);
    EXPECT_EQ(tree ? tree->check() : "", "") << spec;
    const Result<Fabric> path = parse_topology_addr(address, "switch.switch.switch.node", "");
    EXPECT_TRUE(!path || parse_fabric(path->to_text(), "again").ok()) << address;
  }
}

}  // namespace
}  // namespace sennit
