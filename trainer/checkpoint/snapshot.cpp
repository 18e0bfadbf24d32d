// snapshot.cpp: see trainer/checkpoint/snapshot.hpp.
#include "trainer/checkpoint/snapshot.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include <fmt/core.h>

#include "trainer/base/start_thread.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace sennit::trainer {

Status Snapshot::plan(std::span<const TensorPiece> pieces) {
  pieces_.assign(pieces.begin(), pieces.end());
  entries_.clear();
  for (TensorPiece& piece : pieces_) {
    if (const auto fault = piece_fault(piece)) return invalid("checkpoint: " + *fault);
    if (piece.stride.empty()) piece.stride = dense_strides(piece.extent);
    const std::optional<Box> box = replica_share(piece);
    if (!box) continue;
    entries_.push_back({.piece = &piece,
                        .box = *box,
                        .name = piece.name,
                        .stored = stored_name(piece.name, *box, piece.shape),
                        .type = piece.type,
                        .shape = piece.shape});
  }
  // 4-byte elements first: then all lie at multiples of their size.
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.type < b.type; });
  std::vector<StoredTensor> stored;
  std::set<std::string> names;
  for (const Entry& entry : entries_) {
    if (!names.insert(entry.stored).second)
      return invalid(fmt::format("checkpoint: {} is there twice", entry.stored));
    stored.push_back({.name = entry.stored, .type = entry.type, .shape = entry.box.extent});
  }
  header_ = safetensors_header(&stored, {}, 64);
  for (size_t i = 0; i < entries_.size(); i++) entries_[i].at = header_.size() + stored[i].begin;
  bytes_ = header_.size() + (stored.empty() ? 0 : stored.back().end);
  return buffer_.reserve(bytes_);
}

void Snapshot::touch() { std::memset(buffer_.data(), 0, bytes_); }

void Snapshot::copy(int threads) {
  summed_ = summed_of_next_ = 0;
  sum_.reset();
  std::memcpy(buffer_.data(), header_.data(), header_.size());
  // In runs of the first dimension of a few MB each, dealt to the threads as they come.
  constexpr int64_t kRunBytes = 4 << 20;
  struct Item {
    const Entry* entry;
    Box part;
  };
  std::vector<Item> work;
  for (const Entry& entry : entries_) {
    const int64_t bytes = entry.box.elements() * static_cast<int64_t>(bytes_of(entry.type));
    const int64_t rows = entry.box.extent.empty() ? 1 : entry.box.extent[0];
    const int64_t step = std::max<int64_t>(1, bytes <= kRunBytes ? rows : kRunBytes * rows / bytes);
    for (int64_t row = 0; row < rows; row += step) {
      Item item{&entry, entry.box};
      if (!item.part.extent.empty()) {
        item.part.offset[0] += row;
        item.part.extent[0] = std::min(step, rows - row);
      }
      work.push_back(std::move(item));
    }
  }
  std::atomic<size_t> next{0};
  const auto run = [&](int) {
    for (size_t i = 0; (i = next++) < work.size();) {
      const Entry& entry = *work[i].entry;
      const TensorPiece& piece = *entry.piece;
      copy_part(work[i].part,
                {entry.box, dense_strides(entry.box.extent), buffer_.data() + entry.at},
                {{piece.offset, piece.extent}, piece.stride, piece.data}, bytes_of(entry.type));
    }
  };
  std::vector<std::thread> helpers =
      start_helpers("a checkpoint's copy", bytes_ > 2 * kRunBytes ? threads : 1, run);
  run(0);
  for (std::thread& helper : helpers) helper.join();
}

void Snapshot::sum_up_to(uint64_t bytes) {
  for (; summed_ < entries_.size(); summed_++, summed_of_next_ = 0, sum_.reset()) {
    Entry& entry = entries_[summed_];
    const uint64_t all = static_cast<uint64_t>(entry.box.elements()) * bytes_of(entry.type);
    const uint64_t now = std::min(all, bytes - std::min(bytes, entry.at));
    if (now > summed_of_next_)
      sum_.add(buffer_.data() + entry.at + summed_of_next_, now - summed_of_next_);
    summed_of_next_ = std::max(summed_of_next_, now);
    if (summed_of_next_ < all) return;
    entry.checksum = checksum_text(sum_.value());
  }
}

Manifest Snapshot::note(int64_t step, const std::string& file_name) {
  sum_up_to(bytes_);
  Manifest note;
  note.step = step;
  note.files.push_back({file_name, bytes_});
  for (const Entry& entry : entries_)
    note.tensors.try_emplace(entry.name, ManifestTensor{entry.type, entry.shape, {}})
        .first->second.boxes.push_back({entry.box, 0, entry.at, entry.checksum});
  // Tensors of which this rank writes nothing are still known to it, so that one that nobody writes
  // is missed.
  for (const TensorPiece& piece : pieces_)
    note.tensors.try_emplace(piece.name, ManifestTensor{piece.type, piece.shape, {}});
  return note;
}

}  // namespace sennit::trainer
