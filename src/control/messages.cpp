// messages.cpp: the fields of every message, in the order in which they go over the wire.
#include "control/messages.hpp"

namespace sennit::control {
namespace {

constexpr size_t kAddressBytes = 18;
constexpr size_t kLengthBytes = 4;  // before a text or a blob
constexpr size_t kRankBytes = 4;
constexpr size_t kPidBytes = 4;
constexpr size_t kClaimBytes = sizeof(uint64_t) + kRankBytes + sizeof(Claim::proof);
constexpr size_t kMostHostName = 255;
constexpr int kNoRank = -1;

void write_address(ByteWriter& out, const Address& address) {
  for (const uint8_t octet : address.ip) out.u8(octet);
  out.u16(address.port);
}

Address read_address(ByteReader& in) {
  Address address;
  for (uint8_t& octet : address.ip) octet = in.u8();
  address.port = in.u16();
  return address;
}

void write_dead(ByteWriter& out, const std::set<int>& dead, const Status& decision) {
  out.ranks(dead);
  if (!dead.empty()) out.status(decision);
}

void read_dead(ByteReader& in, int size, std::set<int>* dead, Status* decision) {
  *dead = in.ranks(size);
  if (!dead->empty()) *decision = in.status();
}

Blob read_blob(ByteReader& in) {
  const auto bytes = in.blob();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

// ---- the start ----

void Enlist::write(ByteWriter& out) const {
  out.rank(rank).rank(ranks).u64(job);
  write_address(out, member.address);
  out.u32(static_cast<uint32_t>(member.pid)).text(member.host).flag(!complaint.ok());
  if (!complaint.ok()) out.status(complaint);
  out.u32(static_cast<uint32_t>(claims.size()));
  for (const Claim& claim : claims) out.u64(claim.job).rank(claim.rank).bytes(claim.proof);
}
void Enlist::read(ByteReader& in, int) {
  rank = in.rank();  // it may take the job for a larger one, and is told so
  ranks = in.rank();
  job = in.u64();
  member.address = read_address(in);
  member.pid = static_cast<int>(in.u32());
  member.host = in.text();
  if (member.host.size() > kMostHostName) in.fail();
  if (in.flag()) complaint = in.status();
  const uint32_t count = in.count(kClaimBytes);
  if (count > kMostClaims) return in.fail();
  claims.resize(count);
  for (Claim& claim : claims) {
    claim.job = in.u64();
    claim.rank = in.rank();
    for (std::byte& octet : claim.proof) octet = static_cast<std::byte>(in.u8());
  }
}

void RootAt::write(ByteWriter& out) const {
  out.u8(static_cast<uint8_t>(where)).rank(ranks).u32(static_cast<uint32_t>(addresses.size()));
  for (const Address& address : addresses) write_address(out, address);
}
void RootAt::read(ByteReader& in, int) {
  const uint8_t place = in.u8();
  if (place > static_cast<uint8_t>(Where::elsewhere)) return in.fail();
  where = static_cast<Where>(place);
  ranks = in.rank();
  const uint32_t count = in.count(kAddressBytes);
  if (count > kMostRootAddresses || (count == 0) == (where == Where::elsewhere)) return in.fail();
  addresses.resize(count);
  for (Address& address : addresses) address = read_address(in);
}

void Shared::write(ByteWriter& out) const {
  out.u64(with.job).u32(with.number);
  for (const int member : with.members) out.rank(member);
}
void Shared::read(ByteReader& in, int size) {
  with.job = in.u64();
  with.number = in.u32();
  if (in.left() < static_cast<size_t>(size) * kRankBytes) return in.fail();
  with.members.resize(static_cast<size_t>(size));
  for (int& member : with.members) member = in.rank();  // of a job whose size only its members know
}

void Parent::write(ByteWriter& out) const {
  out.u64(job).rank(rank);
  write_address(out, address);
}
void Parent::read(ByteReader& in, int size) {
  job = in.u64();
  rank = in.rank_below(size);
  address = read_address(in);
}

void Refuse::write(ByteWriter& out) const { out.status(status); }
void Refuse::read(ByteReader& in, int) { status = in.status(); }

void Joined::write(ByteWriter&) const {}
void Joined::read(ByteReader&, int) {}

// A host's name goes only where it differs from the rank's before.
void Table::write(ByteWriter& out) const {
  out.u64(job);
  std::string host;
  for (const Member& member : members) {
    write_address(out, member.address);
    out.u32(static_cast<uint32_t>(member.pid)).text(member.host == host ? "" : member.host);
    host = member.host;
  }
}
void Table::read(ByteReader& in, int size) {
  job = in.u64();
  if (in.left() < static_cast<size_t>(size) * (kAddressBytes + kPidBytes + kLengthBytes))
    return in.fail();
  members.resize(static_cast<size_t>(size));
  std::string host;
  for (Member& member : members) {
    member.address = read_address(in);
    member.pid = static_cast<int>(in.u32());
    if (std::string text = in.text(); !text.empty()) host = std::move(text);
    member.host = host;
  }
}

void StartFailed::write(ByteWriter& out) const { out.status(status); }
void StartFailed::read(ByteReader& in, int) { status = in.status(); }

// ---- the tree ----

void Attach::write(ByteWriter& out) const {
  out.rank(rank).rank(ranks).u64(job).flag(running).ranks(left);
  write_dead(out, dead, decision);
}
void Attach::read(ByteReader& in, int size) {
  rank = in.rank();  // of another job, maybe, and is told so
  ranks = in.rank();
  job = in.u64();
  running = in.flag();
  left = in.ranks(size);
  read_dead(in, size, &dead, &decision);
}

void Welcome::write(ByteWriter& out) const {
  out.ranks(left);
  write_dead(out, dead, decision);
}
void Welcome::read(ByteReader& in, int size) {
  left = in.ranks(size);
  read_dead(in, size, &dead, &decision);
}

void Heartbeat::write(ByteWriter&) const {}
void Heartbeat::read(ByteReader&, int) {}

void Goodbye::write(ByteWriter& out) const { out.rank(rank); }
void Goodbye::read(ByteReader& in, int size) { rank = in.rank_below(size); }

void GoodbyeAck::write(ByteWriter& out) const { out.rank(rank); }
void GoodbyeAck::read(ByteReader& in, int size) { rank = in.rank_below(size); }

void Leaving::write(ByteWriter& out) const { out.flag(parent_leaves).ranks(left); }
void Leaving::read(ByteReader& in, int size) {
  parent_leaves = in.flag();
  left = in.ranks(size);
}

void ClockAsk::write(ByteWriter& out) const { out.u64(asked_ns); }
void ClockAsk::read(ByteReader& in, int) { asked_ns = in.u64(); }

void ClockAnswer::write(ByteWriter& out) const {
  out.u64(asked_ns).u64(received_ns).u64(answered_ns).rank(root).i64(ahead_ns).u64(error_ns);
}
void ClockAnswer::read(ByteReader& in, int size) {
  constexpr uint64_t kMostErrorNs = uint64_t{1} << 62;  // sums of a few do not wrap around
  asked_ns = in.u64();
  received_ns = in.u64();
  answered_ns = in.u64();
  root = in.rank();
  if (root != kNoRank && (root < 0 || root >= size)) in.fail();
  ahead_ns = in.i64();
  error_ns = in.u64();
  if (answered_ns < received_ns || error_ns > kMostErrorNs) in.fail();
}

// ---- failure ----

void Probe::write(ByteWriter& out) const { out.rank(asker).rank(asked); }
void Probe::read(ByteReader& in, int) {
  asker = in.rank();
  asked = in.rank();
}

void ProbeAnswer::write(ByteWriter& out) const { out.rank(rank); }
void ProbeAnswer::read(ByteReader& in, int size) { rank = in.rank_below(size); }

void Suspicion::write(ByteWriter& out) const {
  out.rank(rank).u8(evidence).rank(reporter).text(what);
}
void Suspicion::read(ByteReader& in, int size) {
  rank = in.rank_below(size);
  evidence = in.u8();
  reporter = in.rank_below(size);
  what = in.text();
  if (rank == reporter) in.fail();
}

void Decision::write(ByteWriter& out) const { out.ranks(dead).status(status); }
void Decision::read(ByteReader& in, int size) {
  dead = in.ranks(size);
  status = in.status();
}

void LinkDown::write(ByteWriter& out) const { out.u64(event).rank(a).rank(b).status(status); }
void LinkDown::read(ByteReader& in, int size) {
  event = in.u64();
  a = in.rank_below(size);
  b = in.rank_below(size);
  status = in.status();
}

// ---- small collectives ----

void Gather::write(ByteWriter& out) const {
  out.u32(number).u32(static_cast<uint32_t>(blobs.size()));
  for (const auto& [rank, blob] : blobs) out.rank(rank).blob(blob);
}
void Gather::read(ByteReader& in, int size) {
  number = in.u32();
  for (uint32_t left = in.count(kRankBytes + kLengthBytes); in.ok() && left > 0; left--) {
    const int rank = in.rank_below(size);
    blobs[rank] = read_blob(in);
  }
}

void Gathered::write(ByteWriter& out) const {
  out.u32(number);
  for (const Blob& blob : blobs) out.blob(blob);
}
void Gathered::read(ByteReader& in, int size) {
  number = in.u32();
  if (in.left() < static_cast<size_t>(size) * kLengthBytes) return in.fail();
  blobs.reserve(static_cast<size_t>(size));
  for (int rank = 0; in.ok() && rank < size; rank++) blobs.push_back(read_blob(in));
}

void Broadcast::write(ByteWriter& out) const { out.u32(number).blob(blob); }
void Broadcast::read(ByteReader& in, int) {
  number = in.u32();
  blob = read_blob(in);
}

void CollectiveOff::write(ByteWriter& out) const { out.u32(number).status(status); }
void CollectiveOff::read(ByteReader& in, int) {
  number = in.u32();
  status = in.status();
}

// ---- calls ----

void StallReport::write(ByteWriter& out) const {
  out.u32(call.comm).u32(call.seq).u64(call.signature).text(call.text);
  out.flag(call.refused_before).flag(makes_group);
  out.rank(reporter).rank(mismatching_peer).i64(waited_ms).i64(stalled_ms).i64(expired_ms);
  out.ranks(members);
}
void StallReport::read(ByteReader& in, int size) {
  call.comm = in.u32();
  call.seq = in.u32();
  call.signature = in.u64();
  call.text = in.text();
  call.refused_before = in.flag();
  makes_group = in.flag();
  reporter = in.rank_below(size);
  mismatching_peer = in.rank();
  waited_ms = in.i64();
  stalled_ms = in.i64();
  expired_ms = in.i64();
  members = in.ranks(size);
  if (mismatching_peer < kNoRank || mismatching_peer >= size || members.empty()) in.fail();
}

void Inquiry::write(ByteWriter& out) const {
  out.u64(id).u32(comm).u32(seq).u64(signature).rank(asker);
}
void Inquiry::read(ByteReader& in, int size) {
  id = in.u64();
  comm = in.u32();
  seq = in.u32();
  signature = in.u64();
  asker = in.rank_below(size);
}

void InquiryAnswers::write(ByteWriter& out) const {
  out.u64(inquiry).ranks(alike).u32(static_cast<uint32_t>(others.size()));
  for (const InquiryAnswer& one : others) {
    out.rank(one.rank).u8(static_cast<uint8_t>(one.where)).u32(one.seq).u64(one.signature);
    out.flag(one.in_stream).text(one.text);
  }
}
void InquiryAnswers::read(ByteReader& in, int size) {
  constexpr size_t kLeastBytes = kRankBytes + 1 + 4 + 8 + 1 + kLengthBytes;  // as written above
  inquiry = in.u64();
  alike = in.ranks(size);
  for (uint32_t left = in.count(kLeastBytes); in.ok() && left > 0; left--) {
    InquiryAnswer one;
    one.rank = in.rank_below(size);
    const uint8_t where = in.u8();
    if (where > static_cast<uint8_t>(InquiryAnswer::Where::past)) return in.fail();
    one.where = static_cast<InquiryAnswer::Where>(where);
    one.seq = in.u32();
    one.signature = in.u64();
    one.in_stream = in.flag();
    one.text = in.text();
    others.push_back(std::move(one));
  }
}

void CommFailed::write(ByteWriter& out) const {
  out.u64(event).u32(comm).rank(anchor).status(status);
}
void CommFailed::read(ByteReader& in, int size) {
  event = in.u64();
  comm = in.u32();
  anchor = in.rank_below(size);
  status = in.status();
}

void AbortRequest::write(ByteWriter& out) const { out.u32(comm).rank(anchor).status(status); }
void AbortRequest::read(ByteReader& in, int size) {
  comm = in.u32();
  anchor = in.rank_below(size);
  status = in.status();
}

void Tell::write(ByteWriter& out) const {
  out.flag(may_wait).u32(static_cast<uint32_t>(said.size()));
  for (const Said& one : said) out.rank(one.rank).u8(one.topic).blob(one.blob);
}
void Tell::read(ByteReader& in, int size) {
  may_wait = in.flag();
  for (uint32_t left = in.count(kRankBytes + 1 + kLengthBytes); in.ok() && left > 0; left--) {
    Said one;
    one.rank = in.rank_below(size);
    one.topic = in.u8();
    one.blob = read_blob(in);
    said.push_back(std::move(one));
  }
}

void Announce::write(ByteWriter& out) const { out.u64(event).u8(topic).u64(key).blob(blob); }
void Announce::read(ByteReader& in, int) {
  event = in.u64();
  topic = in.u8();
  key = in.u64();
  blob = read_blob(in);
}

}  // namespace sennit::control
