// types.cpp: see pmpi/types.hpp.
#include "pmpi/types.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <vector>

#include "base/mutex.hpp"

// Absent before MPI 4. Only these tell of a type whose maker was given large counts.
extern "C" {
[[gnu::weak]] int PMPI_Type_get_envelope_c(MPI_Datatype type, MPI_Count* integers,
                                           MPI_Count* addresses, MPI_Count* counts,
                                           MPI_Count* types, int* combiner);
[[gnu::weak]] int PMPI_Type_get_contents_c(MPI_Datatype type, MPI_Count integers,
                                           MPI_Count addresses, MPI_Count counts, MPI_Count types,
                                           int all_integers[], MPI_Aint all_addresses[],
                                           MPI_Count all_counts[], MPI_Datatype all_types[]);
}

namespace sennit::pmpi {
namespace {

enum class Class { integer, natural, bits, real, complex };

// What a predefined type is; how long it is, MPI says. Those of Fortran's names are used from C as
// well, and an MPI that was built without Fortran has them with no bytes.
struct Known {
  MPI_Datatype type;
  Class what;
};

const std::vector<Known>& known_types() {
  static const auto* const all = new std::vector<Known>{
      {MPI_INT, Class::integer},
      {MPI_DOUBLE, Class::real},
      {MPI_FLOAT, Class::real},
      {MPI_LONG, Class::integer},
      {MPI_LONG_LONG, Class::integer},
      {MPI_SHORT, Class::integer},
      {MPI_SIGNED_CHAR, Class::integer},
      {MPI_UNSIGNED, Class::natural},
      {MPI_UNSIGNED_LONG, Class::natural},
      {MPI_UNSIGNED_LONG_LONG, Class::natural},
      {MPI_UNSIGNED_SHORT, Class::natural},
      {MPI_UNSIGNED_CHAR, Class::natural},
      {MPI_INT8_T, Class::integer},
      {MPI_INT16_T, Class::integer},
      {MPI_INT32_T, Class::integer},
      {MPI_INT64_T, Class::integer},
      {MPI_UINT8_T, Class::natural},
      {MPI_UINT16_T, Class::natural},
      {MPI_UINT32_T, Class::natural},
      {MPI_UINT64_T, Class::natural},
      {MPI_BYTE, Class::bits},
      {MPI_AINT, Class::integer},
      {MPI_OFFSET, Class::integer},
      {MPI_COUNT, Class::integer},
      {MPI_C_COMPLEX, Class::complex},
      {MPI_C_FLOAT_COMPLEX, Class::complex},
      {MPI_C_DOUBLE_COMPLEX, Class::complex},
      {MPI_CXX_FLOAT_COMPLEX, Class::complex},
      {MPI_CXX_DOUBLE_COMPLEX, Class::complex},
      {MPI_INTEGER, Class::integer},
      {MPI_INTEGER1, Class::integer},
      {MPI_INTEGER2, Class::integer},
      {MPI_INTEGER4, Class::integer},
      {MPI_INTEGER8, Class::integer},
      {MPI_REAL, Class::real},
      {MPI_REAL4, Class::real},
      {MPI_REAL8, Class::real},
      {MPI_DOUBLE_PRECISION, Class::real},
      {MPI_COMPLEX, Class::complex},
      {MPI_COMPLEX8, Class::complex},
      {MPI_COMPLEX16, Class::complex},
      {MPI_DOUBLE_COMPLEX, Class::complex},
  };
  return *all;
}

// Sennit's numbers that are as long; nothing where it has none, such as long double.
std::optional<sennit_type_t> number_of(Class what, int bytes) {
  if (what == Class::real && bytes == 4) return SENNIT_FLOAT32;
  if (what == Class::real && bytes == 8) return SENNIT_FLOAT64;
  if (what != Class::integer && what != Class::natural) return std::nullopt;
  const bool is_signed = what == Class::integer;
  if (bytes == 1) return is_signed ? SENNIT_INT8 : SENNIT_UINT8;
  if (bytes == 4) return is_signed ? SENNIT_INT32 : SENNIT_UINT32;
  if (bytes == 8) return is_signed ? SENNIT_INT64 : SENNIT_UINT64;
  return std::nullopt;
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

// Not of the program's making, and not to be freed: those by Fortran's precision and range, and by
// what they are pairs of, are predefined as well, if not named.
bool is_predefined(int combiner) {
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  if (combiner == MPI_COMBINER_VALUE_INDEX) return true;
#endif
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

// How a type was made, as MPI_Type_get_envelope_c says: how many of what its maker was given.
struct Made {
  int combiner = 0;
  MPI_Count integers = 0, addresses = 0, counts = 0, types = 0;
};
Made made_of(MPI_Datatype type) {
  Made made;
  if (PMPI_Type_get_envelope_c) {
    PMPI_Type_get_envelope_c(type, &made.integers, &made.addresses, &made.counts, &made.types,
                             &made.combiner);
    return made;
  }
  int integers = 0, addresses = 0, types = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &made.combiner);
  made.integers = integers;
  return made;
}

// The one type that a type was made of, which is the caller's to free where it is not predefined.
MPI_Datatype inner_of(MPI_Datatype type, const Made& made) {
  std::vector<int> integers(static_cast<size_t>(made.integers) + 1);
  std::vector<MPI_Count> counts(static_cast<size_t>(made.counts) + 1);
  MPI_Aint none = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (PMPI_Type_get_contents_c)
    PMPI_Type_get_contents_c(type, made.integers, 0, made.counts, 1, integers.data(), &none,
                             counts.data(), &inner);
  else
    PMPI_Type_get_contents(type, static_cast<int>(made.integers), 0, 1, integers.data(), &none,
                           &inner);
  return inner;
}

// Predefined, or one or several of such in a row. Any other type may have its parts in another
// order than memory has them.
bool is_dense(MPI_Datatype type, const Made& made) {
  if (is_predefined(made.combiner)) {
    int size = 0;
    MPI_Aint least = 0, extent = 0;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &least, &extent);
    return least == 0 && extent == size;
  }
  if (made.combiner != MPI_COMBINER_CONTIGUOUS && made.combiner != MPI_COMBINER_DUP) return false;
  MPI_Datatype inner = inner_of(type, made);
  const Made how = made_of(inner);
  const bool dense = is_dense(inner, how);
  if (!is_predefined(how.combiner)) PMPI_Type_free(&inner);
  return dense;
}

// So many bytes, which may be more than an int counts.
MPI_Datatype bytes_type(size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 30;
  MPI_Datatype piece = MPI_DATATYPE_NULL, all = MPI_DATATYPE_NULL;
  PMPI_Type_contiguous(static_cast<int>(kPiece), MPI_BYTE, &piece);
  const int counts[] = {static_cast<int>(bytes / kPiece), static_cast<int>(bytes % kPiece)};
  const MPI_Aint begins[] = {0, static_cast<MPI_Aint>(bytes / kPiece * kPiece)};
  const MPI_Datatype types[] = {piece, MPI_BYTE};
  PMPI_Type_create_struct(2, counts, begins, types, &all);
  PMPI_Type_commit(&all);
  PMPI_Type_free(&piece);
  return all;
}

// Of this process alone, where nobody else's messages are, and none of the program's attributes.
MPI_Comm self() {
  static const MPI_Comm comm = [] {
    MPI_Comm made = MPI_COMM_NULL;
    PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &made);
    return made;
  }();
  return comm;
}

// One element as another of as many bytes: MPI's other way to pack, which counts none.
void copy_one(const void* from, MPI_Datatype from_type, void* to, MPI_Datatype to_type) {
  static Mutex mutex;
  const MutexLock lock(mutex);
  PMPI_Sendrecv(from, 1, from_type, 0, 0, to, 1, to_type, 0, 0, self(), MPI_STATUS_IGNORE);
}

}  // namespace

