// communicator.hpp: Python's Communicator: what it is made of, and its collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/handle.hpp"
#include "core/work.hpp"

namespace sennit_python {

using Counts = std::optional<std::vector<size_t>>;

// An operation: one of sennit's own, or a pre-multiplied sum, which belongs to a communicator.
class Op {
 public:
  explicit Op(sennit_op_t value, std::string name) : value_(value), name_(std::move(name)) {}
  Op(std::shared_ptr<Handle> comm, const py::object& scalar, sennit_type_t type);
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  // For a call of that communicator's. Throws where it belongs to another one: sennit refuses that
  // as well, but knows only its number.
  sennit_op_t value_on(const std::shared_ptr<Handle>& comm) const;
  const std::string& name() const { return name_; }

 private:
  std::shared_ptr<Handle> comm_;  // of a pre-multiplied sum
  sennit_op_t value_;
  std::string name_;
};

// Memory that the other ranks of this host can read in place; Python sees bytes.
class Memory {
 public:
  Memory(std::shared_ptr<Handle> comm, size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Handle> comm_;
  void* data_ = nullptr;
  size_t bytes_;
};

// Python sees it as Communicator.
class PyCommunicator {
 public:
  explicit PyCommunicator(sennit_comm_t made) : handle_(std::make_shared<Handle>(made)) {}

  sennit_comm_t comm() const { return handle()->comm; }
  const std::shared_ptr<Handle>& handle() const;  // throws where it was destroyed
  bool destroyed() const { return !handle_; }
  void destroy() { handle_.reset(); }

  int rank() const;
  int size() const;

  // Each makes a call of what Python gave, checked: how many elements there must be, and of one
  // type.
  using Made = std::shared_ptr<PyWork>;
  Made all_reduce(const py::object& send, const py::object& recv, const Op& op);
  Made reduce(const py::object& send, const py::object& recv, const Op& op, int root);
  Made broadcast(const py::object& buffer, int root);
  Made reduce_scatter(const py::object& send, const py::object& recv, const Op& op,
                      const Counts& counts);
  Made all_gather(const py::object& send, const py::object& recv, const Counts& counts,
                  const Counts& displacements);
  Made gather(const py::object& send, const py::object& recv, int root, const Counts& counts,
              const Counts& displacements);
  Made scatter(const py::object& send, const py::object& recv, int root, const Counts& counts,
               const Counts& displacements);
  Made all_to_all(const py::object& send, const py::object& recv, const Counts& send_counts,
                  const Counts& recv_counts, const Counts& send_displacements,
                  const Counts& recv_displacements);
  Made barrier();
  Made send(const py::object& buffer, int peer, int tag);
  Made recv(const py::object& buffer, int peer, int tag);

 private:
  Made call(Array first, Array second, PyWork::Start start) const;

  std::shared_ptr<Handle> handle_;
};

// Gives the module the classes Communicator, Op and Memory, the operations, and the functions that
// make communicators. After add_work(), since signatures name Work.
void add_communicator(py::module_& module);

}  // namespace sennit_python
