// eager_windows.hpp: how much may come early over one connection: a window for each communicator,
// so that none can block another and memory is bounded.
//
// As a sender this end spends its window, and gets credit back with the headers that come. As a
// receiver it counts what the peer has spent, and owes it once the message was consumed; what is
// owed goes out with the next header of the communicator, at the latest once it is half the window,
// with a header of its own. Amounts are what eager_cost() says. Not thread-safe. Cost: a comparison
// while the communicator stays the same, else one look into a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

namespace sennit::tcp {

class EagerWindows {
 public:
  // `bytes`: the window of each communicator, the same on both sides.
  explicit EagerWindows(size_t bytes) : bytes_(bytes) {}

  // As the sender of a message of `bytes`: false if there is not enough of the window left.
  bool spend(uint32_t comm, size_t bytes);
  // As a sender: false if more came back than there is. What was spent may have been forgotten
  // meanwhile, and then it is nothing.
  bool take_credit(uint32_t comm, uint32_t credit);

  // As the receiver of a message of `bytes`: false if the peer had not so much left.
  bool hold(uint32_t comm, size_t bytes);
  // As the receiver, once it was consumed. True: a credit header is to be posted now.
  bool owe(uint32_t comm, size_t bytes);
  // As a receiver: the credit for the header that goes out now. `own`: it is the header that owe()
  // asked for.
  uint32_t collect_credit(uint32_t comm, bool own);

  // Gives back what is kept of communicators that `over` holds for.
  void forget(const std::function<bool(uint32_t comm)>& over);

 private:
  struct EagerWindow {
    size_t available;  // as a sender
    size_t held = 0;   // as a receiver: sent by the peer and not returned yet
    size_t owed = 0;   // ... of which consumed, to be returned with a header
    bool credit_posted = false;
  };
  EagerWindow& at(uint32_t comm);
  EagerWindow* find(uint32_t comm);  // null: nothing has moved on it

  const size_t bytes_;
  std::unordered_map<uint32_t, EagerWindow> windows_;
  uint32_t last_comm_ = 0;
  EagerWindow* last_ = nullptr;
};

}  // namespace sennit::tcp
