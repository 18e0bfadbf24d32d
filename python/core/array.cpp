// array.cpp: see core/array.hpp.
#include "core/array.hpp"

#include <cstdint>
#include <cstring>

#include "core/errors.hpp"

namespace sennit_python {
namespace {

struct TypeName {
  sennit_type_t type;
  const char* name;
  const char* numpy = nullptr;  // its name there and in the package ml_dtypes; null: the same
};
constexpr TypeName kTypes[] = {
    {SENNIT_INT8, "int8"},
    {SENNIT_UINT8, "uint8"},
    {SENNIT_INT32, "int32"},
    {SENNIT_UINT32, "uint32"},
    {SENNIT_INT64, "int64"},
    {SENNIT_UINT64, "uint64"},
    {SENNIT_FLOAT16, "float16"},
    {SENNIT_BFLOAT16, "bfloat16"},
    {SENNIT_FLOAT32, "float32"},
    {SENNIT_FLOAT64, "float64"},
    // ml_dtypes' float8_e4m3 is another one, which has infinities.
    {SENNIT_FLOAT8_E4M3, "float8_e4m3", "float8_e4m3fn"},
    {SENNIT_FLOAT8_E5M2, "float8_e5m2"},
};

const char* numpy_name(const TypeName& row) { return row.numpy ? row.numpy : row.name; }

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw_error(SENNIT_INVALID_ARGUMENT, what + ": " + why);
}

// With the exception that the object itself threw as the cause.
[[noreturn]] void refuse_because(const std::string& what, const std::string& why,
                                 const py::error_already_set& cause) {
  try {
    refuse(what, why + ": " + py::str(cause.value()).cast<std::string>());
  } catch (py::error_already_set& error) {
    error.value().attr("__cause__") = cause.value();
    throw;
  }
}

[[noreturn]] void refuse_type(const std::string& what, const std::string& type) {
  std::string all;
  for (const TypeName& row : kTypes) all += std::string(all.empty() ? "" : ", ") + numpy_name(row);
  refuse(what, "elements of " + type + "; sennit has " + all);
}

// The format of Python's module struct, of one native element.
bool type_of_format(const char* format, ptrdiff_t bytes, sennit_type_t* type) {
  if (!format) format = "B";
  if (*format == '@' || *format == '=' || *format == '<') format++;
  if (std::strlen(format) != 1) return false;
  const bool is_signed = std::strchr("bilqn", *format), is_unsigned = std::strchr("BILQN", *format);
  if (is_signed || is_unsigned) {
    if (bytes == 1) *type = is_signed ? SENNIT_INT8 : SENNIT_UINT8;
    if (bytes == 4) *type = is_signed ? SENNIT_INT32 : SENNIT_UINT32;
    if (bytes == 8) *type = is_signed ? SENNIT_INT64 : SENNIT_UINT64;
    return bytes == 1 || bytes == 4 || bytes == 8;
  }
  if (*format == 'e') *type = SENNIT_FLOAT16;
  if (*format == 'f') *type = SENNIT_FLOAT32;
  if (*format == 'd') *type = SENNIT_FLOAT64;
  return std::strchr("efd", *format);
}

// ---- DLPack: version 1, which says what is read-only, and what was before it ----

struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t dimensions;
  uint8_t type_code, type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};
struct DlManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlManagedTensorVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
static_assert(sizeof(DlTensor) == 48 && sizeof(void*) == 8);

constexpr uint64_t kDlReadOnly = 1;

constexpr int kDlCpu = 1;
constexpr int kDlCudaHost = 3;
constexpr int kDlRocmHost = 11;

const char* device_name(long type) {
  switch (type) {
    case 2:
      return "a CUDA device's";
    case 10:
      return "a ROCm device's";
    case 13:
      return "CUDA's managed";
    case 14:
      return "a oneAPI device's";
    case 8:
      return "a Metal device's";
    default:
      return "a device's";
  }
}

