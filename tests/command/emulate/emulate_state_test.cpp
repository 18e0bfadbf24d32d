// The folder of the files that say which trees are up: sennit does what they say, so it must be
// the user's alone. And what else of the commands needs no namespaces.
//
// ctest runs: sennit_command
// ctest links: sennit_commands
// ctest not-under-tsan: it runs a command, whose threads others try
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "command/emulate/emulate.hpp"
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

}  // namespace
}  // namespace sennit
