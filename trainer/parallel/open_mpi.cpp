// open_mpi.cpp: finds the mpi backend, libsennit_trainer_mpi.so, and opens it: so the command needs
// no MPI library unless --backend mpi asks for one.
#include <dlfcn.h>
#include <unistd.h>

#include <array>

#include <fmt/format.h>

#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {

Result<std::unique_ptr<Communicator>> open_mpi(Traffic* traffic) {
  constexpr const char* kName = "libsennit_trainer_mpi.so";
  std::array<char, 4096> path = {};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string executable(path.data(), static_cast<size_t>(std::max<ssize_t>(0, length)));
  const std::string folder = executable.substr(0, executable.rfind('/') + 1);
  void* library = nullptr;
  std::string tried;
  for (const std::string& where : {folder + "../lib/", folder, std::string()}) {
    library = dlopen((where + kName).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) break;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", dlerror());
  }
  if (!library)
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("--backend mpi: {} cannot be opened ({}); it is built where Open "
                              "MPI's headers are found",
                              kName, tried));
  using Open = Result<std::unique_ptr<Communicator>> (*)(Traffic*);
  const auto open = reinterpret_cast<Open>(dlsym(library, "sennit_trainer_open_mpi"));
  if (!open) return Status(SENNIT_UNSUPPORTED, fmt::format("{} is of another version", kName));
  return open(traffic);
}

}  // namespace sennit::trainer
