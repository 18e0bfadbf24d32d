// root_addresses.hpp: at which of rank 0's addresses to try next, when it has several. What a rank
// sends to others will go where this connection went, so all ranks have to take the same one: the
// first that works. Rank 0 may have begun to listen between two tries, so once it is there what was
// tried in vain is tried once more, except where nobody answered at all. Control thread only.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/net/socket.hpp"

namespace sennit::control {

class RootAddresses {
 public:
  void set(std::vector<Address> addresses) { addresses_ = std::move(addresses); }

  // The one to try now; there is one at least.
  const Address& next();
  // How long to wait from this attempt to the next one: longer after each round of all addresses.
  int64_t pause_ms() const;
  // Nobody answered at the one tried last.
  void was_silent();
  // Rank 0 is there. True: not to be kept, next() begins at the first address again.
  bool reached(const Address& address);

 private:
  size_t at() const { return attempts_ % addresses_.size(); }

  std::vector<Address> addresses_;
  size_t attempts_ = 0;
  bool found_ = false;       // at one of them
  std::set<size_t> silent_;  // before it was found
};

}  // namespace sennit::control
