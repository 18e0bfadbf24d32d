// open_mpi.cpp: finds the mpi backend, libsennit_trainer_mpi.so, and opens it: so the command needs
// no MPI library unless --backend mpi asks for one.
#include <dlfcn.h>

#include <fmt/core.h>

#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {

Result<std::unique_ptr<Communicator>> open_mpi(Traffic* traffic) {
  constexpr const char* kName = "libsennit_trainer_mpi.so";
  // By name alone: the loader looks along the program's run path, which is where it was installed,
  // or built.
  void* const library = dlopen(kName, RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("--backend mpi: {} cannot be opened ({}); it is built where Open "
                              "MPI's headers are found",
                              kName, dlerror()));
  using Open = void (*)(Traffic*, Result<std::unique_ptr<Communicator>>*);
  const auto open = reinterpret_cast<Open>(dlsym(library, "sennit_trainer_open_mpi"));
  if (!open) return Status(SENNIT_UNSUPPORTED, fmt::format("{} is of another version", kName));
  Result<std::unique_ptr<Communicator>> opened = Status(SENNIT_INTERNAL, "MPI did not start");
  open(traffic, &opened);
  return opened;
}

}  // namespace sennit::trainer
