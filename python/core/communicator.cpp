// communicator.cpp: see core/communicator.hpp.
#include "core/communicator.hpp"

#include <cstring>
#include <future>
#include <optional>
#include <system_error>

#include <fmt/core.h>
#include <pybind11/stl.h>

#include "core/errors.hpp"

namespace sennit_python {

// ---- operations and memory ----

namespace {

// By its name, or by numpy's dtype or class.
sennit_type_t element_type(const py::object& dtype) {
  const bool is_name = py::isinstance<py::str>(dtype);
  py::object name = dtype;
  for (const char* attribute : {"__name__", "name"})
    if (!is_name && py::hasattr(dtype, attribute)) name = dtype.attr(attribute);
  const auto text = py::str(name).cast<std::string>();
  sennit_type_t type;
  if (is_name ? type_named(text, &type) : type_of_numpy(text, &type)) return type;
  throw_error(SENNIT_INVALID_ARGUMENT,
              "premul_sum: there is no type '" + text + "'; give one such as 'float32'");
}

// One element of a type, from a Python number: numpy does the conversions that C has no types for.
std::string element(const py::object& scalar, const std::string& type) {
  const auto as = [&](auto value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  if (type == "float64") return as(scalar.cast<double>());
  if (type == "float32") return as(scalar.cast<float>());
  if (type == "int8") return as(scalar.cast<int8_t>());
  if (type == "uint8") return as(scalar.cast<uint8_t>());
  if (type == "int32") return as(scalar.cast<int32_t>());
  if (type == "uint32") return as(scalar.cast<uint32_t>());
  if (type == "int64") return as(scalar.cast<int64_t>());
  if (type == "uint64") return as(scalar.cast<uint64_t>());
  if (type == "float16")  // which Python's module struct can write
    return py::module_::import("struct").attr("pack")("e", scalar.cast<double>()).cast<py::bytes>();
  if (type == "bfloat16") {  // the upper half of a float, rounded to even
    const float value = scalar.cast<float>();
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value == value) bits += 0x7fff + ((bits >> 16) & 1);
    return as(static_cast<uint16_t>(bits >> 16));
  }
  throw_error(SENNIT_UNSUPPORTED,
              "premul_sum: a scalar of type " + type + "; give it as an array of one element");
}

// The same, or InvalidArgument where the scalar is none of that type.
std::string element_or_refusal(const py::object& scalar, const std::string& type) {
  try {
    return element(scalar, type);
  } catch (const py::cast_error&) {
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_OverflowError)) throw;
  }
  throw_error(SENNIT_INVALID_ARGUMENT, "premul_sum: scalar is " +
                                           py::repr(scalar).cast<std::string>() +
                                           "; give a number of the type " + type);
}

}  // namespace

Op::Op(std::shared_ptr<Handle> comm, const py::object& scalar, sennit_type_t type)
    : comm_(std::move(comm)) {
  const std::string type_text = type_name(type);
  std::string bytes;
  if (py::hasattr(scalar, "__array_interface__") || py::hasattr(scalar, "__dlpack__")) {
    const Array array = Array::of(scalar, "premul_sum: scalar", false);
    if (array.count() != 1 || array.type() != type)
      throw_error(SENNIT_INVALID_ARGUMENT,
                  "premul_sum: scalar has " + array.text() + "; give 1 " + type_text);
    bytes.assign(static_cast<const char*>(array.data()), sennit_type_bytes(type));
  } else {
    bytes = element_or_refusal(scalar, type_text);
  }
  check(sennit_op_create_premul_sum(&value_, bytes.data(), type, comm_->comm));
  name_ = "premul_sum of " + type_text;
}

sennit_op_t Op::value_on(const std::shared_ptr<Handle>& comm) const {
  if (comm_ && comm_ != comm)
    throw_error(SENNIT_INVALID_ARGUMENT,
                "op: " + name_ + " of another communicator; make it with this one's premul_sum");
  return value_;
}

Op::~Op() {
  if (comm_) sennit_op_destroy(value_, comm_->comm);
}

Memory::Memory(std::shared_ptr<Handle> comm, size_t bytes) : comm_(std::move(comm)), bytes_(bytes) {
  check(sennit_mem_alloc(comm_->comm, bytes, &data_));
}

Memory::~Memory() { sennit_mem_free(comm_->comm, data_); }

