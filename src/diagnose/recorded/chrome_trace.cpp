// chrome_trace.cpp: see diagnose/recorded/chrome_trace.hpp.
//
// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include "diagnose/recorded/chrome_trace.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text/json.hpp"
#include "diagnose/calls.hpp"
#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {
namespace {

using Json = nlohmann::ordered_json;

// Rows by what is on them; viewers show them in this order.
enum RowKind { kCallRow, kSendRow, kReceiveRow, kLocalRow, kPauseRow };

struct Slice {
  int rank = 0;
  RowKind kind = kCallRow;
  int peer = -1;  // of a row of messages
  uint64_t begin_ns = 0, end_ns = 0;
  std::string name, category;
  Json arguments = Json::object();
  const TraceEvent* event = nullptr;
};

// A row of one rank. Calls and sends that are under way at once are each in a thread of their own.
struct Row {
  std::vector<int> threads;
  std::vector<uint64_t> busy_until_ns;
};

double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }

class Writer {
 public:
  Writer(const JobRecording& job, Plans& plans)
      : job_(job),
        plans_(plans),
        messages_(join_messages(job)),
        clocks_(clock_offsets(job, messages_)) {}
  std::string write();

 private:
  uint64_t time(const RankRecording& rank, uint64_t ns) const;
  void take_calls();
  void take_steps(const RankRecording& rank);
  void take_pauses(const RankRecording& rank);
  Slice slice_of(const RankRecording& rank, const TraceEvent& event) const;
  void name_message(const TraceEvent& event, Slice* slice);
  void lay_out();
  int thread_for(const Slice& slice);
  std::string row_name(const Slice& slice, size_t which) const;
  void put(const Json& event) { lines_.push_back(json_to_text(event)); }
  void put_ranks();
  void put_arrows();

  const JobRecording& job_;
  Plans& plans_;
  const std::vector<Message> messages_;
  const std::map<std::string, ClockOffset> clocks_;
  std::vector<Slice> slices_;
  // Where each step's slice went: its thread, its time.
  struct SliceAt {
    int rank = 0, thread = 0;
    uint64_t begin_ns = 0, end_ns = 0;
  };
  std::map<const TraceEvent*, SliceAt> places_;
  std::map<std::tuple<int, RowKind, int>, Row> rows_;
  std::map<int, int> threads_;  // by rank: so many
  uint64_t start_ns_ = 0, end_ns_ = 0;
  std::vector<std::string> lines_;
};

uint64_t Writer::time(const RankRecording& rank, uint64_t ns) const {
  return ns - static_cast<uint64_t>(clocks_.at(rank.host).ahead_ns);
}

// A call that has not ended lasts until the last that anybody recorded.
void Writer::take_calls() {
  for (const CallRecord& call : find_calls(job_)) {
    const RankRecording& rank = *job_.find(call.rank);
    Slice slice;
    slice.rank = call.rank;
    slice.begin_ns = time(rank, call.begin_ns);
    slice.end_ns = call.end_ns != 0 ? time(rank, call.end_ns) : std::max(end_ns_, slice.begin_ns);
    slice.category = "call";
    if (call.point_to_point) {
      const std::string peer = call.peer < 0 ? "any rank" : fmt::format("rank {}", call.peer);
      slice.name = (call.receiving ? "receive from " : "send to ") + peer;
      slice.arguments["tag"] = call.tag;
    } else {
      slice.name = plans_.call_name(call.comm, call.plan);
      if (const PlanNote* note = plans_.note(call.comm, call.plan)) {
        slice.arguments["algorithm"] = note->algorithm;
        slice.arguments["parameters"] = note->parameters.to_text();
        slice.arguments["predicted_us"] = us(note->predicted_ns);
      }
    }
    slice.arguments["communicator"] = job_.comm_name(call.comm);
    slice.arguments["number"] = call.seq;
    if (call.end_ns == 0) slice.arguments["unfinished"] = true;
    if (call.failed) slice.arguments["failed"] = true;
    slices_.push_back(std::move(slice));
  }
}

