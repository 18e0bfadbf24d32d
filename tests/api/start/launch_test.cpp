// The launcher's environment and the unique id: which variables are read, in what order, and what
// is said about those that are off. One test starts itself under mpirun, where there is one.
//
// ctest quiet: it runs launchers
// ctest unwound-slowly: PMIx has no frame pointers, and only so is a leak seen to be its own
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <filesystem>
#include <fstream>

#include "api/start/launch.hpp"
#include "base/net/socket.hpp"
#include "tests/control/fixture.hpp"
#include "tests/support/shell.hpp"

// libpmix keeps some memory after PMIx_Finalize; the leak checker, where there is one, asks here.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:pmix\nleak:vasprintf\n"; }

namespace sennit {
namespace {

using Variables = std::map<std::string, std::string>;

// Sets these variables and no other of any launcher's; puts everything back afterwards.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (char** entry = environ; *entry; entry++) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_", "RANK",
                                 "WORLD_SIZE", "LOCAL_", "MASTER_", "SENNIT_"})
        if (name.starts_with(prefix)) before_[name] = text.substr(name.size() + 1);
    }
    for (const auto& [name, value] : before_) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
      set_.insert(name);
    }
  }
  ~Environment() {
    for (const std::string& name : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  Variables before_;
  std::set<std::string> set_;
};

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "10.1.2.3"},
                             {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

void expect_error(const Variables& variables, ErrorKind kind,
                  const std::vector<std::string>& parts) {
  const Environment environment(variables);
  const auto launch = launch_from_environment();
  ASSERT_FALSE(launch.ok());
  EXPECT_EQ(launch.status().kind(), kind) << launch.status().text();
  for (const std::string& part : parts)
    EXPECT_NE(launch.status().text().find(part), std::string::npos) << launch.status().text();
}

TEST(Launch, NoLauncher) {
  expect_error({}, SENNIT_NOT_FOUND,
               {"OMPI_COMM_WORLD_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID"});
}

TEST(Launch, Torchrun) {
  const Environment environment(kTorchrun);
  const auto launch = launch_from_environment();
  ASSERT_TRUE(launch.ok()) << launch.status().text();
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->bootstrap.rank, 5);
  EXPECT_EQ(launch->bootstrap.size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
  EXPECT_EQ(launch->bootstrap.root_host, "10.1.2.3");
  EXPECT_EQ(launch->bootstrap.root_port, 29501);  // torchrun's store has MASTER_PORT
  EXPECT_TRUE(launch->bootstrap.secret.empty());
  EXPECT_FALSE(launch->bootstrap.insecure);
}

TEST(Launch, PortAndInsecureAndSecret) {
  const Environment environment(
      with(kTorchrun,
           {{"SENNIT_PORT", "4444"}, {"SENNIT_INSECURE", "1"}, {"SENNIT_SECRET", "open sesame"}}));
  const auto launch = launch_from_environment();
  ASSERT_TRUE(launch.ok()) << launch.status().text();
  EXPECT_EQ(launch->bootstrap.root_port, 4444);
  EXPECT_TRUE(launch->bootstrap.insecure);
  EXPECT_EQ(launch->bootstrap.secret.size(), 32u);
}

TEST(Launch, SecretFromFile) {
  const std::string path = fmt::format("{}/launch_test_secret_{}",
                                       std::filesystem::temp_directory_path().string(), getpid());
  std::ofstream(path) << "open sesame\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  std::vector<std::byte> secrets[2];
  const std::string values[2] = {"open sesame", "file:" + path};
  for (int i = 0; i < 2; i++) {
    const Environment environment(with(kTorchrun, {{"SENNIT_SECRET", values[i]}}));
    const auto launch = launch_from_environment();
    ASSERT_TRUE(launch.ok()) << launch.status().text();
    secrets[i] = launch->bootstrap.secret;
  }
  EXPECT_EQ(secrets[0], secrets[1]);
  std::filesystem::remove(path);
  expect_error(with(kTorchrun, {{"SENNIT_SECRET", "file:" + path}}), SENNIT_NOT_FOUND,
               {"SENNIT_SECRET=file:" + path, "No such file"});
  expect_error(with(kTorchrun, {{"SENNIT_SECRET", "file:/tmp"}}), SENNIT_NOT_FOUND,
               {"SENNIT_SECRET=file:/tmp", "Is a directory"});
}

TEST(Launch, PortZeroIsNoPort) {
  const Environment environment(with(kTorchrun, {{"SENNIT_PORT", "0"}}));
  const auto launch = launch_from_environment();
  ASSERT_TRUE(launch.ok()) << launch.status().text();
  EXPECT_EQ(launch->bootstrap.root_port, 29501);
}

Result<std::vector<std::byte>> secret_of(const std::string& value) {
  const Environment environment(with(kTorchrun, {{"SENNIT_SECRET", value}}));
  Result<Launch> launch = launch_from_environment();
  if (!launch) return launch.status();
  return launch->bootstrap.secret;
}

// So that who has recorded a handshake, or played rank 0, does not find a short one by trying.
TEST(Launch, ATypedSecretGoesThroughASlowHash) {
  const std::string typed = "open sesame";
  std::vector<std::byte> expected(32);
  const std::string root = "sennit secret 3 10.1.2.3:29501";
  unsigned char salt[crypto_pwhash_SALTBYTES];
  crypto_generichash(salt, sizeof salt, reinterpret_cast<const unsigned char*>(root.data()),
                     root.size(), nullptr, 0);
  ASSERT_EQ(
      crypto_pwhash(reinterpret_cast<unsigned char*>(expected.data()), expected.size(),
                    typed.data(), typed.size(), salt, 2, 8 << 20, crypto_pwhash_ALG_ARGON2ID13),
      0);
  const auto secret = secret_of(typed);
  ASSERT_TRUE(secret.ok()) << secret.status().text();
  EXPECT_EQ(*secret, expected);
}

// A table of guesses that was made for one job is worth nothing at another address or port.
TEST(Launch, ATypedSecretIsAnotherKeyWhereRankZeroIsElsewhere) {
  const auto key = [](const Variables& more) {
    const Environment environment(
        with(with(kTorchrun, {{"SENNIT_SECRET", "open sesame, please"}}), more));
    const auto launch = launch_from_environment();
    EXPECT_TRUE(launch.ok()) << launch.status().text();
    return launch.ok() ? launch->bootstrap.secret : std::vector<std::byte>();
  };
  EXPECT_EQ(key({}), key({{"RANK", "0"}}));
  EXPECT_NE(key({}), key({{"MASTER_PORT", "29501"}}));
  EXPECT_NE(key({}), key({{"MASTER_ADDR", "10.1.2.4"}}));
}

TEST(Launch, AShortSecretIsWarnedOfOnce) {
  const auto said = [](const std::string& secret, const std::string& rank) {
    const Environment environment(with(kTorchrun, {{"SENNIT_SECRET", secret}, {"RANK", rank}}));
    testing::internal::CaptureStderr();
    EXPECT_TRUE(launch_from_environment().ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said("open sesame", "0").find("SENNIT_SECRET has 11 characters"), std::string::npos);
  EXPECT_EQ(said("open sesame", "5"), "");
  EXPECT_EQ(said("open sesame!", "0"), "");
  EXPECT_EQ(said("key:" + std::string(64, 'a'), "0"), "");
}

TEST(Launch, ARandomKeyIsTakenAsItIs) {
  std::string digits;
  std::vector<std::byte> key(32);
  for (size_t i = 0; i < key.size(); i++) {
    key[i] = static_cast<std::byte>(i * 9);
    digits += fmt::format("{:02x}", i * 9 & 0xff);
  }
  const auto secret = secret_of("key:" + digits);
  ASSERT_TRUE(secret.ok()) << secret.status().text();
  EXPECT_EQ(*secret, key);
  for (const std::string& wrong :
       {digits.substr(1), digits + "00", "z" + digits.substr(1), std::string()})
    EXPECT_EQ(secret_of("key:" + wrong).status().kind(), SENNIT_INVALID_ARGUMENT) << wrong;
}

TEST(Launch, MalformedValuesAreNamed) {
  expect_error(with(kTorchrun, {{"RANK", "five"}}), SENNIT_INVALID_ARGUMENT,
               {"RANK=five", "0 to 7"});
  expect_error(with(kTorchrun, {{"RANK", "8"}}), SENNIT_INVALID_ARGUMENT, {"RANK=8", "0 to 7"});
  expect_error(with(kTorchrun, {{"WORLD_SIZE", "0"}}), SENNIT_INVALID_ARGUMENT, {"WORLD_SIZE=0"});
  expect_error(with(kTorchrun, {{"LOCAL_RANK", "-1"}}), SENNIT_INVALID_ARGUMENT, {"LOCAL_RANK=-1"});
  expect_error(with(kTorchrun, {{"MASTER_PORT", "99999"}}), SENNIT_INVALID_ARGUMENT,
               {"MASTER_PORT=99999"});
  expect_error(with(kTorchrun, {{"SENNIT_PORT", "x"}}), SENNIT_INVALID_ARGUMENT, {"SENNIT_PORT=x"});
  expect_error(with(kTorchrun, {{"MASTER_ADDR", ""}}), SENNIT_NOT_FOUND, {"MASTER_ADDR"});
  expect_error(with(kTorchrun, {{"MASTER_PORT", ""}}), SENNIT_NOT_FOUND,
               {"MASTER_PORT", "SENNIT_PORT"});
  expect_error({{"OMPI_COMM_WORLD_RANK", "0"}}, SENNIT_NOT_FOUND, {"OMPI_COMM_WORLD_SIZE"});
}

TEST(Launch, WithoutSecretOnOneHostUsesLoopback) {
  const Environment environment(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}));
  const auto launch = launch_from_environment();
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->bootstrap.root_host, "127.0.0.1");
}

