// notes.cpp: see record/notes.hpp.
#include "record/notes.hpp"

#include <array>
#include <bit>
#include <utility>

#include "base/bytes.hpp"

namespace sennit {
namespace {

// Numbers of kinds are for ever: a later version of this library reads the files of this one.
enum Kind : uint32_t {
  kFabric = 1,
  kCommunicator = 2,
  kPlan = 3,
  kFailure = 4,
  kVerdict = 5,
  kConnections = 6
};

Kind kind_of(const FabricNote&) { return kFabric; }
Kind kind_of(const CommunicatorNote&) { return kCommunicator; }
Kind kind_of(const PlanNote&) { return kPlan; }
Kind kind_of(const FailureNote&) { return kFailure; }
Kind kind_of(const VerdictNote&) { return kVerdict; }
Kind kind_of(const ConnectionsNote&) { return kConnections; }

// Of counts and the like.
template <typename Number>
void write_all(ByteWriter& out, const std::vector<Number>& numbers) {
  out.u32(static_cast<uint32_t>(numbers.size()));
  for (const Number number : numbers) out.u64(static_cast<uint64_t>(number));
}

template <typename Number>
std::vector<Number> read_all(ByteReader& in) {
  std::vector<Number> numbers(in.count(sizeof(uint64_t)));
  for (Number& number : numbers) number = static_cast<Number>(in.u64());
  return numbers;
}

void write(ByteWriter& out, const FabricNote& note) {
  out.text(note.fabric).u32(static_cast<uint32_t>(note.placements.size()));
  for (const Placement& place : note.placements)
    out.text(place.host).u32(static_cast<uint32_t>(place.numa)).text(place.nic);
}

void read(ByteReader& in, FabricNote* note) {
  note->fabric = in.text();
  constexpr size_t kLeast = 3 * sizeof(uint32_t);
  note->placements.resize(in.count(kLeast));
  for (Placement& place : note->placements) {
    place.host = in.text();
    place.numa = static_cast<int>(in.u32());
    place.nic = in.text();
  }
}

void write(ByteWriter& out, const CommunicatorNote& note) {
  out.u32(note.id);
  write_all(out, note.members);
}

void read(ByteReader& in, CommunicatorNote* note) {
  note->id = in.u32();
  note->members = read_all<int>(in);
}

void write(ByteWriter& out, const PlanNote& note) {
  const Request& request = note.request;
  out.u32(note.comm).u64(note.hash).text(name(request.collective)).text(name(request.type));
  out.text(name(request.op)).flag(request.in_place).rank(request.root).u64(request.count);
  write_all(out, request.counts);
  out.flag(request.vector_variant).text(note.algorithm).u32(note.parameters.chunks);
  write_all(out, note.parameters.radices);
  out.u8(note.parameters.whole_stages).u64(note.predicted_ns);
  write(out, note.slow);
}

// A name, of which there is none where the reader does not know it.
template <typename Value>
void read_name(ByteReader& in, Result<Value> (*parse)(std::string_view), Value* value) {
  const Result<Value> parsed = parse(in.text());
  if (parsed)
    *value = *parsed;
  else
    in.fail();
}

void read(ByteReader& in, PlanNote* note) {
  Request& request = note->request;
  note->comm = in.u32();
  note->hash = in.u64();
  read_name(in, parse_collective, &request.collective);
  read_name(in, parse_type, &request.type);
  read_name(in, parse_op, &request.op);
  request.in_place = in.flag();
  request.root = in.rank();
  request.count = in.u64();
  request.counts = read_all<uint64_t>(in);
  request.vector_variant = in.flag();
  note->algorithm = in.text();
  note->parameters.chunks = in.u32();
  note->parameters.radices = read_all<uint16_t>(in);
  note->parameters.whole_stages = in.u8();
  note->predicted_ns = in.u64();
  if (in.left() > 0) note->slow = read_slow_boundaries(in);  // older recordings end before it
}

void write(ByteWriter& out, const FailureNote& note) {
  out.u32(note.comm).u64(note.when_ns).text(note.text);
}

void read(ByteReader& in, FailureNote* note) {
  note->comm = in.u32();
  note->when_ns = in.u64();
  note->text = in.text();
}

void write(ByteWriter& out, const VerdictNote& note) {
  out.u64(note.when_ns).flag(note.withdrawn).u8(static_cast<uint8_t>(note.about));
  out.text(note.sentence);
  out.u32(static_cast<uint32_t>(note.links.size()));
  for (const std::string& link : note.links) out.text(link);
  write_all(out, note.ranks);
  out.f64(note.factor).f64(note.cost).f64(note.confidence).u32(static_cast<uint32_t>(note.tier));
  out.u32(note.comm).u32(static_cast<uint32_t>(note.first_member)).u64(note.noted_ns);
}

void read(ByteReader& in, VerdictNote* note) {
  note->when_ns = in.u64();
  note->withdrawn = in.flag();
  const uint8_t about = in.u8();
  if (about > static_cast<uint8_t>(VerdictAbout::starved_ranks)) in.fail();
  note->about = static_cast<VerdictAbout>(about);
  note->sentence = in.text();
  note->links.resize(in.count(sizeof(uint32_t)));
  for (std::string& link : note->links) link = in.text();
  note->ranks = read_all<int>(in);
  note->factor = in.f64();
  note->cost = in.f64();
  note->confidence = in.f64();
  if (in.left() > 0) note->tier = static_cast<int>(in.u32());  // older recordings end before it
  if (in.left() == 0) return;                                  // and others before these
  note->comm = in.u32();
  note->first_member = static_cast<int>(in.u32());
  note->noted_ns = in.u64();
}

void write(ByteWriter& out, const ConnectionsNote& note) {
  out.bytes(std::as_bytes(std::span(note.records)));
}

// Empty places are zeros, and do not fit their check either.
void read(ByteReader& in, ConnectionsNote* note) {
  while (in.left() >= sizeof(ConnectionRecord)) {
    std::array<uint8_t, sizeof(ConnectionRecord)> bytes;
    for (uint8_t& byte : bytes) byte = in.u8();
    const auto record = std::bit_cast<ConnectionRecord>(bytes);
    if (record.check == record.expected_check() && record.latest.peer >= 0)
      note->records.push_back(record);
  }
  if (note->records.empty()) in.fail();  // it says nothing
}

template <typename Kept>
void decode_one(std::span<const std::byte> bytes, std::vector<Note>* notes) {
  ByteReader in(bytes);
  Kept note;
  read(in, &note);
  if (in.finish("a note").ok()) notes->push_back(std::move(note));
}

}  // namespace

std::vector<std::byte> encode(const Note& note) {
  return std::visit(
      [](const auto& kept) {
        ByteWriter body;
        write(body, kept);
        ByteWriter out;
        out.u32(kind_of(kept)).blob(body.take());
        return out.take();
      },
      note);
}

std::vector<Note> decode_notes(std::span<const std::byte> bytes) {
  std::vector<Note> notes;
  ByteReader in(bytes);
  while (in.left() > 0) {
    const uint32_t kind = in.u32();
    const std::span<const std::byte> body = in.blob();
    if (!in.ok()) break;
    if (kind == kFabric) decode_one<FabricNote>(body, &notes);
    if (kind == kCommunicator) decode_one<CommunicatorNote>(body, &notes);
    if (kind == kPlan) decode_one<PlanNote>(body, &notes);
    if (kind == kFailure) decode_one<FailureNote>(body, &notes);
    if (kind == kVerdict) decode_one<VerdictNote>(body, &notes);
    if (kind == kConnections) decode_one<ConnectionsNote>(body, &notes);
  }
  return notes;
}

}  // namespace sennit
