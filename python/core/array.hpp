// array.hpp: the memory of a Python object, as a collective takes it.
//
// Objects are numpy's arrays, whatever else has Python's buffer interface (bytes, array.array,
// memoryview), and through DLPack the tensors of PyTorch, JAX and others.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <pybind11/pybind11.h>

#include "sennit/sennit.h"

namespace sennit_python {

namespace py = pybind11;

// Contiguous elements of one type in host memory. The object and its memory stay as long as this
// does. To be made and destroyed with the GIL held.
class Array {
 public:
  Array() = default;  // nothing: a NULL of no elements
  // what: for the texts of errors, such as "all_reduce: send". Throws InvalidArgument or
  // Unsupported where sennit cannot use the object's memory, or may not write to it.
  static Array of(py::handle object, const std::string& what, bool written);

  void* data() const { return data_; }
  size_t count() const { return count_; }
  sennit_type_t type() const { return type_; }
  bool none() const { return !held_; }
  std::string text() const;  // "6 float32"

 private:
  struct Held;
  using Refusal = std::optional<py::error_already_set>;
  // *refusal: what the object threw in place of its buffer.
  static bool from_buffer(py::handle object, const std::string& what, bool written, Array* array,
                          Refusal* refusal);
  static bool from_dlpack(py::handle object, const std::string& what, bool written, Array* array);
  static bool from_numpy(py::handle object, const std::string& what, bool written, Array* array);

  void* data_ = nullptr;
  size_t count_ = 0;
  sennit_type_t type_ = SENNIT_UINT8;
  std::shared_ptr<Held> held_;
};

// "float32"; "?" where it is no type of sennit's.
const char* type_name(sennit_type_t type);
// The type of a name, whether sennit's or numpy's. False leaves *type alone: there is none.
bool type_named(const std::string& name, sennit_type_t* type);
// The same of numpy's names alone, which calls another type by a name of sennit's.
bool type_of_numpy(const std::string& name, sennit_type_t* type);

}  // namespace sennit_python