const Variables kSlurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "6"},
                          {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "1234"},
                          {"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NODELIST", "node[03-05,7],gpu1"}};

TEST(Launch, Slurm) {
  const auto root_host = [](const std::string& list, const Variables& more = {}) {
    const Environment environment(with(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}), more));
    const auto launch = launch_from_environment();
    EXPECT_TRUE(launch.ok()) << launch.status().text();
    EXPECT_EQ(launch->launcher, "slurm");
    EXPECT_EQ(launch->bootstrap.rank, 3);
    EXPECT_EQ(launch->bootstrap.size, 6);
    EXPECT_EQ(launch->local_rank, 1);
    EXPECT_EQ(launch->bootstrap.root_port, 16384 + (1234 * 31 + 2) % 16000);
    return launch->bootstrap.root_host;
  };
  EXPECT_EQ(root_host("node[03-05,7],gpu1"), "node03");
  EXPECT_EQ(root_host("alone"), "alone");
  EXPECT_EQ(root_host("a,b"), "a");
  EXPECT_EQ(root_host("n[7],m[1-2]"), "n7");
  EXPECT_EQ(root_host("rack[2-3]n[4-5]"), "rack2n4");
  const std::string file = testing::TempDir() + "/sennit-hosts-" + std::to_string(getpid());
  std::ofstream(file) << "n[5-6]\nn1\n";
  const Variables arbitrary = {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_HOSTFILE", file}};
  EXPECT_EQ(root_host("n[1-6]", arbitrary), "n5");
  std::filesystem::remove(file);
  expect_error(with(kSlurm, arbitrary), SENNIT_NOT_FOUND,
               {"MASTER_ADDR", "SLURM_HOSTFILE that can be read"});
}

