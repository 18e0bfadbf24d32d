// id_table.hpp: values under ids that a peer may name long after they are gone: an id is not given
// again for 2^32 turns of its place. 0 is no id.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace sennit::shm {

template <typename Value>
class IdTable {
 public:
  uint64_t insert(Value value) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Entry& entry = entries_[index];
    entry.value = std::move(value);
    entry.used = true;
    return uint64_t{entry.turn} << 32 | index;
  }
  // nullptr: there is none of that id. Values stay where they are until they are erased.
  Value* find(uint64_t id) {
    const uint32_t index = static_cast<uint32_t>(id);
    if (index >= entries_.size() || !entries_[index].used || entries_[index].turn != id >> 32)
      return nullptr;
    return &entries_[index].value;
  }
  void erase(uint64_t id) {  // nothing, where there is none of that id
    if (!find(id)) return;
    Entry& entry = entries_[static_cast<uint32_t>(id)];
    entry.used = false;
    entry.turn++;
    free_.push_back(static_cast<uint32_t>(id));
  }

 private:
  struct Entry {
    Value value{};
    uint32_t turn = 1;
    bool used = false;
  };
  std::deque<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace sennit::shm
