// Somebody on the path of a sealed connection: flips bits, repeats, moves, leaves out, inserts and
// cuts. Every attack is found, as an error of that connection, and no message is handed over that
// was not sent so.
//
// One end's stream is recorded and cut into its units; each attack changes the record and plays it
// to a fresh other end with the same keys. ATTACKS=10000 makes that many of each kind of
// connection. Whole jobs: tests/api/wire_jobs_test.cpp.
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "base/process/forked.hpp"
#include "control/connection.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "tests/transports/transport_harness.hpp"
#include "transports/tcp/peer_connection.hpp"

namespace sennit::test {
namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

size_t attacks() {
  const char* const wanted = std::getenv("ATTACKS");
  return wanted ? std::strtoull(wanted, nullptr, 10)
                : static_cast<size_t>(sennit_test::trials(400));
}

size_t below(Random& random, size_t limit) { return static_cast<size_t>(random() % limit); }

// ---- the attacks ----

const char* const kAttacks[] = {"flip",   "repeat",     "swap", "leave out",
                                "insert", "take bytes", "cut"};
constexpr size_t kKinds = std::size(kAttacks);

// What reaches the other side; never the same as what was sent.
struct Attacked {
  Bytes stream;
  size_t untouched = 0;  // bytes before the first that differs
};

Attacked attack(const std::vector<Bytes>& units, size_t kind, Random& random) {
  std::vector<Bytes> out = units;
  const size_t at = below(random, units.size());
  switch (kind) {
    case 0:
      out[at][below(random, out[at].size())] ^= static_cast<std::byte>(1u << below(random, 8));
      break;
    case 1:
      out.insert(out.begin() + static_cast<ptrdiff_t>(at + 1 + below(random, units.size() - at)),
                 units[at]);
      break;
    case 2:
      std::swap(out[at], out[(at + 1 + below(random, units.size() - 1)) % units.size()]);
      break;
    case 3:
      out.erase(out.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 4: {
      Bytes noise(1 + below(random, 200));
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
      out.insert(out.begin() + static_cast<ptrdiff_t>(at), noise);
      break;
    }
    case 5: {
      const size_t first = below(random, out[at].size());
      out[at].erase(out[at].begin() + static_cast<ptrdiff_t>(first),
                    out[at].begin() +
                        static_cast<ptrdiff_t>(first + 1 + below(random, out[at].size() - first)));
      break;
    }
    default:
      out[at].resize(below(random, out[at].size()));
      out.resize(at + 1);
  }
  Attacked result;
  Bytes before;
  for (const Bytes& unit : units) before.insert(before.end(), unit.begin(), unit.end());
  for (const Bytes& unit : out) result.stream.insert(result.stream.end(), unit.begin(), unit.end());
  const auto differ =
      std::mismatch(before.begin(), before.end(), result.stream.begin(), result.stream.end());
  result.untouched = static_cast<size_t>(differ.first - before.begin());
  return result;
}

struct Pipe {
  int fd[2];
  Pipe() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    const int size = 4 << 20;
    for (const int end : fd) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }
  ~Pipe() {
    for (const int end : fd)
      if (end >= 0) close(end);
  }
  // For an owner that closes it as one of the library's.
  int take(int end) {
    return open_guarded([&] { return std::exchange(fd[end], -1); });
  }
};

// ---- data connections ----

SealKeys keys_of(Cipher cipher, bool first) {
  SealKeys keys;
  keys.cipher = cipher;
  keys.out.fill(static_cast<std::byte>(first ? 1 : 2));
  keys.in.fill(static_cast<std::byte>(first ? 2 : 1));
  return keys;
}

struct Sent {
  Key key;
  size_t bytes;
  int pieces;
  size_t ends;  // in the stream, with its last unit
};

// An end of a connection that takes whatever comes, and keeps what was handed over.
class Taker final : public tcp::MessageHandler {
 public:
  explicit Taker(const std::vector<Sent>& sent) : connection(1, 1 << 30, *this) {
    for (const Sent& message : sent) {
      PostedRecv& posted = receives_[message.key.seq];
      posted.memory.resize(message.bytes);
      posted.segments = cut(posted.memory.data(), message.bytes, message.pieces);
      posted.request.segments = posted.segments;
      posted.request.bytes = message.bytes;
      posted.request.key = message.key;
    }
  }
  Status on_message(tcp::PeerConnection&, const tcp::WireHeader& header,
                    std::span<const std::byte> bytes) override {
    if (header.kind == tcp::HeaderKind::eager)
      check(header.key, header.bytes, bytes.data(), bytes.size());
    return {};
  }
  RecvRequest* on_first_piece(tcp::PeerConnection&, const tcp::WireHeader& header) override {
    const auto found = receives_.find(header.key.seq);
    return found == receives_.end() ? nullptr : &found->second.request;
  }
  void on_received(RecvRequest& request) override {
    const Bytes& memory = receives_[request.key.seq].memory;
    check(request.key, request.bytes, memory.data(), memory.size());
  }
  void on_given_up(tcp::PeerConnection&, RecvRequest&) override {}
  void on_sent(SendRequest&) override {}