// mpiexec of MPICH in an allocation: its processes inherit the variables of the task of srun that
// started them, alike on all of a host.
TEST(Launch, AnMpiLauncherWithinSlurmIsNotTakenForIt) {
  const Variables one_task = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}};
  const Variables hydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}};
  const std::vector<std::string> remedies = {"PMI_RANK=3 of PMI_SIZE=6", "sennit_comm_init_mpi",
                                             "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"};
  expect_error(with(with(kSlurm, one_task), hydra), SENNIT_NOT_FOUND, remedies);
  expect_error(with(with(kSlurm, one_task), hydra), SENNIT_NOT_FOUND, {"(Slurm says 0 of 1)"});
  expect_error(hydra, SENNIT_NOT_FOUND, remedies);
  {  // srun --mpi=pmi2
    const Environment environment(with(kSlurm, hydra));
    EXPECT_EQ(launch_from_environment()->launcher, "slurm");
  }
  const Environment environment(with(with(kSlurm, hydra), kTorchrun));
  EXPECT_EQ(launch_from_environment()->launcher, "torchrun");
}

TEST(Launch, ALauncherIsSeenWhereItsVariablesAreRead) {
  const auto seen = [](const Variables& variables) {
    const Environment environment(variables);
    return launcher_seen();
  };
  EXPECT_FALSE(seen({}));
  EXPECT_FALSE(seen({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})) << "a script of sbatch";
  EXPECT_TRUE(seen(kSlurm));
  EXPECT_TRUE(seen(kTorchrun));
  EXPECT_FALSE(seen({{"RANK", "0"}}));
  EXPECT_TRUE(seen({{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_TRUE(seen({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "job"}}));
  EXPECT_TRUE(seen({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})) << "though it is not enough";
}

TEST(Launch, Precedence) {
  {  // torchrun in an srun step
    const Environment environment(with(kSlurm, kTorchrun));
    EXPECT_EQ(launch_from_environment()->launcher, "torchrun");
  }
  {  // torchrun started by mpirun, one a node
    const Environment environment(with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"},
                                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                                   {"TORCHELASTIC_RUN_ID", "none"}}));
    const auto launch = launch_from_environment();
    EXPECT_EQ(launch->launcher, "torchrun");
    EXPECT_EQ(launch->bootstrap.rank, 5);
  }
  {  // mpirun in a Slurm allocation, no PMIx server to be found
    const Environment environment(with(kSlurm, {{"OMPI_COMM_WORLD_RANK", "1"},
                                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                                {"MASTER_ADDR", "h0"},
                                                {"MASTER_PORT", "4000"}}));
    const auto launch = launch_from_environment();
    ASSERT_TRUE(launch.ok()) << launch.status().text();
    EXPECT_EQ(launch->launcher, "open mpi");
    EXPECT_EQ(launch->bootstrap.size, 2);
    EXPECT_EQ(launch->bootstrap.root_port, 4001);
  }
}

// ---- unique id ----

TEST(UniqueId, RoundTrip) {
  const auto id = make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().text();
  EXPECT_EQ(id->size(), size_t{SENNIT_UNIQUE_ID_BYTES});
  const auto one = options_from_unique_id(*id, 1, 3);
  const auto zero = options_from_unique_id(*id, 0, 3);
  ASSERT_TRUE(one.ok() && zero.ok());
  EXPECT_EQ(one->secret, zero->secret);
  EXPECT_EQ(one->secret.size(), 32u);
  EXPECT_NE(one->job, 0u);
  EXPECT_EQ(one->job, zero->job);
  EXPECT_NE(one->root_port, 0);
  EXPECT_GE(zero->root_listener_fd, 0);
  EXPECT_EQ(one->root_listener_fd, -1);
  EXPECT_FALSE(options_from_unique_id(*id, 0, 3).ok());  // one id, one job
  EXPECT_FALSE(options_from_unique_id(*id, 3, 3).ok());
  close_socket(zero->root_listener_fd);
  EXPECT_NE(*make_unique_id(), *id);
}

TEST(UniqueId, DamageIsNoticed) {
  const auto id = make_unique_id();
  ASSERT_TRUE(id.ok());
  for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{30}, size_t{60}, size_t{127}}) {
    auto damaged = *id;
    damaged[at] ^= std::byte{1};
    const auto options = options_from_unique_id(damaged, 1, 2);
    EXPECT_FALSE(options.ok()) << at;
    EXPECT_EQ(options.status().kind(), SENNIT_INVALID_ARGUMENT);
  }
  EXPECT_FALSE(options_from_unique_id(std::span(*id).first(100), 1, 2).ok());
}