Slice Writer::slice_of(const RankRecording& rank, const TraceEvent& event) const {
  Slice slice;
  slice.rank = rank.rank;
  slice.begin_ns = time(rank, event.posted_ns);
  slice.end_ns = slice.begin_ns + event.after(event.last);
  slice.event = &event;
  return slice;
}

void Writer::name_message(const TraceEvent& event, Slice* slice) {
  const bool sends = event.kind == EventKind::send;
  slice->kind = sends ? kSendRow : kReceiveRow;
  slice->peer = event.peer;
  slice->category = plans_.tier_name(event.comm, event.tier);
  slice->name =
      fmt::format("{} {} over its {}", sends ? "to" : "from", event.peer, slice->category);
  Json& arguments = slice->arguments;
  arguments["peer_ready_us"] = us(event.after(event.ready));
  arguments["first_byte_us"] = us(event.after(event.first));
  arguments["tag"] = event.tag;
  if (sends) {
    arguments["queued_us"] = us(event.after(event.handed));
    // Before, it stood in the executor's queue, behind others.
    slice->begin_ns += event.after(event.handed);
  } else if (event.is(kEventKnowsItsWait)) {
    arguments["sender_waited_us"] = event.sender_waited_us;
  }
}

void Writer::take_steps(const RankRecording& rank) {
  for (const TraceEvent& event : rank.events) {
    if (!event.is_step()) continue;
    Slice slice = slice_of(rank, event);
    if (event.is_message()) {
      name_message(event, &slice);
    } else {
      slice.kind = kLocalRow;
      slice.category = "local";
      slice.name = event.kind == EventKind::reduce ? "reduce" : "copy";
    }
    slice.arguments["bytes"] = event.bytes;
    slice.arguments["communicator"] = job_.comm_name(event.comm);
    slice.arguments["number"] = event.seq;
    slice.arguments["chunk"] = event.chunk;
    slice.arguments["step"] = event.step;
    slices_.push_back(std::move(slice));
  }
}

// Those that lie in the time of its events.
void Writer::take_pauses(const RankRecording& rank) {
  for (const Pause& pause : rank.pauses) {
    if (rank.events.empty() || pause.end_ns < rank.events.front().posted_ns) continue;
    Slice slice;
    slice.rank = rank.rank;
    slice.kind = kPauseRow;
    slice.begin_ns = time(rank, pause.begin_ns);
    slice.end_ns = time(rank, pause.end_ns);
    slice.category = "pause";
    slice.name = "the process does not run";
    slices_.push_back(std::move(slice));
  }
}

std::string Writer::row_name(const Slice& slice, size_t which) const {
  std::string name;
  switch (slice.kind) {
    case kCallRow:
      name = "calls";
      break;
    case kSendRow:
      name = fmt::format("to {}", slice.peer);
      break;
    case kReceiveRow:
      name = fmt::format("from {}", slice.peer);
      break;
    case kLocalRow:
      name = "reductions and copies";
      break;
    case kPauseRow:
      name = "without a core";
      break;
  }
  return which == 0 ? name : fmt::format("{} ({})", name, which + 1);
}

// Slices come by the time of their begin.
int Writer::thread_for(const Slice& slice) {
  Row& row = rows_[{slice.rank, slice.kind, slice.peer}];
  size_t which = 0;
  while (which < row.threads.size() && row.busy_until_ns[which] > slice.begin_ns) which++;
  if (which == row.threads.size()) {
    constexpr int kRowsApart = 1'000'000, kPeersApart = 100;  // in the viewer's order
    row.threads.push_back(++threads_[slice.rank]);
    row.busy_until_ns.push_back(0);
    const int thread = row.threads.back();
    put({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", slice.rank + 1},
         {"tid", thread},
         {"args", {{"name", row_name(slice, which)}}}});
    put({{"name", "thread_sort_index"},
         {"ph", "M"},
         {"pid", slice.rank + 1},
         {"tid", thread},
         {"args",
          {{"sort_index",
            slice.kind * kRowsApart + (slice.peer + 1) * kPeersApart + static_cast<int>(which)}}}});
  }
  row.busy_until_ns[which] = slice.end_ns;
  return row.threads[which];
}

