// process_numbers.hpp: numbers for what several owners in a process make, so that one owner's is
// none of another's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

namespace sennit {

// Any thread.
class ProcessNumbers {
 public:
  // From `first` to `last`, and then anew.
  constexpr ProcessNumbers(int first, int last)
      : first_(first), count_(static_cast<uint32_t>(last) - static_cast<uint32_t>(first) + 1) {}

  // Adds the value under a number that was not given before or, once all have been, that this owner
  // does not have. Returns it.
  template <typename Value>
  int add(const Value& value, std::map<int, Value>* owned) {
    int number = 0;
    do number = first_ + static_cast<int>(given_++ % count_);
    while (!owned->try_emplace(number, value).second);
    return number;
  }

 private:
  const int first_;
  const uint32_t count_;
  std::atomic<uint32_t> given_{0};
};

}  // namespace sennit