// ---- under mpirun ----

TEST(UnderMpirun, Job) {
  if (!std::getenv("SENNIT_TEST_UNDER_MPIRUN")) GTEST_SKIP() << "started by LaunchedBy.Mpirun";
  unsetenv("SENNIT_TEST_UNDER_MPIRUN");
  for (int round = 0; round < 2; round++) {  // a process may start one job after the other
    const auto launch = launch_from_environment();
    ASSERT_TRUE(launch.ok()) << launch.status().text();
    EXPECT_EQ(launch->launcher, "open mpi");
    EXPECT_EQ(launch->bootstrap.secret.size(), 32u);  // PMIx carried it
    EXPECT_EQ(launch->bootstrap.size, 4);
    EXPECT_EQ(launch->local_size, 4);
    EXPECT_EQ(launch->local_rank, launch->bootstrap.rank);
    auto control = Control::start(launch->bootstrap, {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    const std::vector<std::byte> mine(1, static_cast<std::byte>(launch->bootstrap.rank));
    const auto all = (*control)->all_gather(mine);
    ASSERT_TRUE(all.ok()) << all.status().text();
    for (size_t r = 0; r < 4; r++)
      EXPECT_EQ((*all)[r], std::vector<std::byte>(1, static_cast<std::byte>(r)));
    (*control)->leave();
  }
}

TEST(LaunchedBy, Mpirun) {
  if (std::getenv("SENNIT_TEST_UNDER_MPIRUN") || std::system("command -v mpirun >/dev/null") != 0)
    GTEST_SKIP() << "no mpirun here";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "SENNIT_TEST_UNDER_MPIRUN=1 timeout 60 mpirun --allow-run-as-root --oversubscribe -np 4 " +
      self + " --gtest_color=no --gtest_filter=UnderMpirun.Job";
  const auto [status, output] = sennit_test::sh(command);
  EXPECT_EQ(status, 0) << output;
  size_t passed = 0;
  for (size_t at = 0; (at = output.find("[  PASSED  ] 1 test", at)) != output.npos; at++) passed++;
  EXPECT_EQ(passed, 4u) << output;
}

}  // namespace
}  // namespace sennit