void host_memory(const std::string& what, long device_type) {
  if (device_type != kDlCpu && device_type != kDlCudaHost && device_type != kDlRocmHost)
    throw_error(SENNIT_UNSUPPORTED, what + ": it is " + device_name(device_type) +
                                        " memory; sennit works on host memory");
}

bool type_of_dlpack(const DlTensor& t, sennit_type_t* type) {
  struct Row {
    int code, bits;
    sennit_type_t type;
  };
  constexpr Row rows[] = {
      {0, 8, SENNIT_INT8},      {0, 32, SENNIT_INT32},       {0, 64, SENNIT_INT64},
      {1, 8, SENNIT_UINT8},     {1, 32, SENNIT_UINT32},      {1, 64, SENNIT_UINT64},
      {2, 16, SENNIT_FLOAT16},  {2, 32, SENNIT_FLOAT32},     {2, 64, SENNIT_FLOAT64},
      {4, 16, SENNIT_BFLOAT16}, {10, 8, SENNIT_FLOAT8_E4M3}, {12, 8, SENNIT_FLOAT8_E5M2}};
  for (const Row& row : rows)
    if (t.type_lanes == 1 && row.code == t.type_code && row.bits == t.type_bits) {
      *type = row.type;
      return true;
    }
  return false;
}

bool is_contiguous(const DlTensor& t, size_t* count) {
  int64_t expected = 1;
  bool contiguous = true, empty = false;
  for (int i = t.dimensions - 1; i >= 0; i--) {
    if (t.strides && t.shape[i] != 1 && t.strides[i] != expected) contiguous = false;
    expected *= t.shape[i];
    if (t.shape[i] == 0) empty = true;
  }
  *count = empty ? 0 : static_cast<size_t>(expected);
  return contiguous || empty;
}

}  // namespace

// What keeps the memory: a view of a buffer, a tensor of DLPack's, or the object itself.
struct Array::Held {
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (has_view) PyBuffer_Release(&view);
    if (managed && managed->deleter) managed->deleter(managed);
    if (versioned && versioned->deleter) versioned->deleter(versioned);
  }
  // Takes over what a capsule has. Null: it has none of DLPack's tensors, or of a later version.
  const DlTensor* take(const py::object& capsule);
  Py_buffer view{};
  bool has_view = false;
  DlManagedTensor* managed = nullptr;
  DlManagedTensorVersioned* versioned = nullptr;
  py::object object;
};

const DlTensor* Array::Held::take(const py::object& capsule) {
  PyObject* const from = capsule.ptr();
  if (PyCapsule_IsValid(from, "dltensor")) {
    managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(from, "dltensor"));
    PyCapsule_SetName(from, "used_dltensor");  // it is ours to delete
    return &managed->tensor;
  }
  if (!PyCapsule_IsValid(from, "dltensor_versioned")) return nullptr;
  versioned =
      static_cast<DlManagedTensorVersioned*>(PyCapsule_GetPointer(from, "dltensor_versioned"));
  PyCapsule_SetName(from, "used_dltensor_versioned");
  return versioned->major == 1 ? &versioned->tensor : nullptr;
}

const char* type_name(sennit_type_t type) {
  for (const TypeName& row : kTypes)
    if (row.type == type) return row.name;
  return "?";
}

bool type_named(const std::string& name, sennit_type_t* type) {
  for (const TypeName& row : kTypes)
    if (name == row.name) {
      *type = row.type;
      return true;
    }
  return type_of_numpy(name, type);
}

bool type_of_numpy(const std::string& name, sennit_type_t* type) {
  for (const TypeName& row : kTypes)
    if (name == numpy_name(row)) {
      *type = row.type;
      return true;
    }
  return false;
}

std::string Array::text() const { return std::to_string(count_) + " " + type_name(type_); }