  size_t handed_over = 0;
  size_t wrong = 0;
  tcp::PeerConnection connection;

 private:
  void check(const Key& key, size_t claimed, const std::byte* data, size_t bytes) {
    handed_over++;
    wrong += claimed != bytes || Pattern(0, 1, key).first_wrong(data, bytes) != bytes;
  }
  std::unordered_map<uint32_t, PostedRecv> receives_;
};

// The stream of some messages of all kinds and sizes, cut into its units.
struct Recording {
  std::vector<Bytes> units;
  std::vector<Sent> sent;

  Recording(Cipher cipher, Random& random) {
    Pipe pipe;
    std::vector<Sent> none;
    Taker writer(none);
    writer.connection.open(pipe.take(0), keys_of(cipher, true));
    std::deque<PostedSend> sends;
    Bytes stream;
    for (uint32_t seq = 0; seq < 12; seq++) {
      const bool eager = random() % 2 != 0;
      const size_t bytes = random() % 8 == 0 ? 0 : 1 + below(random, eager ? 8000 : 300'000);
      const Sent message{{7, seq, 0, 0}, bytes, 1 + static_cast<int>(below(random, 3)), 0};
      sent.push_back(message);
      PostedSend& posted = sends.emplace_back();
      posted.memory.resize(bytes);
      Pattern(0, 1, message.key).fill(posted.memory.data(), bytes);
      posted.segments = cut(posted.memory.data(), bytes, message.pieces);
      posted.request.segments = posted.segments;
      posted.request.bytes = bytes;
      posted.request.key = message.key;
      if (eager)
        writer.connection.post_eager(posted.request);
      else
        writer.connection.post_granted(posted.request);
      if (random() % 2) flush(writer.connection, pipe.fd[1], stream);
    }
    flush(writer.connection, pipe.fd[1], stream);
    divide(cipher, stream);
  }

 private:
  static void flush(tcp::PeerConnection& connection, int from, Bytes& stream) {
    for (bool again = true; again;) {
      bool more = false;
      connection.unblock();
      EXPECT_TRUE(connection.write(more).ok());
      again = more || connection.has_staged();
      std::byte buffer[65536];
      for (ssize_t got; (got = recv(from, buffer, sizeof buffer, MSG_DONTWAIT)) > 0; again = true)
        stream.insert(stream.end(), buffer, buffer + got);
    }
  }
  // As the reader does, with the key.
  void divide(Cipher cipher, const Bytes& stream) {
    Seal seal(cipher, keys_of(cipher, true).out);
    size_t at = 0;
    const auto next = [&](size_t bytes) {
      units.emplace_back(stream.begin() + static_cast<ptrdiff_t>(at),
                         stream.begin() + static_cast<ptrdiff_t>(at + bytes + Seal::kTagBytes));
      at += bytes + Seal::kTagBytes;
      Bytes plain = units.back();
      EXPECT_TRUE(seal.open(plain.data(), bytes, plain.data() + bytes));
      return plain;
    };
    while (at < stream.size()) {
      tcp::WireHeader header;
      std::memcpy(&header, next(sizeof header).data(), sizeof header);
      if (header.piece_bytes > 0) next(header.piece_bytes);
      if (header.kind <= tcp::HeaderKind::eager || header.piece_bytes > 0 || header.bytes == 0)
        sent[header.key.seq].ends = at;
    }
  }
};

// Plays a stream to a fresh end, in random portions; then the connection ends.
Status play(Taker& taker, Cipher cipher, const Bytes& stream, Random& random) {
  Pipe pipe;
  taker.connection.open(pipe.take(1), keys_of(cipher, false));
  Status status;
  for (size_t at = 0; at < stream.size() && status.ok();) {
    const size_t portion =
        std::min(stream.size() - at, 1 + below(random, random() % 2 ? 200'000 : 500));
    const ssize_t sent = send(pipe.fd[0], stream.data() + at, portion, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<size_t>(sent);
    for (bool more = true; more && status.ok();) {
      more = false;
      status = taker.connection.read(true, more);
    }
  }
  if (!status.ok()) return status;
  shutdown(pipe.fd[0], SHUT_WR);
  for (bool more = true; more && status.ok();) {
    more = false;
    status = taker.connection.read(true, more);
  }
  return status;
}

class WireAttack : public testing::TestWithParam<Cipher> {
 protected:
  void SetUp() override {
    if (!(usable_ciphers() & static_cast<uint8_t>(GetParam())))
      GTEST_SKIP() << "no AES in this processor";
  }
};

TEST_P(WireAttack, OnDataIsFoundAndNothingOfItIsHandedOver) {
  Random random(sennit_test::seed());
  size_t found[kKinds] = {};
  std::unique_ptr<Recording> recording;
  for (size_t i = 0; i < attacks(); i++) {
    if (i % 20 == 0) {
      recording = std::make_unique<Recording>(GetParam(), random);
      Taker honest(recording->sent);
      Bytes stream;
      for (const Bytes& unit : recording->units)
        stream.insert(stream.end(), unit.begin(), unit.end());
      const Status ended = play(honest, GetParam(), stream, random);
      ASSERT_NE(ended.text().find("closed by the other side"), std::string::npos) << ended.text();
      ASSERT_EQ(honest.handed_over, recording->sent.size());
      ASSERT_EQ(honest.wrong, 0u);
    }
    const size_t kind = i % kKinds;
    const Attacked attacked = attack(recording->units, kind, random);
    Taker taker(recording->sent);
    const Status status = play(taker, GetParam(), attacked.stream, random);
    ASSERT_EQ(status.kind(), SENNIT_LINK_FAILED) << kAttacks[kind];
    ASSERT_EQ(taker.wrong, 0u) << kAttacks[kind];
    const auto whole =
        std::count_if(recording->sent.begin(), recording->sent.end(),
                      [&](const Sent& sent) { return sent.ends <= attacked.untouched; });
    ASSERT_EQ(taker.handed_over, static_cast<size_t>(whole)) << kAttacks[kind];
    found[kind] += status.text().find("what came is not what was sent") != std::string::npos ||
                   status.text().find("closed by the other side") != std::string::npos;
  }
  size_t all = 0;
  for (size_t kind = 0; kind < kKinds; kind++) all += found[kind];
  EXPECT_EQ(all, attacks());
  std::printf("data connections: %zu attacks, %zu found, none delivered\n", attacks(), all);
}

// A receive that is withdrawn in mid-piece: its memory is left alone, and the connection stays in
// step.
TEST_P(WireAttack, AWithdrawnReceiveLeavesTheConnectionInStep) {
  Random random(sennit_test::seed());
  for (int i = 0; i < 50; i++) {
    const Recording recording(GetParam(), random);
    Taker taker(recording.sent);
    Pipe pipe;
    taker.connection.open(pipe.take(1), keys_of(GetParam(), false));
    size_t withdrawn = 0;
    Status status;
    for (const Bytes& unit : recording.units)
      for (size_t at = 0; at < unit.size() && status.ok();) {
        const size_t portion = std::min(unit.size() - at, 1 + below(random, 60'000));
        ASSERT_EQ(send(pipe.fd[0], unit.data() + at, portion, 0), static_cast<ssize_t>(portion));
        at += portion;
        bool more = false;
        status = taker.connection.read(false, more);
        if (random() % 4 != 0) continue;
        taker.connection.take_receive_if([](const RecvRequest&) { return true; },
                                         [&](RecvRequest& request) {
                                           withdrawn++;
                                           for (const Segment& segment : request.segments)
                                             std::memset(segment.data, 0xee, segment.bytes);
                                         });
      }
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(taker.wrong, 0u);
    EXPECT_EQ(taker.handed_over + withdrawn, recording.sent.size());
  }
}

// ---- control connections ----

using control::Connection;
using control::End;
using control::FrameType;

struct ControlEnds {
  Bytes secret = Bytes(32, std::byte{5});
  Pipe up,
      // the one writes up.fd[0] ~ up.fd[1], the test hands on to down.fd[0] ~ down.fd[1], the
      // other's
      down;
  Connection one, other;
  std::vector<control::ReceivedFrame> ignored;

  ControlEnds()
      : one(up.take(0), Handshake::connector({secret, "control", 0, 1, 2, true}, 0),
            control::Role::parent, 0, false, 0),
        other(down.take(1), Handshake::acceptor({secret, "control", 0, 0, 2, true}),
              control::Role::child, 1, false, 0) {
    for (int i = 0; i < 10; i++) {
      one.drive(&ignored, 0);
      other.drive(&ignored, 0);
      pass(up.fd[1], down.fd[0]);
      pass(down.fd[0], up.fd[1]);
    }
  }
  static void pass(int from, int to) {
    std::byte buffer[65536];
    const ssize_t got = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    EXPECT_TRUE(got <= 0 || send(to, buffer, static_cast<size_t>(got), 0) == got);
  }
};

TEST_P(WireAttack, OnControlIsFoundAndNothingOfItIsHandedOver) {
  Random random(sennit_test::seed());
  pretend_usable_ciphers(static_cast<uint8_t>(GetParam()) | 2);
  size_t found = 0;
  for (size_t i = 0; i < attacks(); i++) {
    ControlEnds ends;
    ASSERT_TRUE(ends.one.proven && ends.other.proven);
    std::vector<Bytes> payloads, units;
    for (int frame = 0; frame < 6; frame++) {
      Bytes payload(random() % 4 == 0 ? 0 : below(random, random() % 8 == 0 ? 300'000 : 2000));
      Pattern(0, 1, {0, static_cast<uint32_t>(frame), 0, 0}).fill(payload.data(), payload.size());
      ends.one.send(control::make_frame(FrameType::gathered, payload), 0);
      payloads.push_back(payload);
      const auto unit = [&](size_t bytes) {
        units.emplace_back(bytes + Seal::kTagBytes);
        size_t have = 0;
        while (have < units.back().size()) {
          ends.one.drive(&ends.ignored, 0);
          const ssize_t got =
              recv(ends.up.fd[1], units.back().data() + have, units.back().size() - have, 0);
          if (got > 0) have += static_cast<size_t>(got);
        }
      };
      unit(control::kFrameHeaderBytes);
      for (size_t left = payload.size(); left > 0; left -= std::min(left, Connection::kUnitBytes))
        unit(std::min(left, Connection::kUnitBytes));
    }
    const size_t kind = i % kKinds;
    const Attacked attacked = attack(units, kind, random);
    std::vector<control::ReceivedFrame> came;
    for (size_t at = 0; at < attacked.stream.size() && ends.other.end() == End::none;) {
      const size_t portion = std::min(attacked.stream.size() - at, 1 + below(random, 100'000));
      const ssize_t sent =
          send(ends.down.fd[0], attacked.stream.data() + at, portion, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<size_t>(sent);
      ends.other.drive(&came, 0);
    }
    shutdown(ends.down.fd[0], SHUT_WR);
    ends.other.drive(&came, 0);
    ASSERT_TRUE(ends.other.end() == End::forged || ends.other.end() == End::closed)
        << kAttacks[kind];
    found++;
    ASSERT_LT(came.size(), payloads.size() + 1);
    for (size_t frame = 0; frame < came.size(); frame++)
      ASSERT_EQ(came[frame].payload, payloads[frame]) << kAttacks[kind] << ", frame " << frame;
  }
  pretend_usable_ciphers(0);
  std::printf("control connections: %zu attacks, %zu found, none delivered\n", attacks(), found);
}

// Who drips bytes of a frame that never ends must not keep a dead peer alive.
TEST_P(WireAttack, OnlyFramesThatOpenedAreASignOfLife) {
  pretend_usable_ciphers(static_cast<uint8_t>(GetParam()) | 2);
  ControlEnds ends;
  ASSERT_TRUE(ends.one.proven && ends.other.proven);
  ends.one.send(control::make_frame(FrameType::gathered, Bytes(200'000)), 0);
  Bytes stream;
  std::byte buffer[65536];
  for (ssize_t got = 1; got > 0 || !ends.one.drained();) {
    ends.one.drive(&ends.ignored, 0);
    got = recv(ends.up.fd[1], buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) stream.insert(stream.end(), buffer, buffer + got);
  }
  std::vector<control::ReceivedFrame> came;
  const auto hand_over = [&](size_t from, size_t to, int64_t now) {
    ASSERT_EQ(send(ends.down.fd[0], stream.data() + from, to - from, 0),
              static_cast<ssize_t>(to - from));
    ends.other.drive(&came, now);
  };
  const int64_t before = ends.other.last_in_ms;
  hand_over(0, 5, 1000);
  hand_over(5, stream.size() - 1, 2000);
  EXPECT_EQ(ends.other.last_in_ms, before);
  hand_over(stream.size() - 1, stream.size(), 3000);
  EXPECT_EQ(ends.other.last_in_ms, 3000);
  EXPECT_EQ(came.size(), 1u);
  pretend_usable_ciphers(0);
}

INSTANTIATE_TEST_SUITE_P(Both, WireAttack,
                         testing::Values(Cipher::aes256_gcm, Cipher::chacha20_poly1305),
                         [](const auto& of) {
                           return of.param == Cipher::aes256_gcm ? "aes" : "chacha";
                         });

}  // namespace
}  // namespace sennit::test
