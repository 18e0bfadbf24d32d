// contents.hpp: what a call's buffers hold before it, and what they must hold after it.
//
// Data that is only moved is random bytes. What is added up are small whole numbers of a period of
// 61 elements, so that every sum is exact in every type, in any order, and a piece that lands in
// the wrong place shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/random/model.hpp"

namespace random_programs {

using Bytes = std::vector<unsigned char>;

// The buffers of one rank's call. Offsets are in bytes; counts and displacements are in elements,
// and 0 where the rank need not know them.
struct Contents {
  // In place: `recv` alone, and `send` lies at send_offset of it; for reduce_scatter and scatter
  // `send` alone, and recv lies at recv_offset of it.
  bool in_place = false;
  bool send_is_whole = false;  // in place: it is the send buffer that holds the other
  size_t send_offset = 0, recv_offset = 0;
  bool sends = false, receives = false;  // else the pointer is NULL
  Bytes send, recv;                      // before; in place one of them is empty
  Bytes want;                            // recv after (in place: the one buffer)
  size_t from = 0, to = SIZE_MAX;        // of `want`: only what lies between is looked at
  std::vector<size_t> counts, displacements, recv_counts, recv_displacements;  // v-variants
};

// Of the event as this rank calls it (as_called_by), `salt` tells events apart.
Contents contents_of(const Event& called, const Comm& comm, int rank, unsigned salt);
Contents contents_of_message(const Event& event, unsigned salt, bool sender);

// Of one element; type: a sennit_type_t.
size_t bytes_of_type(int type);
// One element of `type`, at `out`: small whole numbers, halves, and what else the type holds
// exactly.
void put_number(int type, double value, unsigned char* out);
// What rank number `place` multiplies its part by, with kPremulSum.
double scalar_of(const Event& event, int place);

// Whether `rank` cannot be done without what `other` gives.
bool needs(const Event& event, const Comm& comm, int rank, int other);

}  // namespace random_programs