bool Array::from_buffer(py::handle object, const std::string& what, bool written, Array* array,
                        Refusal* refusal) {
  if (!PyObject_CheckBuffer(object.ptr())) return false;
  auto held = std::make_shared<Held>();
  if (PyObject_GetBuffer(object.ptr(), &held->view, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    refusal->emplace();
    const bool of_object =
        (*refusal)->matches(PyExc_Exception) && !(*refusal)->matches(PyExc_MemoryError);
    if (!of_object) throw **refusal;
    return false;
  }
  held->has_view = true;
  const Py_buffer& view = held->view;
  if (!PyBuffer_IsContiguous(&view, 'C'))
    refuse(what,
           "its elements do not lie one after the other; copy it, as numpy.ascontiguousarray does");
  if (written && view.readonly) refuse(what, "it is read-only");
  if (!type_of_format(view.format, view.itemsize, &array->type_))
    refuse_type(what, "format '" + std::string(view.format ? view.format : "") + "'");
  array->data_ = view.buf;
  array->count_ = static_cast<size_t>(view.len / view.itemsize);
  array->held_ = std::move(held);
  return true;
}

// Types that a buffer's format has no letter for: ml_dtypes' bfloat16 and 8-bit floats.
bool Array::from_numpy(py::handle object, const std::string& what, bool written, Array* array) {
  if (!py::hasattr(object, "__array_interface__") || !py::hasattr(object, "dtype")) return false;
  const auto type = py::str(object.attr("dtype")).cast<std::string>();
  if (!type_of_numpy(type, &array->type_)) refuse_type(what, type);
  const py::dict interface = object.attr("__array_interface__");
  const py::tuple data = interface["data"];
  if (!interface["strides"].is_none())
    refuse(what,
           "its elements do not lie one after the other; copy it, as numpy.ascontiguousarray does");
  if (written && data[1].cast<bool>()) refuse(what, "it is read-only");
  array->data_ = reinterpret_cast<void*>(data[0].cast<uintptr_t>());
  array->count_ = 1;
  for (const py::handle extent : interface["shape"]) array->count_ *= extent.cast<size_t>();
  array->held_ = std::make_shared<Held>();
  array->held_->object = py::reinterpret_borrow<py::object>(object);
  return true;
}

namespace {

// Those who know of no versions know no such argument.
py::object dlpack_of(py::handle object) {
  try {
    return object.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return object.attr("__dlpack__")();
}

}  // namespace

bool Array::from_dlpack(py::handle object, const std::string& what, bool written, Array* array) {
  if (!py::hasattr(object, "__dlpack__")) return false;
  if (py::hasattr(object, "__dlpack_device__")) {
    const py::tuple device = object.attr("__dlpack_device__")();
    host_memory(what, device[0].cast<long>());
  }
  auto held = std::make_shared<Held>();
  held->object = py::reinterpret_borrow<py::object>(object);
  const DlTensor* const taken = held->take(dlpack_of(object));
  if (!taken) refuse(what, "its __dlpack__ gives a tensor of a version that sennit does not know");
  if (written && held->versioned && held->versioned->flags & kDlReadOnly)
    refuse(what, "it is read-only");
  const DlTensor& tensor = *taken;
  host_memory(what, tensor.device_type);
  if (!is_contiguous(tensor, &array->count_))
    refuse(what, "its elements do not lie one after the other; copy it, as .contiguous() does");
  if (!type_of_dlpack(tensor, &array->type_)) {
    const std::string type = py::hasattr(object, "dtype")
                                 ? py::str(object.attr("dtype")).cast<std::string>()
                                 : "DLPack's type " + std::to_string(tensor.type_code);
    refuse_type(what, type);
  }
  array->data_ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  array->held_ = std::move(held);
  return true;
}

Array Array::of(py::handle object, const std::string& what, bool written) {
  Array array;
  Refusal refusal;  // as of numpy's arrays of bfloat16, for which a buffer's format has no letter
  if (from_buffer(object, what, written, &array, &refusal) ||
      from_numpy(object, what, written, &array) || from_dlpack(object, what, written, &array))
    return array;
  if (refusal) refuse_because(what, "it does not give its buffer", *refusal);
  refuse(what, "a " + py::str(py::type::of(object).attr("__name__")).cast<std::string>() +
                   " has neither Python's buffer interface nor DLPack's");
}

}  // namespace sennit_python
