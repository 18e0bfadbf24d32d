// plane.hpp: one rank's control plane without threads and sockets: all its objects, and which of
// them each frame is for. A frame that does not fit the channel's role, or whose payload is not
// exactly what it should be, ends the channel. Driven by its network, and by tick(). Control thread
// only.
#pragma once

#include <string>

#include "control/callers.hpp"
#include "control/rank/bootstrap.hpp"
#include "control/rank/call_watch.hpp"
#include "control/rank/news.hpp"
#include "control/rank/small_collectives.hpp"
#include "control/tree/clock_exchange.hpp"
#include "control/tree/departure.hpp"

namespace sennit::control {

// Owns the objects below; `self`, `channels`, `door` and `callers` must outlive it.
class Plane final : public Channels::Owner, private Tree::Owner, private FailureDetector::Owner {
 public:
  Plane(Self& self, Channels& channels, Door& door, Callers& callers);

  Bootstrap& bootstrap() { return bootstrap_; }
  const Bootstrap& bootstrap() const { return bootstrap_; }
  SmallCollectives& collectives() { return collectives_; }
  CallWatch& calls() { return calls_; }
  News& news() { return news_; }
  const ClockExchange& clock() const { return clock_; }
  Departure& departure() { return departure_; }
  // A data connection to this rank broke.
  void suspect_broken(int rank, const std::string& what);
  // An error for all ranks of the communicator.
  void abort(uint32_t comm, const std::string& why);

  void tick();
  void excuse(int64_t gap_ms);  // this process did not run for so long

  // Channels::Owner
  void opened(Channel& channel) override;
  void arrived(Channel& channel, const ReceivedFrame& message) override;
  void dropped(const Channel& channel) override;
  void ended(const Ending& ending) override;
  void out_of_descriptors() override { bootstrap_.out_of_descriptors(); }

 private:
  // What became of a frame. All but `yes` end the channel that it came by.
  enum class Taken : uint8_t { yes, unexpected, malformed };
  // Decodes the message for handle(T), which may say false: malformed.
  template <typename T, typename Handle>
  Taken take(const ReceivedFrame& message, Handle handle);

  void first_frame(Channel& channel, const ReceivedFrame& message);
  bool on_probe(Channel& channel, const Probe& probe);
  Taken frame_of(Channel& channel, const ReceivedFrame& message);
  Taken from_below(Channel& channel, const ReceivedFrame& message);
  Taken from_above(Channel& channel, const ReceivedFrame& message);
  Taken from_elsewhere(Channel& channel, const ReceivedFrame& message);
  void on_refusal(Channel& channel, const Status& status);
  void on_start_failed(Channel& channel, const Status& status);

  // Tree::Owner
  void suspect(int rank, uint8_t evidence, const std::string& what) override;
  bool known_silent(int rank) const override { return failures_.known_silent(rank); }
  void neighbour_came() override { bootstrap_.check_joined(); }
  void child_came(Channel& channel, const Attach& attach) override;
  void parent_came(Channel& channel, const Welcome& welcome) override;
  void became_coordinator() override;
  // FailureDetector::Owner
  void excluded() override { departure_.close(); }

  Self& self_;
  Channels& channels_;
  Census census_;
  Tree tree_;
  Announcements announcements_;
  LinkFailures links_;
  FailureDetector failures_;
  Departure departure_;
  Bootstrap bootstrap_;
  SmallCollectives collectives_;
  CallWatch calls_;
  News news_;
  ClockExchange clock_;
};

}  // namespace sennit::control
