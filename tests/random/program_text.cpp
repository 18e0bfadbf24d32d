// program_text.cpp: programs as text, a line an event: its action, then what is set of it as
// key=value.
#include <algorithm>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/random/program.hpp"

namespace random_programs {
namespace {

using Names = std::vector<std::string>;

const Names kActions = {"init",  "split", "dup",         "create_group", "call",     "message",
                        "wait",  "free",  "group_begin", "group_end",    "bad_call", "query",
                        "abort", "kill",  "fork",        "settle",       "finalize", "destroy"};
const Names kHows = {"id", "env"};
const Names kWaits = {"forever", "test", "short_turns", "look", "inside_group"};
const Names kBads = {"root", "peer", "op", "type", "null_buffer", "null_work", "foreign_op"};
const Names kChildren = {"leaves", "exits", "calls", "destroys"};
const Names kCollectives = {"all_reduce", "reduce_scatter", "all_gather",       "broadcast",
                            "reduce",     "gather",         "scatter",          "all_to_all",
                            "barrier",    "all_gather_v",   "reduce_scatter_v", "gather_v",
                            "scatter_v",  "all_to_all_v"};
const Names kTypes = {"int8",    "uint8",    "int32",   "uint32",  "int64",       "uint64",
                      "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"};
const Names kOps = {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "premul_sum"};
const Names kMemories = {"plain", "odd", "sennit", "registered"};
const Names kDeviations = {"none", "count", "type", "op", "collective"};

struct Field {
  const char* name;
  int Event::*value;
  const Names* names;
};
const Field kFields[] = {
    {"comm", &Event::comm, nullptr},
    {"made", &Event::made, nullptr},
    {"work", &Event::work, nullptr},
    {"type", &Event::type, &kTypes},
    {"op", &Event::op, &kOps},
    {"root", &Event::root, nullptr},
    {"count", &Event::count, nullptr},
    {"rank", &Event::rank, nullptr},
    {"peer", &Event::peer, nullptr},
    {"tag", &Event::tag, nullptr},
    {"any", &Event::any, nullptr},
    {"thread", &Event::thread, nullptr},
    {"memory", &Event::memory, &kMemories},
    {"in_place", &Event::in_place, nullptr},
    {"gaps", &Event::gaps, nullptr},
    {"deviation", &Event::deviation, &kDeviations},
};
struct ListField {
  const char* name;
  std::vector<int> Event::*value;
};
const ListField kLists[] = {{"deviants", &Event::deviants}, {"ranks", &Event::ranks},
                            {"members", &Event::members},   {"colors", &Event::colors},
                            {"keys", &Event::keys},         {"threads", &Event::threads},
                            {"after", &Event::after}};

const Names* names_of_what(Action action) {
  switch (action) {
    case Action::init:
      return &kHows;
    case Action::call:
      return &kCollectives;
    case Action::wait:
      return &kWaits;
    case Action::bad_call:
      return &kBads;
    case Action::fork_child:
      return &kChildren;
    default:
      return nullptr;
  }
}

int number_of(const std::string& text, const Names* names) {
  if (names == nullptr) return std::stoi(text);
  const auto found = std::find(names->begin(), names->end(), text);
  if (found == names->end())
    throw std::runtime_error("'" + text + "' is none of " +
                             fmt::format("{}", fmt::join(*names, ", ")));
  return static_cast<int>(found - names->begin());
}

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> numbers;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ',');) numbers.push_back(std::stoi(part));
  return numbers;
}

Event parse_event(const std::string& action, std::istream& rest) {
  Event event;
  event.action = static_cast<Action>(number_of(action, &kActions));
  for (std::string word; rest >> word;) {
    const size_t equals = word.find('=');
    if (equals == word.npos) throw std::runtime_error("'" + word + "': expected key=value");
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    bool known = key == "what";
    if (known) event.what = number_of(value, names_of_what(event.action));
    for (const Field& field : kFields)
      if (key == field.name) {
        event.*field.value = number_of(value, field.names);
        known = true;
      }
    for (const ListField& field : kLists)
      if (key == field.name) {
        event.*field.value = numbers_of(value);
        known = true;
      }
    if (!known) throw std::runtime_error("'" + key + "' is no field of an event");
  }
  return event;
}

}  // namespace

std::string to_text(const Event& event) {
  static const Event nothing;
  std::string text = kActions[static_cast<size_t>(event.action)];
  if (const Names* names = names_of_what(event.action))
    text += " what=" + (*names)[static_cast<size_t>(event.what)];
  for (const Field& field : kFields) {
    const int value = event.*field.value;
    const bool moves_data = event.action == Action::call || event.action == Action::message;
    if (value == nothing.*field.value && !(moves_data && field.value == &Event::type)) continue;
    text += fmt::format(
        " {}={}", field.name,
        field.names ? (*field.names)[static_cast<size_t>(value)] : std::to_string(value));
  }
  for (const ListField& field : kLists)
    if (const std::vector<int>& values = event.*field.value; !values.empty())
      text += fmt::format(" {}={}", field.name, fmt::join(values, ","));
  return text;
}

std::string to_text(const Program& program) {
  std::string text = fmt::format("program seed={} transport={} threads={}", program.seed,
                                 program.transport, fmt::join(program.threads, ","));
  for (const std::string& option : program.options) text += " option=" + option;
  text += '\n';
  for (const Event& event : program.events) text += to_text(event) + '\n';
  return text;
}

Program parse(const std::string& text) {
  Program program;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    std::stringstream words(line);
    std::string first;
    if (!(words >> first)) continue;
    if (first != "program") {
      program.events.push_back(parse_event(first, words));
      continue;
    }
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals),
                        value = equals == word.npos ? "" : word.substr(equals + 1);
      if (key == "seed") program.seed = std::stoull(value);
      if (key == "transport") program.transport = value;
      if (key == "threads") program.threads = numbers_of(value);
      if (key == "option") program.options.push_back(value);
    }
  }
  if (program.threads.empty())
    throw std::runtime_error("no line 'program transport=... threads=...'");
  return program;
}

Event as_called_by(const Event& event, int rank) {
  Event called = event;
  if (std::find(event.deviants.begin(), event.deviants.end(), rank) == event.deviants.end())
    return called;
  switch (static_cast<Deviation>(event.deviation)) {
    case Deviation::none:
      break;
    case Deviation::count:
      called.count++;
      break;
    case Deviation::type:
      called.type = (called.type + 1) % static_cast<int>(kTypes.size());
      break;
    case Deviation::op:
      called.op = called.op == 2 ? 3 : 2;  // min and max take any numbers
      break;
    case Deviation::collective:
      called.what = static_cast<int>(static_cast<Collective>(event.what) == Collective::barrier
                                         ? Collective::all_gather
                                         : Collective::barrier);
      if (called.count == 0) called.count = 1;
      break;
  }
  return called;
}

}  // namespace random_programs
