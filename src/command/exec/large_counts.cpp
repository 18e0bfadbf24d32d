// large_counts.cpp: see command/exec/large_counts.hpp.
#include "command/exec/large_counts.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "command/exec/has_function.h"
#include "topology/text/run_program.hpp"

namespace sennit {
namespace {

namespace fs = std::filesystem;

// One stands for all: an MPI has all of them or none.
const char* const kFunction = "MPI_Allreduce_c";
const std::string_view kElf = "\177ELF";

bool begins_with_one_of(std::string_view name, std::initializer_list<std::string_view> begins) {
  return std::any_of(begins.begin(), begins.end(),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}
// As the forwarder of src/pmpi knows them.
bool is_mpi(std::string_view name) {
  return begins_with_one_of(name, {"libmpi.so.", "libmpich.so.", "libmpi_abi.so."});
}
bool is_launcher(std::string_view name) { return begins_with_one_of(name, {"mpirun", "mpiexec"}); }

bool is_program(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown) && access(path.c_str(), X_OK) == 0;
}

// The file that a word means where it is started, as execvp(3) finds it.
std::optional<fs::path> program_of(const std::string& word) {
  if (word.find('/') != std::string::npos)
    return is_program(word) ? std::optional<fs::path>(word) : std::nullopt;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path && !word.empty() ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const fs::path file = fs::path(folder.empty() ? "." : folder) / word; is_program(file))
      return file;
  return std::nullopt;
}

// What the loader says of a program, line by line: "libmpi.so.12 => /opt/lib/libmpi.so.12 (0x7f)".
void add_linked(const fs::path& program, std::vector<fs::path>* mpis) {
  char begin[4] = {};
  std::ifstream(program, std::ios::binary).read(begin, sizeof begin);
  if (std::string_view(begin, sizeof begin) != kElf) return;
  constexpr int kTimeoutMs = 10'000;
  const std::optional<ProgramOutput> said = run_program({"ldd", program.string()}, kTimeoutMs);
  if (!said) return;
  std::istringstream lines(said->out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, arrow, file;
    if (words >> name >> arrow >> file && is_mpi(name) && file.starts_with('/'))
      mpis->emplace_back(file);
  }
}

// Those in ../lib of a launcher, where it is called, or else where the link there leads.
void add_installed_with(const fs::path& launcher, std::vector<fs::path>* mpis) {
  std::error_code unknown;
  for (const fs::path& place : {launcher, fs::canonical(launcher, unknown)}) {
    for (const char* folder : {"lib", "lib64"}) {
      fs::directory_iterator file(place.parent_path() / ".." / folder, unknown);
      for (; file != fs::directory_iterator(); file.increment(unknown))
        if (is_mpi(file->path().filename().string()))
          mpis->push_back(file->path().lexically_normal());
    }
    if (!mpis->empty()) return;
  }
}

std::vector<fs::path> mpis_of(const std::vector<std::string>& command) {
  std::vector<fs::path> programs, mpis;
  for (const std::string& word : command)
    if (const std::optional<fs::path> program = program_of(word)) programs.push_back(*program);
  for (const fs::path& program : programs) add_linked(program, &mpis);
  if (!mpis.empty()) return mpis;
  for (const fs::path& program : programs)
    if (is_launcher(program.filename().string())) add_installed_with(program, &mpis);
  return mpis;
}

}  // namespace

LargeCounts large_counts_of(const std::vector<std::string>& command) {
  const std::vector<fs::path> mpis = mpis_of(command);
  if (mpis.empty()) return {false, "no word of the command tells which MPI it will use"};
  for (const fs::path& mpi : mpis)
    if (sennit_has_function(mpi.c_str(), kFunction) != SENNIT_EXPORTS)
      return {false, mpi.string() + " does not have them"};
  return {true, mpis.front().string() + " has them"};
}

}  // namespace sennit
