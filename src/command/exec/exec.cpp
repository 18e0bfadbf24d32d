// exec.cpp: `sennit exec`: a program that was built for NCCL or MPI runs on sennit in its place.
//
// The library is preloaded, which wins over DT_RPATH as LD_LIBRARY_PATH does not: PyTorch's own
// libraries have one. The program and all that it starts inherit it.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "command/commands.hpp"
#include "command/exec/bindings.h"
#include "command/exec/large_counts.hpp"

namespace sennit {
namespace {

// As env(1) and nohup(1) answer.
constexpr int kNotStarted = 126;
constexpr int kNotFound = 127;
constexpr int kMachineLacks = 3;

struct Options {
  bool verbose = false, mpi = false;
  std::vector<std::string> command;
};

// What stands in the place of what, and where it says so.
struct Preload {
  const char* file;
  const char* function;  // one that every program calls which was built for it
  const char* built_where;
};
constexpr Preload kNccl = {"libnccl.so.2", "ncclAllReduce", "it is built with the library"};
constexpr Preload kMpi = {"libsennit_pmpi.so", "MPI_Allreduce",
                          "it is built where there is an MPI"};
constexpr const char* kMpiLarge = "libsennit_pmpi_large.so";  // beside kMpi

// The folder of what is preloaded: ../lib/sennit from the program, in whichever of the folders for
// libraries that a system has.
std::optional<std::filesystem::path> find_library(const char* name) {
  std::error_code unknown;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  for (const char* folder : {SENNIT_LIBRARY_FOLDER, "lib", "lib64"}) {
    const std::filesystem::path path = (here / ".." / folder / "sennit" / name).lexically_normal();
    if (std::filesystem::exists(path, unknown)) return path;
  }
  return std::nullopt;
}

int lacks(const char* name, const char* built_where) {
  std::fprintf(stderr,
               "sennit exec: there is no %s in lib/sennit beside this program; %s. Install sennit "
               "anew, or run the program from its build folder\n",
               name, built_where);
  return kMachineLacks;
}

// The loader knows no way to write a separator within a path.
int has_separators(const std::filesystem::path& folder) {
  std::fprintf(stderr,
               "sennit exec: %s: in LD_PRELOAD a blank or a colon ends a path. Install sennit in a "
               "folder whose path has none\n",
               folder.c_str());
  return kMachineLacks;
}

// Before what is there already.
void put_first(const char* variable, const std::string& path) {
  const char* const others = std::getenv(variable);
  setenv(variable, others && *others ? (path + ":" + others).c_str() : path.c_str(), 1);
}

// MPI's functions with large counts, where the command's MPI has them. Returns whether that went.
bool preload_large_counts(const Options& options) {
  const LargeCounts counts = large_counts_of(options.command);
  if (options.verbose)
    std::fprintf(stderr, "sennit exec: MPI_Allreduce_c and its like %s through sennit: %s\n",
                 counts.there ? "go" : "do not go", counts.why.c_str());
  if (!counts.there) return true;
  const std::optional<std::filesystem::path> library = find_library(kMpiLarge);
  if (library) put_first("LD_PRELOAD", *library);
  return library.has_value();
}

int start(const Options& options) {
  const Preload& preload = options.mpi ? kMpi : kNccl;
  const std::optional<std::filesystem::path> library = find_library(preload.file);
  if (!library) return lacks(preload.file, preload.built_where);
  if (library->string().find_first_of(" :") != std::string::npos)
    return has_separators(library->parent_path());
  if (options.mpi && !preload_large_counts(options)) return lacks(kMpiLarge, kMpi.built_where);
  put_first("LD_PRELOAD", *library);
  if (options.verbose) {
    const std::optional<std::filesystem::path> bindings = find_library(SENNIT_BINDINGS_FILE);
    if (!bindings) return lacks(SENNIT_BINDINGS_FILE, "it is built with the command");
    put_first("LD_AUDIT", *bindings);
    setenv(SENNIT_BINDINGS_VARIABLE,
           (std::string(preload.function) + ":" + library->string()).c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : options.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int why = errno;  // printing may change it
  std::fprintf(stderr, "sennit exec: %s: %s\n", words[0], std::strerror(why));
  return why == ENOENT ? kNotFound : kNotStarted;
}

}  // namespace

void add_exec_command(CommandLine& line) {
  static Options kept;  // lives as long as the process, as the values of options must
  Options* const options = &kept;
  const Command command = line.command(
      "exec", "run a program that was built for NCCL or MPI on sennit, with all that it starts");
  command.flag("--mpi", options->mpi, "MPI's collectives, in place of NCCL's interface");
  command.flag("-v,--verbose", options->verbose, "say of each process which file its calls go to");
  command.rest("command", options->command, "the program and its arguments; -- may stand before it")
      .required();
  command.action([=] { return start(*options); });
}

}  // namespace sennit