std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op) {
  const std::optional<sennit_op_t> number = op_of(op);
  if (!number || type == MPI_DATATYPE_NULL) return std::nullopt;
  const std::vector<Known>& all = known_types();
  const auto known =
      std::find_if(all.begin(), all.end(), [&](const Known& k) { return k.type == type; });
  if (known == all.end()) return std::nullopt;
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  if (bytes <= 0) return std::nullopt;
  if (*number == SENNIT_BAND || *number == SENNIT_BOR || *number == SENNIT_BXOR) {
    if (known->what == Class::real || known->what == Class::complex) return std::nullopt;
    return Reduction{SENNIT_UINT8, *number, static_cast<size_t>(bytes)};
  }
  const bool halves = known->what == Class::complex && *number == SENNIT_SUM;
  const std::optional<sennit_type_t> part =
      halves ? number_of(Class::real, bytes / 2) : number_of(known->what, bytes);
  if (!part) return std::nullopt;
  return Reduction{*part, *number, halves ? size_t{2} : size_t{1}};
}

Elements::Elements(MPI_Datatype type) : type_(std::make_shared<MPI_Datatype>(type)) {
  const Made made = made_of(type);
  dense_ = is_dense(type, made);
  MPI_Count size = 0;
  MPI_Aint least = 0, extent = 0;
  PMPI_Type_size_x(type, &size);
  PMPI_Type_get_extent(type, &least, &extent);
  size_ = static_cast<size_t>(size);
  extent_ = static_cast<ptrdiff_t>(extent);
  if (is_predefined(made.combiner)) return;
  MPI_Datatype copy = MPI_DATATYPE_NULL;
  PMPI_Type_contiguous(1, type, &copy);
  PMPI_Type_commit(&copy);
  type_ = {new MPI_Datatype(copy), [](MPI_Datatype* own) {
             PMPI_Type_free(own);
             delete own;
           }};
}

