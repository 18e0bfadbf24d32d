// large_counts_test.cpp: `sennit exec --mpi` is in front of MPI's functions with large counts where
// the MPI that the command will use has them, and nowhere else.
// ctest runs: sennit_command pmpi_forwarder pmpi_large_forwarder pmpi_large_client_of_new pmpi_large_client_of_old
// ctest needs: MPI_CXX
// ctest not-sanitized: the programs are not built with the sanitizer, and a sanitized library needs its runtime first
#include <gtest/gtest.h>

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace {

namespace fs = std::filesystem;
using sennit::trainer::TestFolder;
using sennit_test::Outcome;
using sennit_test::sh;

const std::string kBin = SENNIT_BINARY_DIR "/bin/";
const std::string kNew = SENNIT_BINARY_DIR "/tests/fake_mpi_new/libmpi.so.12";
const std::string kOld = SENNIT_BINARY_DIR "/tests/fake_mpi_old/libmpi.so.40";
// The MPI is reached through what is preloaded, not through sennit, for which it is too small.
const std::string kExec = "SENNIT_DISABLE=1 " + kBin + "sennit exec --mpi ";
const std::string kPreloaded = "sh -c 'echo $LD_PRELOAD'";
const std::string kGo = "sennit exec: MPI_Allreduce_c and its like go through sennit: ";
const std::string kDoNotGo = "sennit exec: MPI_Allreduce_c and its like do not go through sennit: ";

bool has(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

// A folder such as an MPI is installed in: a launcher, which only starts a program, and libraries.
class Installed {
 public:
  explicit Installed(std::initializer_list<std::string> libraries) {
    fs::create_directories(folder() / "bin");
    fs::create_directories(folder() / "lib");
    std::ofstream(launcher()) << "#!/bin/sh\nexec \"$@\"\n";
    fs::permissions(launcher(), fs::perms::owner_all);
    for (const fs::path library : libraries)
      fs::create_symlink(library, folder() / "lib" / library.filename());
  }
  fs::path folder() const { return folder_.path(); }
  fs::path launcher() const { return folder() / "bin" / "mpirun"; }

 private:
  TestFolder folder_;
};

TEST(LargeCounts, AProgramOfAnMpiThatHasThemCallsThemThroughSennit) {
  EXPECT_EQ(sh(kBin + "pmpi_large_client_of_new").output, "MPI_Allreduce_c of 5000000000\n");
  const Outcome outcome = sh(kExec + "-- " + kBin + "pmpi_large_client_of_new");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "PMPI_Allreduce_c of 5000000000\n");
}

TEST(LargeCounts, AProgramOfAnMpiWithoutThemFindsNone) {
  EXPECT_EQ(sh(kBin + "pmpi_large_client_of_old").output, "MPI_Allreduce of 5\n");
  const Outcome outcome = sh(kExec + "-- " + kBin + "pmpi_large_client_of_old");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "PMPI_Allreduce of 5\n");
}

TEST(LargeCounts, WhatIsPreloadedAllTheSameSaysWhyItEnds) {
  const Outcome outcome =
      sh("LD_PRELOAD=" SENNIT_BINARY_DIR "/lib/sennit/libsennit_pmpi_large.so " + kBin +
         "pmpi_large_client_of_old");
  EXPECT_NE(outcome.status, 0);
  EXPECT_TRUE(has(outcome, "the process calls MPI_Allreduce_c, and has no MPI with it\n"))
      << outcome.output;
}

TEST(LargeCounts, WhatALauncherStartsHasTheMpiThatIsInstalledWithIt) {
  const Installed with({kNew}), without({kOld});
  const Outcome large = sh(kExec + "-v -- " + with.launcher().string() + " " + kPreloaded);
  EXPECT_TRUE(has(large, kGo + (with.folder() / "lib/libmpi.so.12").string() + " has them\n"))
      << large.output;
  EXPECT_TRUE(has(large, "/sennit/libsennit_pmpi.so:" SENNIT_BINARY_DIR
                         "/lib/sennit/libsennit_pmpi_large.so\n"))
      << large.output;
  const Outcome ints = sh(kExec + "-v -- " + without.launcher().string() + " " + kPreloaded);
  EXPECT_TRUE(has(
      ints, kDoNotGo + (without.folder() / "lib/libmpi.so.40").string() + " does not have them\n"))
      << ints.output;
  EXPECT_TRUE(has(ints, "/sennit/libsennit_pmpi.so\n")) << ints.output;
}

