// link_failures.hpp: connections that broke between two ranks that both live. The coordinator
// announces each pair once; every rank hands it to its user. Control thread only.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "control/callers.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"
#include "control/tree/told.hpp"

namespace sennit::control {

class LinkFailures {
 public:
  LinkFailures(const Self& self, const Census& census, Sender& sender, Announcements& announcements,
               Callers& callers)
      : self_(self),
        census_(census),
        sender_(sender),
        announcements_(announcements),
        callers_(callers) {}

  // The coordinator found out. `what` is what the rank that reported it saw.
  void announce(int a, int b, const std::string& what);
  void on_link_down(const LinkDown& message);

 private:
  void tell(const LinkDown& message);

  const Self& self_;
  const Census& census_;
  Sender& sender_;
  Announcements& announcements_;
  Callers& callers_;
  std::set<std::pair<int, int>> known_;
};

}  // namespace sennit::control
