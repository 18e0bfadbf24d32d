// module.cpp: sennit._core, what the package `sennit` is made of.
#include "core/communicator.hpp"
#include "core/errors.hpp"
#include "core/work.hpp"

PYBIND11_MODULE(_core, module) {
  using namespace sennit_python;
  module.doc() = "Topology-aware collective communication; see the package sennit.";
  add_errors(module);
  add_work(module);
  add_communicator(module);
  module.attr("__version__") = sennit_version();
}
