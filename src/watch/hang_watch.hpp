// hang_watch.hpp: the coordinator's part in finding who is behind in a call that does not end: as
// long as ranks say that a call stalls it asks all of them, now and then, what they do, and judges
// the answers (diagnose/hang/hang.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "diagnose/hang/hang.hpp"
#include "topology/fabric/fabric.hpp"
#include "watch/answer.hpp"
#include "watch/live_verdict.hpp"

namespace sennit::watch {

// Pure: times are given, of any clock that goes on. One thread at a time.
class HangWatch {
 public:
  // rank: this one. `fabric`: its text form; placements by rank. stall_ns: without progress for so
  // long a call stalls (SENNIT_STALL).
  HangWatch(int rank, std::string fabric, std::vector<Placement> placements, uint64_t stall_ns);

  // Somebody says that a call stalls, and says it again, at least every stall_ns, while it does.
  void stalls(uint64_t now_ns) { stalled_at_ns_ = now_ns; }
  // The number of a question that is to be asked of all ranks now; nothing: none is.
  std::optional<uint64_t> question(uint64_t now_ns);
  void answer(Answer answer);
  // Judges once all have answered, or have had kAnswerNs; what has come by now_ns was given before.
  // A hang is told when it was found twice in a row, once for as long as it lasts, and withdrawn
  // when it was not found a few times, or nobody has said that a call stalls for a while.
  std::vector<LiveVerdict> look(uint64_t now_ns);
  // When question() and look() are due again; UINT64_MAX: with the next that is said.
  uint64_t due_ns() const;

  static constexpr uint64_t kAnswerNs = 600'000'000;
  // Of ranks that are behind again and again in this time only the first call is told.
  static constexpr uint64_t kAgainNs = 60'000'000'000;
  // So many times SENNIT_STALL a send or a receive may wait: a receive may be posted long before
  // its message is due.
  static constexpr int kMessagePatience = 10;

 private:
  struct Found {
    diagnose::Hang hang;
    std::string call;       // "all_reduce of 4MiB float32 sum"
    std::string tier;       // of hang.where
    uint32_t known_as = 0;  // its communicator, to its ranks
    std::vector<int> members;
  };
  // By what two hangs are one: cause, who is behind, and the call.
  using Key =
      std::tuple<diagnose::HangCause, std::vector<int>, uint32_t, std::vector<int>, uint32_t>;
  static Key key_of(const Found& found);
  bool lasts(uint64_t now_ns) const;
  uint64_t over_after_ns() const;  // without anybody saying that a call stalls
  std::optional<Found> judge();
  bool is_new(const Found& found, uint64_t now_ns);
  LiveVerdict verdict_of(const Found& found, bool withdrawn) const;

  const std::string fabric_;
  const std::vector<Placement> placements_;
  const uint64_t stall_ns_;
  std::optional<uint64_t> stalled_at_ns_;
  uint64_t asked_;        // the number of the latest question; each coordinator has its own
  bool waiting_ = false;  // for answers to the latest
  uint64_t asked_at_ns_ = 0, next_question_ns_ = 0, pause_ns_ = 0;
  std::map<int, Answer> answers_;
  std::optional<Key> seen_;  // by the question before
  std::optional<Found> told_;
  int not_found_ = 0;                   // in how many questions since it was told
  std::map<Key, uint64_t> told_at_ns_;  // without the number of the call
};

}  // namespace sennit::watch
