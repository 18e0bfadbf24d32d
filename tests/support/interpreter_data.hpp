// interpreter_data.hpp: the data of a collective on small arrays: what each rank's buffers hold
// before, which elements a range names, and what must lie where afterwards.
//
// Written from the definition of the collectives alone, with no look at schedules. Elements are
// 64-bit numbers that add up modulo 2^64; each also counts how often it was finished, and hashes in
// which order it was summed: after an all-reduce all ranks must agree on that, or floats would
// differ. Outputs start out as garbage.
#pragma once

#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "schedule/program.hpp"

namespace sennit {

// How messages move: tests/support/interpreter.hpp says it.
enum class Delivery { eager, rendezvous, exposed };

// What may differ from run to run of a program, which must work under all of it.
struct Circumstances {
  int chunks = 1;
  Delivery delivery = Delivery::eager;
  int late_rank = -1;  // starts only when nobody else can go on; for barriers
  // All-to-all-v: elements from i to j at i * ranks + j; empty: as the request says.
  std::vector<uint64_t> pair_counts;
};

// One element.
struct Cell {
  uint64_t value = 0;
  int finished = 0;
  uint64_t order = 0;  // of the sum, as a hash; a copy keeps it
};
class CollectiveData {
 public:
  CollectiveData(const Request& request, const Circumstances& execution, int ranks,
                 std::mt19937_64& random)
      : request_(request), execution_(execution), n_(ranks) {
    for (int rank = 0; rank < ranks; rank++) fill(rank, random);
  }

  bool has_block(int rank, Buffer buffer, uint64_t block) const {
    const bool own = block == static_cast<uint64_t>(rank), root = rank == request_.root;
    if (block >= (one_block() ? 1 : static_cast<uint64_t>(n_))) return false;
    const bool input = buffer == Buffer::input;
    switch (request_.collective) {
      case Collective::all_gather:
        return !input || own;
      case Collective::gather:
        return input ? own : root;
      case Collective::reduce_scatter:
        return input || own;
      case Collective::scatter:
        return input ? root : own;
      case Collective::broadcast:
        return !input || root;
      case Collective::reduce:
        return input || root;
      default:
        return true;
    }
  }

  // An element of this rank's input or output.
  Cell& cell(int rank, Buffer buffer, uint64_t block, uint64_t element) {
    Buffers& buffers = buffers_[static_cast<size_t>(rank)];
    const bool in_output =
        buffer == Buffer::output || (request_.in_place && has_block(rank, Buffer::output, block));
    return (in_output ? buffers.output : buffers.input)[block][element];
  }

  // visit(block, element) for all that these ranges name in this chunk.
  template <typename F>
  void for_each_element(int rank, int chunk, Buffer buffer, std::span<const Range> ranges,
                        F&& visit) const {
    for (const Range& range : ranges) {
      uint64_t block = range.block, begin = range.begin, left = range.end - range.begin;
      while (left > 0) {
        const uint64_t take = std::min(left, kUnits - begin);
        const uint64_t all = length(rank, buffer, block);
        const auto chunks = static_cast<uint64_t>(execution_.chunks),
                   c = static_cast<uint64_t>(chunk);
        const uint64_t first = all * c / chunks, slice = all * (c + 1) / chunks - first;
        for (uint64_t e = slice * begin / kUnits; e < slice * (begin + take) / kUnits; e++)
          visit(block, first + e);
        left -= take;
        begin = 0;
        block++;
      }
    }
  }

  // Empty, or which element of some rank's memory is not what the collective defines.
  std::string check() const {
    for (int rank = 0; rank < n_; rank++) {
      const Buffers& buffers = buffers_[static_cast<size_t>(rank)];
      for (const auto& [block, cells] : buffers.output)
        for (size_t e = 0; has_block(rank, Buffer::output, block) && e < cells.size(); e++)
          if (const std::string what = check_output(rank, block, e, cells[e]); !what.empty())
            return fmt::format("position {}: output block {} element {} {}", rank, block, e, what);
      for (const auto& [block, cells] : buffers.input)
        for (size_t e = 0; e < cells.size(); e++)
          if (cells[e].value != input_value(rank, block, e))
            return fmt::format("position {}: the input has changed", rank);
    }
    return {};
  }

 private:
  std::string check_output(int rank, uint64_t block, size_t element, const Cell& cell) const {
    if (cell.value != expected(rank, block, element)) return "is wrong";
    if (request_.reduces() && n_ > 1 && cell.finished != 1)
      return fmt::format("was finished {} times", cell.finished);
    if (request_.collective == Collective::all_reduce &&
        cell.order != buffers_[0].output.at(block)[element].order)
      return "was summed in another order than at position 0";
    return {};
  }

  struct Buffers {
    // by block; in place, one is used for both
    std::map<uint64_t, std::vector<Cell>> input, output;
  };
  uint64_t input_value(int rank, uint64_t block, uint64_t element) const {
    uint64_t x = (static_cast<uint64_t>(rank) * 1'000'003 + block) * 1'000'033 + element + 1;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
  }

  bool all_to_all() const { return request_.collective == Collective::all_to_all; }
  bool one_block() const {
    return request_.collective == Collective::all_reduce ||
           request_.collective == Collective::broadcast ||
           request_.collective == Collective::reduce || request_.collective == Collective::barrier;
  }
  uint64_t pair_count(uint64_t from, uint64_t to) const {
    return execution_.pair_counts.empty()
               ? request_.count
               : execution_.pair_counts[from * static_cast<uint64_t>(n_) + to];
  }
  uint64_t length(int rank, Buffer buffer, uint64_t block) const {
    const auto self = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(n_);
    if (request_.collective == Collective::barrier) return 0;
    if (one_block()) return request_.count;
    if (!all_to_all()) return request_.count_of(static_cast<int>(block));
    if (buffer == Buffer::slot) return pair_count(block / n, block % n);
    return buffer == Buffer::input ? pair_count(self, block) : pair_count(block, self);
  }

  void fill(int rank, std::mt19937_64& random) {
    Buffers& buffers = buffers_.emplace_back();
    const uint64_t blocks = one_block() ? 1 : static_cast<uint64_t>(n_);
    for (uint64_t b = 0; b < blocks; b++) {
      if (has_block(rank, Buffer::output, b)) {
        auto& cells = buffers.output[b];
        cells.resize(length(rank, Buffer::output, b));
        for (Cell& cell : cells) cell = {random(), 1000};
      }
      if (!has_block(rank, Buffer::input, b)) continue;
      const bool same = request_.in_place && has_block(rank, Buffer::output, b);
      auto& cells = same ? buffers.output[b] : buffers.input[b];
      cells.resize(length(rank, Buffer::input, b));
      for (size_t e = 0; e < cells.size(); e++)
        cells[e] = {input_value(rank, b, e), 0, input_value(rank, b, e)};
    }
  }

  uint64_t expected(int rank, uint64_t block, uint64_t element) const {
    uint64_t sum = 0;
    switch (request_.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
      case Collective::reduce_scatter:
        for (int r = 0; r < n_; r++) sum += input_value(r, block, element);
        return sum;
      case Collective::broadcast:
      case Collective::scatter:
        return input_value(request_.root, block, element);
      case Collective::all_to_all:
        return input_value(static_cast<int>(block), static_cast<uint64_t>(rank), element);
      default:
        return input_value(static_cast<int>(block), block, element);
    }
  }

  const Request& request_;
  const Circumstances& execution_;
  const int n_;
  std::vector<Buffers> buffers_;  // by rank
};

}  // namespace sennit