// ---- the communicator itself ----

const std::shared_ptr<Handle>& PyCommunicator::handle() const {
  if (!handle_) throw_error(SENNIT_INVALID_ARGUMENT, "the communicator was destroyed");
  return handle_;
}

int PyCommunicator::rank() const {
  int rank = 0;
  check(sennit_comm_rank(comm(), &rank));
  return rank;
}

int PyCommunicator::size() const {
  int size = 0;
  check(sennit_comm_size(comm(), &size));
  return size;
}

namespace {

using Made = std::shared_ptr<PyCommunicator>;

using Text = std::optional<std::string>;

// Of a start that waits. What a signal's handler has thrown stays with the thread.
int interrupted(void*) {
  if (outlives_interpreter()) return 0;
  const py::gil_scoped_acquire locked;
  return PyErr_CheckSignals();
}

struct Config {
  Config(const Text& fabric, const Text& algorithm, const Text& concurrency,
         std::optional<double> arrival_timeout) {
    if (fabric) c.fabric = fabric->c_str();
    if (algorithm) c.algorithm = algorithm->c_str();
    if (concurrency) c.concurrency = concurrency->c_str();
    if (handles_signals()) c.interrupted = interrupted;
    if (!arrival_timeout) return;
    if (!(*arrival_timeout > 0 && *arrival_timeout <= 2e6))
      throw_error(SENNIT_INVALID_ARGUMENT, "arrival_timeout must be seconds > 0 and <= 2,000,000");
    c.arrival_timeout_ms = std::max(1, static_cast<int>(*arrival_timeout * 1e3));
  }
  sennit_config_t c = SENNIT_CONFIG_INIT;
};

// Runs what may wait for other ranks.
template <typename F>
void unlocked(sennit_comm_t comm, F&& function) {
  sennit_status_t status;
  {
    const Unlocked release;
    status = function();
  }
  check(status, comm);
}

// The same in a thread of its own, so that this one hears of signals: where the handler of one
// throws, the communicator is aborted, which ends the wait. `made`: what it makes out of that one,
// or NULL.
template <typename F>
void interruptible(sennit_comm_t comm, F&& function, const sennit_comm_t* made = nullptr) {
  sennit_status_t status = SENNIT_OK;
  std::string text;
  std::future<void> over;
  try {
    if (handles_signals())
      over = std::async(std::launch::async, [&] {
        status = function();
        text = sennit_last_error();
      });
  } catch (const std::system_error&) {  // the system has no thread left
  }
  if (!over.valid()) return unlocked(comm, function);
  const auto waits = [&] {
    const Unlocked release;
    return over.wait_for(kSignalsEvery) == std::future_status::timeout;
  };
  while (waits()) {
    if (PyErr_CheckSignals() == 0) continue;
    const py::error_already_set signal;
    {
      const Unlocked release;
      sennit_comm_abort(comm);
      over.wait();
      if (made && *made) {  // others would wait for this rank
        sennit_comm_abort(*made);
        sennit_comm_destroy(*made);
      }
    }
    throw signal;
  }
  if (status != SENNIT_OK) throw_error(status, text, comm);
}

// The communicator that `start` makes, which ends where the handler of a signal throws meanwhile.
template <typename F>
Made started(F&& start) {
  sennit_comm_t comm = nullptr;
  sennit_status_t status;
  {
    const Unlocked release;
    status = start(&comm);
  }
  if (!PyErr_Occurred()) {
    check(status);
    return std::make_shared<PyCommunicator>(comm);
  }
  const py::error_already_set signal;
  if (comm) {  // it was just made, and others would wait for this rank
    const PyCommunicator made(comm);
    const Unlocked release;
    sennit_comm_abort(comm);
  }
  throw signal;
}

Made init(const Text& fabric, const Text& algorithm, const Text& concurrency,
          std::optional<double> arrival_timeout) {
  const Config config(fabric, algorithm, concurrency, arrival_timeout);
  return started([&](sennit_comm_t* comm) { return sennit_comm_init_env(comm, &config.c); });
}

Made init_rank(const py::bytes& unique_id, int rank, int size, const Text& fabric,
               const Text& algorithm, const Text& concurrency,
               std::optional<double> arrival_timeout) {
  const Config config(fabric, algorithm, concurrency, arrival_timeout);
  const std::string text = unique_id;
  sennit_unique_id_t id;
  if (text.size() != sizeof id)
    throw_error(SENNIT_INVALID_ARGUMENT,
                fmt::format("init_rank: the id has {} bytes, not the {} that unique_id() gives",
                            text.size(), sizeof id));
  std::memcpy(&id, text.data(), sizeof id);
  return started(
      [&](sennit_comm_t* comm) { return sennit_comm_init_rank(comm, size, &id, rank, &config.c); });
}

std::vector<Made> init_local(int size, const Text& fabric, const Text& algorithm,
                             const Text& concurrency) {
  const Config config(fabric, algorithm, concurrency, std::nullopt);
  std::vector<sennit_comm_t> comms(static_cast<size_t>(std::max(size, 0)));
  unlocked(nullptr, [&] { return sennit_comm_init_local(comms.data(), size, &config.c); });
  std::vector<Made> all;
  all.reserve(comms.size());
  for (sennit_comm_t comm : comms) all.push_back(std::make_shared<PyCommunicator>(comm));
  return all;
}

py::bytes unique_id(const Text& address) {
  sennit_unique_id_t id;
  unlocked(nullptr, [&] {
    return address ? sennit_get_unique_id_at(address->c_str(), &id) : sennit_get_unique_id(&id);
  });
  return {id.internal, sizeof id.internal};
}

Made split(const PyCommunicator& self, std::optional<int> color, int key) {
  sennit_comm_t comm = nullptr;
  const std::shared_ptr<Handle> held = self.handle();
  if (color && *color < 0) {
    const std::string off = "split: color must be >= 0, or None to be in no communicator";
    sennit_comm_refuse(held->comm, off.c_str());
    throw_error(SENNIT_INVALID_ARGUMENT, off);
  }
  const int number = color.value_or(SENNIT_NO_COLOR);
  interruptible(
      held->comm, [&] { return sennit_comm_split(held->comm, number, key, &comm); }, &comm);
  return comm ? std::make_shared<PyCommunicator>(comm) : nullptr;
}

Made dup(const PyCommunicator& self) {
  sennit_comm_t comm = nullptr;
  const std::shared_ptr<Handle> held = self.handle();
  interruptible(
      held->comm, [&] { return sennit_comm_dup(held->comm, &comm); }, &comm);
  return std::make_shared<PyCommunicator>(comm);
}

Made create_group(const PyCommunicator& self, const std::vector<int>& ranks, int tag) {
  sennit_comm_t comm = nullptr;
  const std::shared_ptr<Handle> held = self.handle();
  unlocked(held->comm, [&] {
    return sennit_comm_create_group(held->comm, ranks.data(), static_cast<int>(ranks.size()), tag,
                                    &comm);
  });
  return std::make_shared<PyCommunicator>(comm);
}

void finalize(const PyCommunicator& self) {
  const std::shared_ptr<Handle> held = self.handle();
  interruptible(held->comm, [&] { return sennit_comm_finalize(held->comm); });
}

void abort(const PyCommunicator& self) {
  const std::shared_ptr<Handle> held = self.handle();
  unlocked(nullptr, [&] { return sennit_comm_abort(held->comm); });
}

// On a thread of the library. An interpreter that ends gives its lock to nobody any more.
void tell(const char* json, void* user) {
  if (outlives_interpreter()) return;
  std::optional<py::gil_scoped_acquire> locked;
  lock_or_stay([&] { locked.emplace(); }, [] {});
  try {
    (*static_cast<py::function*>(user))(py::module_::import("json").attr("loads")(json));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("the function of Communicator.on_verdict");
  }
}

void on_verdict(const PyCommunicator& self, const std::optional<py::function>& told) {
  const std::shared_ptr<Handle> held = self.handle();
  if (held->told) held->stop_telling();
  if (!told) return;
  held->told = std::make_unique<py::function>(*told);
  keep_told(held);
  check(sennit_comm_on_verdict(held->comm, tell, held->told.get()), held->comm);
}

void raise_failure(const PyCommunicator& self) {
  check(sennit_comm_get_async_error(self.comm()), self.comm());
}

std::vector<int> failed_ranks(const PyCommunicator& self) {
  std::vector<int> ranks(static_cast<size_t>(self.size()));
  int count = 0;
  check(sennit_comm_failed_ranks(self.comm(), ranks.data(), self.size(), &count));
  ranks.resize(static_cast<size_t>(count));
  return ranks;
}

int fabric_position(const PyCommunicator& self) {
  int position = 0;
  check(sennit_comm_fabric_position(self.comm(), &position));
  return position;
}

void register_memory(const PyCommunicator& self, const py::object& object) {
  Array array = Array::of(object, "register: buffer", true);
  check(sennit_mem_register(self.comm(), array.data(),
                            array.count() * sennit_type_bytes(array.type())));
  self.handle()->registered.emplace(array.data(), std::move(array));
}

void deregister_memory(const PyCommunicator& self, const py::object& object) {
  const Array array = Array::of(object, "deregister: buffer", false);
  check(sennit_mem_deregister(self.comm(), array.data()));
  auto& all = self.handle()->registered;
  if (const auto at = all.find(array.data()); at != all.end()) all.erase(at);
}

void leave(const std::shared_ptr<PyCommunicator>& self, const py::object& type, const py::object&,
           const py::object&) {
  if (self->destroyed()) return;
  if (type.is_none()) finalize(*self);
  self->destroy();
}

// What is refused before the library sees it others wait for all the same: the library tells them.
// Nobody who is in a collective waits for a message.
template <typename F>
std::shared_ptr<PyWork> made_or_told(const PyCommunicator& self, bool message, F&& make) {
  try {
    return make();
  } catch (py::error_already_set& error) {
    if (!message && !self.destroyed() && is_refusal(error))
      sennit_comm_refuse(self.comm(), py::str(error.value()).cast<std::string>().c_str());
    throw;
  }
}

// A collective as two methods: one that waits, and its twin with the suffix _start. In a group both
// are made when the group ends.
template <typename... Args, typename... Extra>
void collective(py::class_<PyCommunicator, Made>& type, const std::string& name,
                const std::string& doc, std::shared_ptr<PyWork> (PyCommunicator::*method)(Args...),
                const Extra&... extra) {
  const auto make = [method, message = name == "send" || name == "recv"](PyCommunicator& self,
                                                                         Args... args) {
    return made_or_told(self, message, [&] { return (self.*method)(args...); });
  };
  type.def(
      name.c_str(),
      [make](PyCommunicator& self, Args... args) {
        std::shared_ptr<PyWork> made = make(self, args...);
        if (!in_group()) return made->run();
        made->start();
        keep_in_group(std::move(made));
      },
      extra..., doc.c_str());
  type.def((name + "_start").c_str(),
           [make](PyCommunicator& self, Args... args) {
             std::shared_ptr<PyWork> made = make(self, args...);
             made->start();
             if (in_group()) keep_in_group(made);
             return made;
           },
           extra..., ("Starts " + name + " and returns its Work.").c_str());
}

void add_collectives(py::class_<PyCommunicator, Made>& type, const py::object& sum) {
  const auto counts = py::arg("counts") = py::none();
  const auto displacements = py::arg("displacements") = py::none();
  const auto root = py::arg("root") = 0;
  const auto op = py::arg("op") = sum;
  const auto nothing = py::arg("recv") = py::none();
  collective(type, "all_reduce",
             "Reduces the elements of all ranks' `send` one by one into every rank's `recv` (None: "
             "into `send`).",
             &PyCommunicator::all_reduce, py::arg("send"), nothing, op);
  collective(type, "reduce",
             "all_reduce, with the result on rank `root` alone (recv None: into its `send`).",
             &PyCommunicator::reduce, py::arg("send"), nothing, op, root);
  collective(type, "broadcast", "Rank `root`'s `buffer` into every other rank's.",
             &PyCommunicator::broadcast, py::arg("buffer"), root);
  collective(type, "reduce_scatter",
             "Reduces all ranks' `send`, of size * n elements; rank r gets the r-th n into `recv`. "
             "counts: elements of each rank, where they differ; the same on every rank.",
             &PyCommunicator::reduce_scatter, py::arg("send"), py::arg("recv"), op, counts);
  collective(type, "all_gather",
             "Every rank's `send`, of n elements, one after the other into every rank's `recv`. "
             "counts, displacements: elements of each rank and where they go, in elements; the "
             "same on every rank.",
             &PyCommunicator::all_gather, py::arg("send"), py::arg("recv"), counts, displacements);
  collective(type, "gather",
             "all_gather, with the result on rank `root` alone; others may give None for `recv`. "
             "counts and displacements have one entry for each rank. They matter on the root; "
             "others fill in their own entry.",
             &PyCommunicator::gather, py::arg("send"), nothing, root, counts, displacements);
  collective(type, "scatter",
             "Rank `root`'s `send`, of size * n elements; rank r gets the r-th n into `recv`. "
             "Others may give None for `send`. counts and displacements: as gather has them.",
             &PyCommunicator::scatter, py::arg("send"), py::arg("recv"), root, counts,
             displacements);
  collective(type, "all_to_all",
             "Block j of rank i's `send` becomes block i of rank j's `recv`. The lists give each "
             "rank's elements, and where they lie, where blocks differ.",
             &PyCommunicator::all_to_all, py::arg("send"), py::arg("recv"),
             py::arg("send_counts") = py::none(), py::arg("recv_counts") = py::none(),
             py::arg("send_displacements") = py::none(),
             py::arg("recv_displacements") = py::none());
  collective(type, "barrier", "Returns when all ranks have called it.", &PyCommunicator::barrier);
  collective(type, "send",
             "`buffer` to rank `peer`, which must receive as many elements of the same type with "
             "the same tag, 0 or more. To oneself: start the receive first, with recv_start.",
             &PyCommunicator::send, py::arg("buffer"), py::arg("peer"), py::arg("tag") = 0);
  collective(type, "recv",
             "The first message of rank `peer` with this tag that no receive before it took, into "
             "`buffer`. peer ANY_SOURCE: of any other rank; Work.source says which it was.",
             &PyCommunicator::recv, py::arg("buffer"), py::arg("peer"), py::arg("tag") = 0);
}

void add_making(py::module_& module) {
  const auto fabric = py::arg("fabric") = py::none();
  const auto algorithm = py::arg("algorithm") = py::none();
  const auto concurrency = py::arg("concurrency") = py::none();
  const auto timeout = py::arg("arrival_timeout") = py::none();
  module.def("init", &init, py::kw_only(), fabric, algorithm, concurrency, timeout,
             "A Communicator of all ranks of the job that a launcher started: mpirun, srun, "
             "torchrun, or whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n\n"
             "fabric: a fabric file; algorithm, concurrency: as SENNIT_ALGORITHM and "
             "SENNIT_CONCURRENCY; arrival_timeout: seconds to wait for ranks that never come.");
  module.def("unique_id", &unique_id, py::arg("address") = py::none(),
             "An id for init_rank, 128 bytes. One process makes it and hands it to all ranks. Keep "
             "it secret: who holds it may join.\n\n"
             "address: \"host:port\", where rank 0 is to listen. Then every rank makes the id for "
             "itself, with the same SENNIT_SECRET.");
  module.def(
      "init_rank", &init_rank, py::arg("unique_id"), py::arg("rank"), py::arg("size"),
      py::kw_only(), fabric, algorithm, concurrency, timeout,
      "A Communicator of `size` ranks that were handed one id. Waits for all; Control-C ends "
      "that.");
  module.def("init_local", &init_local, py::arg("size"), py::kw_only(), fabric, algorithm,
             concurrency, "`size` Communicators, one for each of as many threads of this process.");
}

void add_operations(py::module_& module) {
  py::class_<Op, std::shared_ptr<Op>>(module, "Op", "What a reduction does with two elements.")
      .def("__repr__", [](const Op& op) { return "<sennit.Op " + op.name() + ">"; });
  const std::pair<const char*, sennit_op_t> all[] = {
      {"SUM", SENNIT_SUM}, {"PROD", SENNIT_PROD}, {"MIN", SENNIT_MIN}, {"MAX", SENNIT_MAX},
      {"AVG", SENNIT_AVG}, {"BAND", SENNIT_BAND}, {"BOR", SENNIT_BOR}, {"BXOR", SENNIT_BXOR}};
  module.attr("ANY_SOURCE") = SENNIT_ANY_SOURCE;
  for (const auto& [name, value] : all) module.attr(name) = std::make_shared<Op>(value, name);
  py::class_<Memory, std::shared_ptr<Memory>>(
      module, "Memory", py::buffer_protocol(),
      "Bytes that the other ranks of this host read in place; numpy.frombuffer gives them a type. "
      "Freed when nobody refers to it.")
      .def_buffer([](Memory& memory) {
        return py::buffer_info(static_cast<uint8_t*>(memory.data()),
                               static_cast<py::ssize_t>(memory.bytes()));
      })
      .def("__len__", &Memory::bytes);
}

// What is wrong with it, or with the job.
void add_failures(py::class_<PyCommunicator, Made>& type) {
  type.def_property_readonly("failed_ranks", &failed_ranks, "Ranks known dead, ascending.")
      .def("on_verdict", &on_verdict, py::arg("told"),
           "Has told(verdict) called, on a thread of the library, with each thing that is found "
           "wrong with the job while it runs; None: no more. verdict is a dict with at least "
           "verdict ('slow_link', 'late_rank', 'starved_rank' or 'hang'), withdrawn (it holds no "
           "more) and sentence. "
           "A hang is told on all ranks, the rest on the job's rank 0. told makes no calls of this "
           "module.")
      .def("raise_failure", &raise_failure,
           "Raises the error that the communicator failed with, if it did. Any thread.");
}

}  // namespace

