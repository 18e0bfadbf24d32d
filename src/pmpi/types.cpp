// types.cpp: see pmpi/types.hpp.
#include "pmpi/types.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <vector>

namespace sennit::pmpi {
namespace {

// What a predefined type is. Integers of other sizes than sennit's have bits only.
struct Known {
  MPI_Datatype type;
  enum class Class { integer, real, complex } what;
  sennit_type_t number;
  size_t per;
};

template <typename T>
Known integer(MPI_Datatype type) {
  constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);
  switch (sizeof(T)) {
    case 1:
      return {type, Known::Class::integer, is_signed ? SENNIT_INT8 : SENNIT_UINT8, 1};
    case 4:
      return {type, Known::Class::integer, is_signed ? SENNIT_INT32 : SENNIT_UINT32, 1};
    case 8:
      return {type, Known::Class::integer, is_signed ? SENNIT_INT64 : SENNIT_UINT64, 1};
    default:
      return {type, Known::Class::integer, SENNIT_UINT8, sizeof(T)};
  }
}

const std::vector<Known>& known_types() {
  using Class = Known::Class;
  static const auto* const all = new std::vector<Known>{
      integer<signed char>(MPI_SIGNED_CHAR),
      integer<unsigned char>(MPI_UNSIGNED_CHAR),
      integer<short>(MPI_SHORT),
      integer<unsigned short>(MPI_UNSIGNED_SHORT),
      integer<int>(MPI_INT),
      integer<unsigned>(MPI_UNSIGNED),
      integer<long>(MPI_LONG),
      integer<unsigned long>(MPI_UNSIGNED_LONG),
      integer<long long>(MPI_LONG_LONG),
      integer<unsigned long long>(MPI_UNSIGNED_LONG_LONG),
      integer<int8_t>(MPI_INT8_T),
      integer<uint8_t>(MPI_UINT8_T),
      integer<int16_t>(MPI_INT16_T),
      integer<uint16_t>(MPI_UINT16_T),
      integer<int32_t>(MPI_INT32_T),
      integer<uint32_t>(MPI_UINT32_T),
      integer<int64_t>(MPI_INT64_T),
      integer<uint64_t>(MPI_UINT64_T),
      integer<unsigned char>(MPI_BYTE),
      integer<MPI_Aint>(MPI_AINT),
      integer<MPI_Offset>(MPI_OFFSET),
      integer<MPI_Count>(MPI_COUNT),
      {MPI_FLOAT, Class::real, SENNIT_FLOAT32, 1},
      {MPI_DOUBLE, Class::real, SENNIT_FLOAT64, 1},
      {MPI_C_FLOAT_COMPLEX, Class::complex, SENNIT_FLOAT32, 2},
      {MPI_C_DOUBLE_COMPLEX, Class::complex, SENNIT_FLOAT64, 2},
  };
  return *all;
}

std::optional<sennit_op_t> op_of(MPI_Op op) {
  if (op == MPI_SUM) return SENNIT_SUM;
  if (op == MPI_PROD) return SENNIT_PROD;
  if (op == MPI_MIN) return SENNIT_MIN;
  if (op == MPI_MAX) return SENNIT_MAX;
  if (op == MPI_BAND) return SENNIT_BAND;
  if (op == MPI_BOR) return SENNIT_BOR;
  if (op == MPI_BXOR) return SENNIT_BXOR;
  return std::nullopt;
}

// Predefined, or one or several of such in a row. Any other type may have its parts in another
// order than memory has them.
bool is_dense(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) {
    int size = 0;
    MPI_Aint least = 0, extent = 0;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &least, &extent);
    return least == 0 && extent == size;
  }
  if (combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) return false;
  std::vector<int> numbers(static_cast<size_t>(integers) + 1);
  MPI_Aint none = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  PMPI_Type_get_contents(type, integers, 0, 1, numbers.data(), &none, &inner);
  const bool dense = is_dense(inner);
  PMPI_Type_get_envelope(inner, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) PMPI_Type_free(&inner);
  return dense;
}

}  // namespace

std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op) {
  const std::optional<sennit_op_t> number = op_of(op);
  if (!number) return std::nullopt;
  const bool bitwise = *number == SENNIT_BAND || *number == SENNIT_BOR || *number == SENNIT_BXOR;
  for (const Known& known : known_types()) {
    if (known.type != type) continue;
    const bool whole = known.per == 1;
    const bool can = known.what == Known::Class::integer   ? whole || bitwise
                     : known.what == Known::Class::complex ? *number == SENNIT_SUM
                                                           : !bitwise;
    if (type == MPI_BYTE && !bitwise) return std::nullopt;
    if (!can) return std::nullopt;
    return Reduction{known.number, *number, known.per};
  }
  return std::nullopt;
}

Elements::Elements(MPI_Datatype type) : type_(type), dense_(is_dense(type)) {
  int size = 0;
  MPI_Aint least = 0, extent = 0;
  PMPI_Type_size(type, &size);
  PMPI_Type_get_extent(type, &least, &extent);
  size_ = static_cast<size_t>(size);
  extent_ = static_cast<ptrdiff_t>(extent);
}

// MPI counts bytes in an int: calls part(first element, elements, bytes) for what fits at a time.
template <typename Part>
void Elements::in_parts(int count, Part part) const {
  if (size_ == 0) return;
  const int at_once = static_cast<int>(std::max<size_t>(1, INT_MAX / size_));
  for (int done = 0; done < count; done += at_once) {
    const int now = std::min(at_once, count - done);
    part(done, now, static_cast<int>(static_cast<size_t>(now) * size_));
  }
}

void Elements::pack(const void* elements, int count, std::byte* bytes) const {
  in_parts(count, [&](int first, int now, int room) {
    int at = 0;
    PMPI_Pack(static_cast<const std::byte*>(elements) + first * extent_, now, type_,
              bytes + static_cast<size_t>(first) * size_, room, &at, MPI_COMM_SELF);
  });
}

void Elements::unpack(const std::byte* bytes, void* elements, int count) const {
  in_parts(count, [&](int first, int now, int room) {
    int at = 0;
    PMPI_Unpack(bytes + static_cast<size_t>(first) * size_, room, &at,
                static_cast<std::byte*>(elements) + first * extent_, now, type_, MPI_COMM_SELF);
  });
}

}  // namespace sennit::pmpi