TEST(LargeCounts, OfSeveralMpisWithALauncherAllMustHaveThem) {
  const Installed both({kNew, kOld});
  const Outcome outcome = sh(kExec + "-v -- " + both.launcher().string() + " " + kPreloaded);
  EXPECT_TRUE(has(outcome, "libmpi.so.40 does not have them\n")) << outcome.output;
  EXPECT_TRUE(has(outcome, "/sennit/libsennit_pmpi.so\n")) << outcome.output;
}

TEST(LargeCounts, TheProgramsOwnMpiCountsMoreThanTheLaunchers) {
  const Installed without({kOld});
  const Outcome outcome =
      sh(kExec + "-- " + without.launcher().string() + " " + kBin + "pmpi_large_client_of_new");
  EXPECT_EQ(outcome.output, "PMPI_Allreduce_c of 5000000000\n");
}

TEST(LargeCounts, ALauncherIsFoundAsItIsStarted) {
  const Installed with({kNew});
  const TestFolder elsewhere;
  fs::create_symlink(with.launcher(), elsewhere / "mpiexec");
  const Outcome by_path =
      sh("PATH=" + elsewhere.path() + ":$PATH " + kExec + "-v -- env ONE=1 mpiexec " + kPreloaded);
  EXPECT_TRUE(has(by_path, kGo)) << by_path.output;
  EXPECT_TRUE(has(by_path, "/libsennit_pmpi_large.so\n")) << by_path.output;
}

// A file with one table of symbols, which is also that of its names. It ends with `names`.
void write_library(const fs::path& path, Elf64_Off sections, Elf64_Off table, Elf64_Xword bytes,
                   std::string_view names) {
  constexpr size_t kFile = 4096;  // a page: nothing is mapped behind it
  std::string file(kFile, '\0');
  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_shoff = sections;
  head.e_shnum = 1;
  Elf64_Shdr section = {};
  section.sh_type = SHT_DYNSYM;
  section.sh_offset = table;
  section.sh_size = bytes;
  Elf64_Sym symbol = {};
  symbol.st_name = static_cast<Elf64_Word>(bytes - names.size());
  symbol.st_shndx = 1;
  std::memcpy(file.data(), &head, sizeof head);
  std::memcpy(file.data() + sizeof head, &section, sizeof section);
  std::memcpy(file.data() + sizeof head + sizeof section, &symbol, sizeof symbol);
  names.copy(file.data() + kFile - names.size(), names.size());
  std::ofstream(path, std::ios::binary) << file;
}

TEST(LargeCounts, ALibraryWhoseTablesLieOutsideOfItHasNone) {
  const Installed with({});
  const fs::path library = with.folder() / "lib/libmpi.so.12";
  constexpr Elf64_Off kSections = sizeof(Elf64_Ehdr), kTable = kSections + sizeof(Elf64_Shdr),
                      kFar = Elf64_Off{1} << 40;
  struct Case {
    Elf64_Off sections, table, bytes;
    std::string_view names;
  };
  // Ends beyond 2^64 look as though they were within; a name at the file's end has no zero.
  for (const Case& c :
       {Case{-sizeof(Elf64_Shdr), kTable, sizeof(Elf64_Sym), ""}, Case{kSections, -kFar, kFar, ""},
        Case{kSections, kTable, 4096 - kTable, "MPI_Allreduce_c"}}) {
    write_library(library, c.sections, c.table, c.bytes, c.names);
    const Outcome outcome = sh(kExec + "-v -- " + with.launcher().string() + " " + kPreloaded);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_TRUE(has(outcome, library.string() + " does not have them\n")) << outcome.output;
  }
}

TEST(LargeCounts, WhatCannotBeToldIsNotInFront) {
  const Outcome outcome = sh(kExec + "-v -- " + kPreloaded);
  EXPECT_TRUE(has(outcome, kDoNotGo + "no word of the command tells which MPI it will use\n"))
      << outcome.output;
  EXPECT_TRUE(has(outcome, "/sennit/libsennit_pmpi.so\n")) << outcome.output;
}

}  // namespace