void add_communicator(py::module_& module) {
  add_operations(module);
  py::class_<PyCommunicator, Made> type(
      module, "Communicator",
      "A group of ranks. All collectives wait; each has a twin with the suffix _start. Buffers are "
      "numpy arrays, whatever has Python's buffer interface, or DLPack tensors on the host; "
      "contiguous, and of one type in a call. One thread at a time may make calls on it; abort() "
      "is for any thread.\n\nAs a context manager it is finalized and destroyed at the end.");
  add_collectives(type, module.attr("SUM"));
  add_failures(type);
  type.def_property_readonly("rank", &PyCommunicator::rank, "This process's place in it, from 0.")
      .def_property_readonly("size", &PyCommunicator::size, "How many ranks it has.")
      .def_property_readonly("fabric_position", &fabric_position,
                             "This rank's place in fabric order: neighbours in it are near in the "
                             "network.")
      .def("split", &split, py::arg("color"), py::arg("key") = 0,
           "Collective. Ranks of one color form a Communicator, ordered by key, then by rank. None "
           "for a rank whose color is None.")
      .def("dup", &dup, "Collective. A Communicator of the same ranks.")
      .def("create_group", &create_group, py::arg("ranks"), py::arg("tag") = 0,
           "A Communicator of these ranks, made by them alone: ranks[i] becomes rank i; the same "
           "list on all. Any thread: tag, 0 or more, tells groups apart that are made at once. "
           "Raises InvalidArgument where this rank is not among them or one is there twice, "
           "Mismatch where lists differ, PeerFailed where this communicator has lost a rank.")
      .def(
          "premul_sum",
          [](const PyCommunicator& self, const py::object& scalar, const py::object& dtype) {
            return std::make_shared<Op>(self.handle(), scalar, element_type(dtype));
          },
          py::arg("scalar"), py::arg("dtype"),
          "An Op for calls of this communicator: the sum of scalar * x. dtype: the elements' type, "
          "as 'float32' or numpy.float32.")
      .def(
          "alloc",
          [](const PyCommunicator& self, size_t bytes) {
            return std::make_shared<Memory>(self.handle(), bytes);
          },
          py::arg("bytes"), "Memory, zeroed. Any memory works; this is faster within a host.")
      .def("register", &register_memory, py::arg("buffer"),
           "Makes memory of yours as fast as alloc()'s. Costs two copies: do it once for buffers "
           "that are used often.")
      .def("deregister", &deregister_memory, py::arg("buffer"), "As it was registered.")
      .def("finalize", &finalize, "Collective. Completes what was started and waits for all ranks.")
      .def("abort", &abort,
           "Any thread. Fails all work on all ranks, with Aborted, and returns within a bounded "
           "time.")
      .def("destroy", &PyCommunicator::destroy,
           "Lets go of it, without waiting for other ranks. Works, memory and operations that are "
           "left keep what they need.")
      .def("__enter__", [](Made self) { return self; })
      .def("__exit__", &leave)
      .def("__repr__", [](const PyCommunicator& self) {
        return self.destroyed()
                   ? std::string("<sennit.Communicator, destroyed>")
                   : fmt::format("<sennit.Communicator, rank {} of {}>", self.rank(), self.size());
      });
  add_making(module);
}

}  // namespace sennit_python
