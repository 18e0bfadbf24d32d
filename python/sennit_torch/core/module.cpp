// module.cpp: sennit_torch._core: makes process groups.
#include <torch/extension.h>

#include <pybind11/stl.h>

#include "core/process_group.hpp"
#include "core/registered.hpp"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using sennit_torch::ProcessGroupSennit;
  pybind11::module_::import("torch._C._distributed_c10d");  // knows its base class
  pybind11::class_<ProcessGroupSennit, c10d::Backend, c10::intrusive_ptr<ProcessGroupSennit>>(
      module, "ProcessGroupSennit")
      // PyTorch has those who are no members of a split call this, where the job has a device. Here
      // the members alone make a group.
      .def("perform_nocolor_split", [](const ProcessGroupSennit&, const pybind11::object&) {});
  // What the interpreter calls to make a group.
  module.def(
      "process_group",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout,
         const std::string& name, const std::string& group, const std::vector<int>& members,
         bool has_device) {
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<ProcessGroupSennit>(
            store, rank, size, sennit_torch::Milliseconds(static_cast<int64_t>(timeout * 1e3)),
            name, group, members, has_device));
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
      py::arg("group"), py::arg("members"), py::arg("has_device"),
      py::call_guard<py::gil_scoped_release>());
  // At the interpreter's exit, as long as callbacks in Python still can run.
  module.def(
      "settle",
      [] {
        const auto in = [](sennit_torch::Milliseconds patience) {
          return std::chrono::steady_clock::now() + patience;
        };
        sennit_torch::TorchCall::settle(nullptr, in(sennit_torch::kPatience));
        sennit_torch::DeviceCalls::settle_all(in(sennit_torch::kPatience));
        sennit_torch::Watcher::instance().settle(in(sennit_torch::kPatience / 2));
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("register_memory", &sennit_torch::register_memory, py::arg("wanted"));
  module.attr("torch_version") = TORCH_VERSION;
}
