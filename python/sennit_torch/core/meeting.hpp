// meeting.hpp: how the ranks of a group meet in PyTorch's store, in waits that Control-C ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/watcher.hpp"

namespace sennit_torch {

using Word = std::vector<uint8_t>;

// Throws what the handler of a signal throws in Python, which runs such handlers in the process's
// main thread alone: who waits there without Python's lock asks again and again.
void check_signals();

// Whether a key is in the store by then. Throws where the store fails, or the handler of a signal.
bool comes(c10d::Store& store, const std::string& key, Time deadline);
// Not every store can; then it stays.
void forget(c10d::Store& store, const std::string& key);

// All ranks of a group come here, or rank 0 says who does not within the time. Then all have its
// word. What waits afterwards may wait longer. prefix: of its keys in the store.
Word meet(c10d::Store& store, const std::string& prefix, int rank, int size, Milliseconds timeout,
          const std::function<Word()>& word);

}  // namespace sennit_torch
