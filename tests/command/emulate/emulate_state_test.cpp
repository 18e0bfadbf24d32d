// The folder of the files that say which trees are up: sennit does what they say, so it must be
// the user's alone. And what else of the commands needs no namespaces.
//
// ctest runs: sennit_command
// ctest links: sennit_commands
// ctest not-under-tsan: it runs a command, whose threads others try
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "command/emulate/emulate.hpp"
#include "command/emulate/state.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit {
namespace {

using emulate::check_private;
using sennit_test::Outcome;
using sennit_test::sh;

TEST(EmulateState, TheFolderIsTheUsersAlone) {
  const trainer::TestFolder parent;
  const std::string folder = parent / "sennit", link = parent / "link";
  EXPECT_TRUE(check_private(folder).ok()) << "there is none yet";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_TRUE(check_private(folder).ok());
  std::filesystem::create_directory_symlink(folder, link);
  EXPECT_EQ(check_private(link).kind(), SENNIT_UNSUPPORTED);
  EXPECT_NE(check_private(link).text().find(link + ": it is no folder"), std::string::npos);
  for (const mode_t mode : {0777, 0750, 0701}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_EQ(check_private(folder).kind(), SENNIT_UNSUPPORTED) << mode;
  }
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  constexpr uid_t kNobody = 65534;
  if (chown(folder.c_str(), kNobody, kNobody) == 0) {  // which takes root
    EXPECT_NE(check_private(folder).text().find("another user's"), std::string::npos);
  }
}

// Root's folder is /run/sennit whatever the environment says.
TEST(EmulateState, CommandsRefuseAFolderThatOthersMayUse) {
  if (geteuid() == 0) GTEST_SKIP() << "NOT TESTED as root, whose folder others cannot make";
  const trainer::TestFolder parent;
  const std::string command =
      "XDG_RUNTIME_DIR=" + parent.path() + " " SENNIT_BINARY_DIR "/bin/sennit emulate ";
  ASSERT_EQ(mkdir((parent / "sennit").c_str(), 0700), 0);
  EXPECT_EQ(sh(command + "list").status, 0);
  ASSERT_EQ(chmod((parent / "sennit").c_str(), 0777), 0);
  for (const char* what : {"list", "down", "down --all", "run -- true", "cut h0"}) {
    const Outcome outcome = sh(command + what);
    EXPECT_EQ(outcome.status, 3) << what << ": " << outcome.output;
    EXPECT_NE(outcome.output.find("other users may use it"), std::string::npos) << outcome.output;
  }
}

// Nothing is brought up for it.
TEST(EmulateState, ATreeThatIsUpOrAnotherButNotBoth) {
  for (const char* what : {"run --name x --racks 2 -- true", "run --rails 2 --name default -- true",
                           "compare --hosts 1 --name x"}) {
    const Outcome outcome = sh(std::string(SENNIT_BINARY_DIR "/bin/sennit emulate ") + what);
    EXPECT_EQ(outcome.status, 2) << what << ": " << outcome.output;
    EXPECT_NE(outcome.output.find("give the one or the other"), std::string::npos)
        << outcome.output;
  }
}

// A process that does nothing, as the keeper of a tree; it dies with this one.
pid_t standing_process() {
  const pid_t process = fork();
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  return process;
}

// When a process began, in clock ticks: the 22nd field, of which the second is a name in brackets.
uint64_t start_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text, ')');
  for (int field = 3; field <= 22; field++) file >> text;
  return std::stoull(text);
}

emulate::Instance instance_of(const std::string& name, pid_t keeper) {
  return {.name = fmt::format("{}-{}", name, getpid()),
          .keeper = keeper,
          .keeper_start = start_of(keeper),
          .keeper_socket = -1,
          .subnet = 250,
          .tree = emulate::make_tree({}).value()};
}

void write_locked(const emulate::Instance& instance) {
  emulate::StateLock lock;
  EXPECT_TRUE(lock.take().ok() && emulate::write_state(instance).ok());
}

// Its state file is written before its hosts are there, so that nobody else takes the name.
TEST(EmulateState, ATreeThatIsNotUpYetIsNoneToRunOn) {
  const emulate::Instance instance = instance_of("not-yet", standing_process());
  write_locked(instance);
  for (const char* what : {"run --name {} -- true", "compare --name {} --libraries sennit",
                           "slow h0 1Mbit/s --name {}"}) {
    const Outcome outcome = sh(SENNIT_BINARY_DIR "/bin/sennit emulate " +
                               fmt::format(fmt::runtime(what), instance.name));
    EXPECT_EQ(outcome.status, 2) << what << ": " << outcome.output;
    EXPECT_NE(outcome.output.find("is not up yet"), std::string::npos) << outcome.output;
  }
  emulate::destroy(instance);
}

// A tree that ended leaves alone the state file of another that has its name by then.
TEST(EmulateState, WhatIsRemovedIsADeadTreesFileAlone) {
  const emulate::Instance first = instance_of("again", standing_process());
  const std::string& name = first.name;
  write_locked(first);
  kill(first.keeper, SIGKILL);
  waitpid(first.keeper, nullptr, 0);
  EXPECT_FALSE(emulate::find(name).ok());
  const emulate::Instance second = instance_of("again", standing_process());
  write_locked(second);
  emulate::destroy(first);
  EXPECT_TRUE(emulate::find(name).ok()) << "the second one's";
  emulate::destroy(second);
  EXPECT_EQ(emulate::find(name).status().text(),
            fmt::format("no emulated fabric '{}' is up; `sennit emulate up` makes one", name));
}

// Another command may be stopped while it holds the lock: the keeper is ended, the file stays.
TEST(EmulateState, ATreeEndsThoughTheLockIsHeld) {
  const emulate::Instance instance = instance_of("locked", standing_process());
  {
    emulate::StateLock lock;
    ASSERT_TRUE(lock.take().ok() && emulate::write_state(instance).ok());
    emulate::destroy(instance);
  }
  EXPECT_NE(emulate::find(instance.name).status().text().find("is up any more"), std::string::npos);
  emulate::destroy(instance);
  EXPECT_EQ(emulate::find(instance.name).status().text().find("any more"), std::string::npos);
}

}  // namespace
}  // namespace sennit