// MPI counts bytes in an int: calls part(first element, elements, bytes) for what fits at a time.
template <typename Part>
void Elements::in_parts(ptrdiff_t count, Part part) const {
  if (size_ == 0) return;
  const auto at_once = static_cast<ptrdiff_t>(std::max<size_t>(1, INT_MAX / size_));
  for (ptrdiff_t done = 0; done < count; done += at_once) {
    const ptrdiff_t now = std::min(at_once, count - done);
    part(done, static_cast<int>(now), static_cast<int>(static_cast<size_t>(now) * size_));
  }
}

// Whether an element has more bytes than an int counts.
bool Elements::is_long() const { return size_ > INT_MAX; }

void Elements::pack(const void* elements, ptrdiff_t count, std::byte* bytes) const {
  if (is_long()) {
    MPI_Datatype packed = bytes_type(size_);
    for (ptrdiff_t i = 0; i < count; i++)
      copy_one(static_cast<const std::byte*>(elements) + i * extent_, *type_,
               bytes + static_cast<size_t>(i) * size_, packed);
    PMPI_Type_free(&packed);
    return;
  }
  in_parts(count, [&](ptrdiff_t first, int now, int room) {
    int at = 0;
    PMPI_Pack(static_cast<const std::byte*>(elements) + first * extent_, now, *type_,
              bytes + static_cast<size_t>(first) * size_, room, &at, MPI_COMM_SELF);
  });
}

void Elements::unpack(const std::byte* bytes, void* elements, ptrdiff_t count) const {
  if (is_long()) {
    MPI_Datatype packed = bytes_type(size_);
    for (ptrdiff_t i = 0; i < count; i++)
      copy_one(bytes + static_cast<size_t>(i) * size_, packed,
               static_cast<std::byte*>(elements) + i * extent_, *type_);
    PMPI_Type_free(&packed);
    return;
  }
  in_parts(count, [&](ptrdiff_t first, int now, int room) {
    int at = 0;
    PMPI_Unpack(bytes + static_cast<size_t>(first) * size_, room, &at,
                static_cast<std::byte*>(elements) + first * extent_, now, *type_, MPI_COMM_SELF);
  });
}

}  // namespace sennit::pmpi
