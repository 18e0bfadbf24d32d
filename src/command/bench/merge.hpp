// merge.hpp: what local ranks write to stderr, with an error that several of them tell printed
// once, with their number. Errors are held for kHold, or until the ranks have ended; all else
// passes at once.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sennit::bench {

// One for the standard error of all ranks. One thread.
class ErrorMerger {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kHold = std::chrono::seconds(2);

  // Takes what was read, whole lines or not. Returns what is to be printed now.
  std::string feed(std::string_view bytes, Clock::time_point now);
  std::string due(Clock::time_point now);  // errors that were held long enough
  std::string end();                       // all that is left

 private:
  struct Held {
    std::string program, text;  // "sennit: ", "error: ..." with the lines that go on from it
    std::set<int> ranks;
    Clock::time_point since;
  };
  void take(const std::string& line, Clock::time_point now, std::string* out);
  void merge(Held held);
  static std::string text_of(const Held& held);

  std::string partial_;
  bool open_ = false;  // last_ may go on in the next line
  Held last_;
  std::vector<Held> held_;
};

}  // namespace sennit::bench
