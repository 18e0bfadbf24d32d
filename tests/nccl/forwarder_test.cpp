// forwarder_test.cpp: libnccl.so.2 sends calls on to NVIDIA's library where SENNIT_DISABLE says so,
// finds that library although its own file bears the same name, and says what is missing where it
// does not. Each case is a child of its own, since a process decides once.
// ctest links: nccl_forwarder
// ctest runs: sennit_nccl fake_vendor_nccl
// ctest not-under-tsan: it has one thread
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "nccl/exported.hpp"
#include "tests/support/test_folder.hpp"

namespace {

const std::string kVendorFolder = SENNIT_BINARY_DIR "/tests/fake_vendor";
const std::string kVendor = kVendorFolder + "/libnccl.so.2";
constexpr int kFakeVersion = 21799;
constexpr unsigned kMostSeconds = 20;  // of a child

// Runs f in a child whose environment has these; f returns the child's exit status.
int in_child(const char* disable, const char* library, const char* search,
             const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSeconds);
    setenv("SENNIT_DISABLE", disable, 1);
    if (library) setenv("SENNIT_NCCL_LIBRARY", library, 1);
    if (search) setenv("LD_LIBRARY_PATH", search, 1);
    _exit(f());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int version() {
  int number = -1;
  return ncclGetVersion(&number) == ncclSuccess ? number : -1;
}

TEST(Forwarder, SendsCallsToSennit) {
  EXPECT_EQ(in_child("0", nullptr, nullptr, [] { return version() == kNcclVersion ? 0 : 1; }), 0);
}

TEST(Forwarder, SendsCallsToTheLibraryThatIsNamed) {
  EXPECT_EQ(in_child("1", kVendor.c_str(), nullptr,
                     [] {
                       ncclUniqueId id;
                       for (int i = 0; i < kNcclUniqueIdBytes; i++)
                         id.internal[i] = static_cast<char>(i);
                       if (version() != kFakeVersion) return 1;
                       return ncclCommInitRank(nullptr, 7, id, 3) == ncclInvalidUsage ? 0 : 2;
                     }),
            0);
}

TEST(Forwarder, FindsTheLibraryInLdLibraryPath) {
  Dl_info own;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&ncclGetVersion), &own), 0);
  const std::string own_file = own.dli_fname;
  const std::string search =
      own_file.substr(0, own_file.rfind('/')) + ":/nonexistent:" + kVendorFolder;
  EXPECT_EQ(
      in_child("1", nullptr, search.c_str(), [] { return version() == kFakeVersion ? 0 : 1; }), 0);
}

// Each of the two would send calls on to the other.
TEST(Forwarder, PassesByWhatIsSennitsOfAnotherInstallation) {
  const sennit::trainer::TestFolder folder;
  Dl_info own;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&ncclGetVersion), &own), 0);
  const std::string copy = folder / "libnccl.so.2";
  std::filesystem::copy_file(own.dli_fname, copy);
  const std::string search = folder.path() + ":" + kVendorFolder;
  EXPECT_EQ(
      in_child("1", nullptr, search.c_str(), [] { return version() == kFakeVersion ? 0 : 1; }), 0);
  EXPECT_EQ(in_child("1", copy.c_str(), nullptr,
                     [] { return ncclGroupStart() == ncclSystemError ? 0 : 1; }),
            0);
}

TEST(Forwarder, FindsTheLibraryThatIsMapped) {
  EXPECT_EQ(in_child("1", nullptr, nullptr,
                     [] {
                       if (!dlopen(kVendor.c_str(), RTLD_NOW | RTLD_LOCAL)) return 2;
                       return version() == kFakeVersion ? 0 : 1;
                     }),
            0);
}

TEST(Forwarder, SaysWhatIsMissing) {
  for (const std::string& library : {std::string("/nonexistent/libnccl.so.2"),
                                     std::string(SENNIT_BINARY_DIR "/lib/sennit/libnccl.so.2")})
    EXPECT_EQ(in_child("1", library.c_str(), nullptr,
                       [&] {
                         if (ncclGroupStart() != ncclSystemError) return 1;
                         const std::string text = ncclGetLastError(nullptr);
                         return text.find(library) != std::string::npos ? 0 : 2;
                       }),
              0)
        << library;
}

TEST(Forwarder, AFunctionThatAnOldLibraryLacksIsAnError) {
  EXPECT_EQ(
      in_child("1", kVendor.c_str(), nullptr,
               [] {
                 if (ncclCommGrow(nullptr, 0, nullptr, 0, nullptr, nullptr) != ncclSystemError)
                   return 1;
                 ncclParamDumpAll();
                 return ncclTeamWorld(nullptr).nRanks;
               }),
      0);
}

}  // namespace
