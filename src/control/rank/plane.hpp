// plane.hpp: one rank's control plane without threads and sockets: all its objects, and which of
// them each frame is for. A frame that does not fit the link's role, or whose payload is not
// exactly what it should be, ends the link. Driven by its network, and by tick(). Control thread
// only.
#pragma once

#include <string>

#include "control/callers.hpp"
#include "control/rank/bootstrap.hpp"
#include "control/rank/call_watch.hpp"
#include "control/rank/small_collectives.hpp"
#include "control/tree/departure.hpp"

namespace sennit::control {

class Plane final : public Network::Owner, private Tree::Owner, private FailureDetector::Owner {
 public:
  Plane(Self& self, Network& network, Door& door, Callers& callers);

  Bootstrap& bootstrap() { return bootstrap_; }
  const Bootstrap& bootstrap() const { return bootstrap_; }
  SmallCollectives& collectives() { return collectives_; }
  CallWatch& calls() { return calls_; }
  Departure& departure() { return departure_; }
  // A data connection to this rank broke.
  void suspect_broken(int rank, const std::string& what);
  // An error for all ranks of the communicator.
  void abort(uint32_t comm, const std::string& why);

  void tick();
  void excuse(int64_t gap_ms);  // this process did not run for so long

  // Network::Owner
  void opened(Link& link) override;
  void arrived(Link& link, const Message& message) override;
  void dropped(const Link& link) override;
  void ended(const Ending& ending) override;
  void out_of_descriptors() override { bootstrap_.out_of_descriptors(); }

 private:
  enum class Taken : uint8_t { yes, unexpected, malformed };
  // Decodes the message for handle(T), which may say false: malformed.
  template <typename T, typename Handle>
  Taken take(const Message& message, Handle handle);

  void first_frame(Link& link, const Message& message);
  bool on_probe(Link& link, const Probe& probe);
  Taken frame_of(Link& link, const Message& message);
  Taken from_below(Link& link, const Message& message);
  Taken from_above(Link& link, const Message& message);
  Taken from_elsewhere(Link& link, const Message& message);
  void on_refusal(Link& link, const Status& status);

  // Tree::Owner
  void suspect(int rank, uint8_t evidence, const std::string& what) override;
  bool known_silent(int rank) const override { return failures_.known_silent(rank); }
  void neighbour_came() override { bootstrap_.check_joined(); }
  void child_came(Link& link, const Attach& attach) override;
  void parent_came(Link& link, const Welcome& welcome) override;
  void became_coordinator() override;
  // FailureDetector::Owner
  void excluded() override { departure_.close(); }

  Self& self_;
  Network& network_;
  Census census_;
  Tree tree_;
  Announcements announcements_;
  LinkFailures links_;
  FailureDetector failures_;
  Departure departure_;
  Bootstrap bootstrap_;
  SmallCollectives collectives_;
  CallWatch calls_;
};

}  // namespace sennit::control