void Writer::lay_out() {
  const auto by_begin = [](const Slice& a, const Slice& b) { return a.begin_ns < b.begin_ns; };
  const auto by_end = [](const Slice& a, const Slice& b) { return a.end_ns < b.end_ns; };
  std::stable_sort(slices_.begin(), slices_.end(), by_end);
  std::map<std::tuple<int, RowKind, int>, uint64_t> last_end_ns;
  for (Slice& slice : slices_) {
    if (slice.kind != kReceiveRow) continue;
    uint64_t& last = last_end_ns[{slice.rank, slice.kind, slice.peer}];
    slice.begin_ns = std::min(std::max(last, slice.begin_ns), slice.end_ns);
    last = slice.end_ns;
  }
  std::stable_sort(slices_.begin(), slices_.end(), by_begin);
  if (!slices_.empty()) start_ns_ = slices_.front().begin_ns;
  for (Slice& slice : slices_) {
    const int thread = thread_for(slice);
    if (slice.event) places_[slice.event] = {slice.rank, thread, slice.begin_ns, slice.end_ns};
    put({{"name", slice.name},
         {"cat", slice.category},
         {"ph", "X"},
         {"pid", slice.rank + 1},
         {"tid", thread},
         {"ts", us(slice.begin_ns - start_ns_)},
         {"dur", us(slice.end_ns - slice.begin_ns)},
         {"args", std::move(slice.arguments)}});
  }
}

void Writer::put_ranks() {
  for (const RankRecording& rank : job_.ranks) {
    const ClockOffset& clock = clocks_.at(rank.host);
    const char* const state = rank.state == RankState::running ? ""
                              : rank.state == RankState::ended ? ", ended"
                                                               : ", gone";
    put({{"name", "process_name"},
         {"ph", "M"},
         {"pid", rank.rank + 1},
         {"args", {{"name", fmt::format("rank {} on {}{}", rank.rank, rank.host, state)}}}});
    Json labels = {{"labels", clock.error_ns == ClockOffset::kUnknown
                                  ? std::string("clock by real time")
                                  : fmt::format("clock within {:.1f} us", us(clock.error_ns))}};
    put({{"name", "process_labels"}, {"ph", "M"}, {"pid", rank.rank + 1}, {"args", labels}});
    put({{"name", "process_sort_index"},
         {"ph", "M"},
         {"pid", rank.rank + 1},
         {"args", {{"sort_index", rank.rank}}}});
  }
}

// From within the send's slice to the end of the receive's, which viewers bind to the slice that
// holds the time.
void Writer::put_arrows() {
  int number = 0;
  for (const Message& message : messages_) {
    if (!message.sent || !message.received) continue;
    const SliceAt &sent = places_.at(message.sent), &received = places_.at(message.received);
    number++;
    put({{"name", "message"},
         {"cat", "message"},
         {"ph", "s"},
         {"id", number},
         {"pid", sent.rank + 1},
         {"tid", sent.thread},
         {"ts", us(sent.begin_ns - start_ns_)}});
    put({{"name", "message"},
         {"cat", "message"},
         {"ph", "f"},
         {"bp", "e"},
         {"id", number},
         {"pid", received.rank + 1},
         {"tid", received.thread},
         {"ts", us(received.end_ns - start_ns_)}});
  }
}

std::string Writer::write() {
  put_ranks();
  for (const RankRecording& rank : job_.ranks) {
    take_steps(rank);
    take_pauses(rank);
    for (const TraceEvent& event : rank.events)
      end_ns_ =
          std::max(end_ns_, time(rank, (event.is_step() ? event.ended_at() : event.posted_ns)));
  }
  take_calls();
  lay_out();
  put_arrows();
  Json about = {{"job", fmt::format("{:016x}", job_.job)},
                {"ranks", job_.size},
                {"missing_ranks", job_.missing}};
  return fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\"traceEvents\":[\n{}\n]}}\n",
                     json_to_text(about), fmt::join(lines_, ",\n"));
}

}  // namespace

std::string chrome_trace(const JobRecording& job, Plans& plans) {
  return Writer(job, plans).write();
}

}  // namespace sennit::diagnose
