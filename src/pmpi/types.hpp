// types.hpp: MPI's datatypes and operations as sennit knows them.
//
// Which calls sennit takes must come out alike on all ranks. MPI promises that the ranks of a
// reduction give the same type and operation; of any other collective only that the bytes are as
// many. So a reduction is taken by its type and operation, and any other call always: what is not
// dense in memory is packed.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "pmpi/device_memory.hpp"
#include "sennit/sennit.h"

namespace sennit::pmpi {

// A reduction: `per` elements of `type` for one of MPI's.
struct Reduction {
  sennit_type_t type;
  sennit_op_t op;
  size_t per;
};
// Nothing: sennit cannot do it, and MPI itself has to. Operations of the user's own are such, and
// types that sennit has not: 16-bit integers, long double, pairs.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

// Elements of a datatype in memory, which need not be dense.
class Elements {
 public:
  explicit Elements(MPI_Datatype type);

  // Whether n elements at this address are n * size() bytes in their order, without gaps, and where
  // the processor reaches them: not in a device's memory. What is not, MPI packs and unpacks.
  bool flat_at(const void* memory) const { return dense_ && !is_on_device(memory); }
  size_t size() const { return size_; }         // bytes of data in an element
  ptrdiff_t extent() const { return extent_; }  // from one element to the next

  // `count` elements to and from count * size() bytes.
  void pack(const void* elements, ptrdiff_t count, std::byte* bytes) const;
  void unpack(const std::byte* bytes, void* elements, ptrdiff_t count) const;

 private:
  bool is_long() const;
  template <typename Part>
  void in_parts(ptrdiff_t count, Part part) const;

  // Of the program's making another of one element, since it may free its own while a call is out.
  // A duplicate would call the program's functions that copy the attributes of a type.
  std::shared_ptr<MPI_Datatype> type_;
  size_t size_ = 0;
  ptrdiff_t extent_ = 0;
  bool dense_ = false;
};

}  // namespace sennit::pmpi
