// mailbox.hpp: how the host tells the kernel that stays in a stream what to do, and hears that it
// is done: the one structure that host, kernel and the tests' software GPU share.
//
// A kernel is launched for each call, in the user's stream. Its start says that the stream has come
// to the call ("reached"), its end lets the stream go on. In between it copies and reduces what the
// host posts into the ring, in tiles, which its blocks claim one after the other: a block that is
// not on the device yet is not waited for. Commands run side by side, so one is posted only when
// those that it depends on are done. The host writes words that the device reads and the other way
// round; each is written with release and read with acquire, at the scope of the whole system.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define SENNIT_ON_DEVICE_TOO __host__ __device__
#else
#define SENNIT_ON_DEVICE_TOO
#endif

namespace sennit::cuda {

inline constexpr uint32_t kRing = 256;  // commands that may be out
// Tiles have 2^shift bytes of the result: small ones, so that many teams share what is small, and
// larger ones of what is large, since each is claimed and counted.
inline constexpr uint16_t kLeastTileShift = 14, kMostTileShift = 17;
inline constexpr uint64_t kEnoughTiles = 1024;
constexpr uint16_t tile_shift_of(uint64_t bytes) {
  uint16_t shift = kLeastTileShift;
  while (shift < kMostTileShift && bytes >> shift > kEnoughTiles) shift++;
  return shift;
}
constexpr uint64_t tiles_of(uint64_t bytes) {
  const uint64_t tile = uint64_t{1} << tile_shift_of(bytes);
  return (bytes + tile - 1) / tile;
}
inline constexpr uint32_t kInlineInputs = 10;
inline constexpr uint32_t kMostInputs = 64;  // of one command; more than kInlineInputs: elsewhere

// What Command::op says beside the numbers of KernelOp (reduce/table.hpp).
inline constexpr uint8_t kCopy = 255;

// out[i] = in[0][i] op in[1][i] op ..., or a copy of in[0]: `count` elements of `type`. For a copy
// an element is a byte. `out` may be an input, and overlaps none otherwise.
struct alignas(128) Command {
  // first << kTilesBits | tiles: which tiles of the launch are this command's. One word, so that it
  // is read whole also while the slot is written.
  uint64_t where = 0;
  uint64_t number = 0;  // of the command in its launch, from 1; its slot is number % kRing
  void* out = nullptr;
  uint64_t count = 0;
  uint64_t divisor = 1;  // of an average; 1: none
  uint32_t inputs = 1;
  uint8_t type = 0;  // DataType
  uint8_t op = kCopy;
  uint16_t tile_shift = kLeastTileShift;  // tile_shift_of() the bytes of the result
  // Where there are more inputs than fit, in[0] is the address of an array of them.
  const void* in[kInlineInputs] = {};
};
static_assert(sizeof(Command) == 128);
inline constexpr unsigned kTilesBits = 24;

// The launch that a kernel is told where it is part of a graph: it is the next of its mailbox,
// since nobody else knows when that is.
inline constexpr uint64_t kInGraph = 0;
// What Mailbox::posted says, with the launch that it is said to: in a graph a kernel may begin
// before the host has heard that the last has ended.
constexpr uint64_t posting(uint64_t launch, uint64_t commands) { return launch << 32 | commands; }
SENNIT_ON_DEVICE_TOO constexpr uint64_t posted_in(uint64_t posted, uint64_t launch) {
  return posted >> 32 == (launch & 0xffffffff) ? posted & 0xffffffff : 0;
}

// In pinned memory, zero at first. Numbers of launches grow, one mailbox's from 1.
struct Mailbox {
  // The device writes:
  alignas(64) uint64_t reached = 0;  // the launch whose place the stream has come to
  alignas(64) uint64_t ended = 0;    // the launch whose blocks have all left
  // By slot: the number of the command done last. The host clears it before it posts the first.
  alignas(64) uint64_t done[kRing] = {};
  // The host writes:
  alignas(64) uint64_t posted = 0;  // commands in the ring: posting()
  alignas(64) uint64_t leave = 0;   // the launch that is to end
  alignas(128) Command ring[kRing];
  alignas(64) const void* more[kRing][kMostInputs];  // inputs of the command in the slot
};

// In the device's memory, zero at first and after each launch but for `launches`: what blocks tell
// one another. What all wait for lies apart from what all count with.
struct Board {
  alignas(128) unsigned long long next_tile = 0;  // to claim
  // Tiles of the commands that have been copied into the ring; kOver: the launch is to end.
  alignas(128) uint64_t tiles = 0;
  alignas(128) uint64_t launches = 0;          // that have ended; not zero after each
  uint32_t begun = 0;                          // blocks
  uint32_t left = 0;                           // teams and relays that have ended
  alignas(128) uint32_t finished[kRing] = {};  // tiles of the command in the slot
  alignas(128) Command ring[kRing];
};
inline constexpr uint64_t kOver = ~uint64_t{0};

// Arguments of the kernel, in this order: Mailbox*, Board*, uint64_t launch.
inline constexpr char kKernelName[] = "sennit_worker";
// A block's threads: teams that each work on a tile of their own, and one warp more, of which the
// first block's carries commands over.
inline constexpr unsigned kTeams = 4;
inline constexpr unsigned kTeamThreads = 128;
inline constexpr unsigned kWorkingThreads = kTeams * kTeamThreads;
inline constexpr unsigned kThreads = kWorkingThreads + 32;

}  // namespace sennit::cuda
