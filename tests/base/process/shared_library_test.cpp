// shared_library_test.cpp: libraries that are opened at run time: found, missing, incomplete; and
// a process in which those of the optional transports and sources are truly not there.
// ctest not-under-tsan: it has one thread
#include "base/process/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "topology/source.hpp"
#include "transports/transport.hpp"

namespace sennit {
namespace {

struct Mathematics : SharedLibrary {
  Mathematics() : SharedLibrary("libm.so.6") {}
  const Function<double(double)> cosine{*this, "cos"};
  const Function<double(double)> unheard_of{*this, "no_such_function", Need::optional};
};

TEST(SharedLibrary, FindsFunctions) {
  const Mathematics library;
  ASSERT_TRUE(library.usable()) << library.why_not();
  EXPECT_EQ(library.cosine(0), 1);
  EXPECT_FALSE(library.unheard_of);
}

TEST(SharedLibrary, SaysWhatIsMissing) {
  EXPECT_EQ(SharedLibrary("libsennit-absent.so.3").why_not(),
            "libsennit-absent.so.3 is not installed here");
  struct Newer : SharedLibrary {
    Newer() : SharedLibrary("libm.so.6") {}
    const Function<double(double)> unheard_of{*this, "no_such_function"};
  };
  EXPECT_EQ(Newer().why_not(), "libm.so.6 is another version: it has no no_such_function");
}

// Where the library's file lies; empty: it is not installed. The child that asks has it open, this
// process has not.
std::string path_of(const char* soname) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    void* const handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    link_map* map = nullptr;
    if (handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
      const std::string path = map->l_name;
      if (write(ends[1], path.data(), path.size()) < 0) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string path;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    path.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return path;
}

// In a mount namespace of its own, with an empty file in the place of each library: what asks for
// them goes on without. Exit status: 0 all is well, 77 there can be no such namespace here.
int without(const std::vector<std::string>& libraries) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  for (const std::string& library : libraries)
    if (mount("/dev/null", library.c_str(), nullptr, MS_BIND, nullptr) != 0) return 77;
  TransportContext context;
  context.asked_for = true;
  for (const TransportFactory& factory : transports()) {
    if (factory.name != "ucx") continue;
    const Status status = factory.make(context).status();
    if (status.kind() != SENNIT_UNSUPPORTED) return 1;
    if (status.text() != "ucx: libucp.so.0 is not installed here") return 2;
  }
  for (const Source& source : sources()) {
    if (source.name != "verbs" && source.name != "ibnet") continue;
    const auto said = source.read({"here", "/dev/null"});
    if (!said || said->has_value()) return 3;
  }
  // The others go on.
  if (!read_sources({"here", "/dev/null"}, true)) return 4;
  return 0;
}

TEST(SharedLibrary, JobsGoOnWithoutTheOptionalOnes) {
  std::vector<std::string> libraries;
  for (const char* soname : {"libucp.so.0", "libibverbs.so.1", "libibnetdisc.so.5"})
    if (const std::string path = path_of(soname); !path.empty()) libraries.push_back(path);
  const pid_t child = fork();
  if (child == 0) _exit(without(libraries));
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "SKIPPED: no mount namespace allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sennit
