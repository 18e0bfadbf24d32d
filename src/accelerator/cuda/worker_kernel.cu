// worker_kernel.cu: the kernel that stays in a stream while a call is out, and copies and reduces
// what the host posts (accelerator/cuda/mailbox.hpp).
//
// A block is four teams, each of which claims a tile, does it, and counts it: while one waits for
// its loads or for what it wrote to be seen, the others work. A thread has eight loads of 16 bytes
// under way, so that a block has 64 KiB. One warp more in the block that begins first, the relay,
// asks the mailbox across the bus, so that the others ask their own memory only.
//
// A ticket is claimed before there is work for it. It belongs to the command whose tiles have it
// among them, which is looked for as soon as the relay has copied so many tiles. That command
// cannot be over before its ticket is, so its slot still holds it; and no other in the ring, old or
// half written, has the ticket among its tiles.
//
// Compiled with -fmad=false and without --use_fast_math: see reduce/element.hpp.
#include "accelerator/cuda/mailbox.hpp"
#include "reduce/element.hpp"

namespace sennit::cuda {
namespace {

using Words = ulonglong2;  // 16 bytes of a command, of which each half is read and written whole
constexpr unsigned kCommandWords = sizeof(Command) / sizeof(Words);
constexpr unsigned kWarp = 32;
constexpr unsigned kAll = ~0u;  // lanes

// ---- words that others read or write meanwhile ----

__device__ uint64_t acquire_of_system(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void release_to_system(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ uint64_t acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ uint64_t read_word(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void write_words(Words* to, Words value) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(value.x), "l"(value.y)
               : "memory");
}

// ---- vectors of 16 bytes ----

template <typename T>
constexpr int kPerVector = static_cast<int>(16 / T::kBytes);
template <typename T>
using Sums = typename T::Accumulator[kPerVector<T>];

__device__ uint4 load_vector(const char* from) {
  return __ldcg(reinterpret_cast<const uint4*>(from));
}
__device__ void store_vector(char* to, const uint4& v) { *reinterpret_cast<uint4*>(to) = v; }

template <typename T>
__device__ __forceinline__ typename T::Accumulator element_of(const uint4& v, int k) {
  const uint32_t words[] = {v.x, v.y, v.z, v.w};
  using Bits = typename T::Bits;
  if constexpr (T::kBytes == 8)
    return T::widen(words[2 * k] | static_cast<uint64_t>(words[2 * k + 1]) << 32);
  else if constexpr (T::kBytes == 4)
    return T::widen(words[k]);
  else if constexpr (T::kBytes == 2)
    return T::widen(static_cast<Bits>(words[k / 2] >> 16 * (k % 2)));
  else
    return T::widen(static_cast<Bits>(words[k / 4] >> 8 * (k % 4)));
}

template <typename T>
__device__ __forceinline__ void begin(Sums<T>& sums, const uint4& v) {
#pragma unroll
  for (int k = 0; k < kPerVector<T>; k++) sums[k] = element_of<T>(v, k);
}
template <typename T, KernelOp op>
__device__ __forceinline__ void add(Sums<T>& sums, const uint4& v) {
#pragma unroll
  for (int k = 0; k < kPerVector<T>; k++)
    sums[k] = element::combine<T, op>(sums[k], element_of<T>(v, k));
}
// The operation is asked for vector by vector: the code for each is too much, as it is for a type.
template <typename T>
__device__ __forceinline__ void add(KernelOp op, Sums<T>& sums, const uint4& v) {
  if (op == KernelOp::sum || op == KernelOp::average) return add<T, KernelOp::sum>(sums, v);
  if (op == KernelOp::prod) return add<T, KernelOp::prod>(sums, v);
  if (op == KernelOp::min) return add<T, KernelOp::min>(sums, v);
  if (op == KernelOp::max) return add<T, KernelOp::max>(sums, v);
  if constexpr (T::kInteger) {
    if (op == KernelOp::band) return add<T, KernelOp::band>(sums, v);
    if (op == KernelOp::bor) return add<T, KernelOp::bor>(sums, v);
    add<T, KernelOp::bxor>(sums, v);
  }
}

template <typename T>
__device__ __forceinline__ uint4 end(KernelOp op, Sums<T>& sums, uint64_t divisor) {
  constexpr KernelOp kWhole = KernelOp::sum;  // no further division
  if (op == KernelOp::average) {
    const auto by = static_cast<typename T::Divisor>(divisor);
#pragma unroll
    for (int k = 0; k < kPerVector<T>; k++) sums[k] = T::divide(sums[k], by);
  }
  uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; w++) {
    if constexpr (T::kBytes == 8) {
      const uint64_t x = T::narrow(T::canonical(sums[w / 2]));
      words[w] = static_cast<uint32_t>(x >> 32 * (w % 2));
    } else if constexpr (T::kBytes == 4) {
      words[w] = T::narrow(T::canonical(sums[w]));
    } else if constexpr (T::kBytes == 2) {
      words[w] = element::finish_pair<T, kWhole>(sums[2 * w], sums[2 * w + 1], {});
    } else {
      words[w] = element::finish_pair<T, kWhole>(sums[4 * w], sums[4 * w + 1], {}) |
                 element::finish_pair<T, kWhole>(sums[4 * w + 2], sums[4 * w + 3], {}) << 16;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// ---- a tile ----

// What a team does, in the memory that its threads share.
struct Tile {
  Words command[kCommandWords];
  const char* in[kMostInputs];
  uint64_t where;              // the command's, which is 0 before the first
  uint64_t from;               // bytes of the result before the tile
  unsigned tiles;              // of the command
  unsigned bytes, head, tail;  // of the tile, before its first whole piece, to its last one's end
  unsigned skewed;             // bits below 16 in which the addresses differ
  unsigned piece;              // bytes at which all addresses are aligned: 16, or 8, 4, 2, 1
  bool copies;
  bool over;  // there is none any more

  __device__ const Command& what() const { return *reinterpret_cast<const Command*>(command); }
};

// What is reduced goes by vectors or by elements.
__device__ void lay_out(Tile& tile, uint64_t index) {
  const Command& command = tile.what();
  unsigned skewed = tile.skewed;
  const bool bytewise = command.op == kCopy;
  tile.copies = bytewise ||
                element::copies(static_cast<KernelOp>(command.op), command.inputs, command.divisor);
  const auto size = bytewise ? 1u : static_cast<unsigned>(element::bytes_of(command.type));
  const auto out = static_cast<unsigned>(reinterpret_cast<uintptr_t>(command.out));
  const uint64_t most = uint64_t{1} << command.tile_shift;
  tile.from = index << command.tile_shift;
  const uint64_t left = command.count * size - tile.from;
  tile.bytes = static_cast<unsigned>(left < most ? left : most);
  if (!tile.copies) skewed |= out & (size - 1);
  skewed |= 16;
  tile.piece = skewed & -skewed;
  const unsigned head = -out & (tile.piece - 1);
  tile.head = (!tile.copies && tile.piece < 16) || head > tile.bytes ? tile.bytes : head;
  tile.tail = tile.head + (tile.bytes - tile.head) / tile.piece * tile.piece;
}

// One element of the result, from addresses of any alignment or of the element's.
template <typename T, bool odd>
struct OneElement {
  const Tile& tile;
  uint64_t at;
  template <typename U>
  __device__ __forceinline__ typename U::Accumulator load(unsigned k) const {
    const char* const from = tile.in[k] + at;
    if constexpr (odd)
      return element::load<U>(from);
    else
      return U::widen(__ldcg(reinterpret_cast<const typename U::Bits*>(from)));
  }
  template <typename U, KernelOp op>
  __device__ __forceinline__ void run() const {
    const Command& command = tile.what();
    typename U::Accumulator sum = load<U>(0);
    for (unsigned k = 1; k < command.inputs; k++) sum = element::combine<U, op>(sum, load<U>(k));
    sum = element::finish<U, op>(sum, static_cast<typename U::Divisor>(command.divisor));
    char* const to = static_cast<char*>(command.out) + at;
    if constexpr (odd)
      element::store<U>(to, sum);
    else
      *reinterpret_cast<typename U::Bits*>(to) = U::narrow(sum);
  }
};

// The elements before the first whole vector and after the last, one by one.
template <typename T, bool odd>
__device__ __noinline__ void reduce_elements(const Tile& tile, unsigned thread) {
  const auto op = static_cast<KernelOp>(tile.what().op);
  const unsigned vectors = tile.tail - tile.head, to = tile.bytes - vectors;
#pragma unroll 1
  for (unsigned at = thread * T::kBytes; at < to; at += kTeamThreads * T::kBytes) {
    const OneElement<T, odd> one{tile, tile.from + at + (at < tile.head ? 0 : vectors)};
    element::run_op<T>(op, one);
  }
}

// What is loaded at once begins as zeros, here and below. Unset where there is nothing to load, it
// would live from round to round. There are no registers for that: each load would be waited for,
// to be put into memory.

// Of two inputs, which most commands have: several vectors at once. `fixed`: the operation, or -1
// for the command's.
template <typename T, int fixed>
__device__ __forceinline__ void reduce_two(const Tile& tile, unsigned thread) {
  constexpr unsigned kAtOnce = T::kBytes == 1 ? 2 : 4, kStep = kTeamThreads * 16;
  const Command& command = tile.what();
  const auto op = static_cast<KernelOp>(fixed < 0 ? command.op : fixed);
  char* const out = static_cast<char*>(command.out) + tile.from;
  const char* const a = tile.in[0] + tile.from;
  const char* const b = tile.in[1] + tile.from;
  const unsigned tail = tile.tail;
#pragma unroll 1
  for (unsigned at = tile.head + thread * 16; at < tail; at += kAtOnce * kStep) {
    uint4 x[kAtOnce] = {}, y[kAtOnce] = {};
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++)
      if (at + u * kStep < tail) {
        x[u] = load_vector(a + at + u * kStep);
        y[u] = load_vector(b + at + u * kStep);
      }
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++) {
      if (at + u * kStep >= tail) break;
      Sums<T> sums;
      begin<T>(sums, x[u]);
      add<T>(op, sums, y[u]);
      store_vector(out + at + u * kStep, end<T>(op, sums, command.divisor));
    }
  }
}

// Of any number of inputs: one vector, and several inputs at once.
template <typename T, int fixed>
__device__ __forceinline__ void reduce_many(const Tile& tile, unsigned thread) {
  constexpr unsigned kAtOnce = T::kBytes == 1 ? 2 : 4;
  const Command& command = tile.what();
  const auto op = static_cast<KernelOp>(fixed < 0 ? command.op : fixed);
  const unsigned inputs = command.inputs;
#pragma unroll 1
  for (unsigned at = tile.head + thread * 16; at < tile.tail; at += kTeamThreads * 16) {
    Sums<T> sums;
    begin<T>(sums, load_vector(tile.in[0] + tile.from + at));
#pragma unroll 1
    for (unsigned first = 1; first < inputs; first += kAtOnce) {
      uint4 x[kAtOnce] = {};
#pragma unroll
      for (unsigned k = 0; k < kAtOnce; k++)
        if (first + k < inputs) x[k] = load_vector(tile.in[first + k] + tile.from + at);
#pragma unroll
      for (unsigned k = 0; k < kAtOnce; k++) {
        if (first + k >= inputs) break;
        add<T>(op, sums, x[k]);
      }
    }
    store_vector(static_cast<char*>(command.out) + tile.from + at,
                 end<T>(op, sums, command.divisor));
  }
}

// For element::run_type().
struct Reduction {
  const Tile& tile;
  unsigned thread;
  template <typename T, int fixed>
  __device__ __forceinline__ void reduce_vectors() const {
    if (tile.what().inputs == 2)
      reduce_two<T, fixed>(tile, thread);
    else
      reduce_many<T, fixed>(tile, thread);
  }
  template <typename T>
  __device__ __forceinline__ void run() const {
    constexpr int kSum = static_cast<int>(KernelOp::sum);
    if (tile.piece < T::kBytes) return reduce_elements<T, true>(tile, thread);
    reduce_elements<T, false>(tile, thread);
    if constexpr (!T::kInteger && (T::kBytes == 2 || T::kBytes == 4)) {  // most of what is reduced
      if (tile.what().op == kSum) return reduce_vectors<T, kSum>();
    }
    reduce_vectors<T, -1>();
  }
};

template <typename Piece>
__device__ __forceinline__ void copy_pieces(const Tile& tile, unsigned thread) {
  constexpr unsigned kAtOnce = 8, kStep = kTeamThreads * sizeof(Piece);
  char* const out = static_cast<char*>(tile.what().out) + tile.from;
  const char* const in = tile.in[0] + tile.from;
  const unsigned tail = tile.tail;
  if (thread < tile.head) out[thread] = __ldcg(in + thread);
  if (const unsigned at = tail + kTeamThreads - 1 - thread; at < tile.bytes)
    out[at] = __ldcg(in + at);
#pragma unroll 1
  for (unsigned at = tile.head + thread * sizeof(Piece); at < tail; at += kAtOnce * kStep) {
    Piece x[kAtOnce] = {};
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++)
      if (at + u * kStep < tail) x[u] = __ldcg(reinterpret_cast<const Piece*>(in + at + u * kStep));
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++)
      if (at + u * kStep < tail) *reinterpret_cast<Piece*>(out + at + u * kStep) = x[u];
  }
}

__device__ void do_tile(const Tile& tile, unsigned thread) {
  if (!tile.copies) {
    const Reduction reduction{tile, thread};
    return element::run_type(tile.what().type, reduction);
  }
  switch (tile.piece) {
    case 16:
      return copy_pieces<uint4>(tile, thread);
    case 8:
      return copy_pieces<unsigned long long>(tile, thread);
    case 4:
      return copy_pieces<uint32_t>(tile, thread);
    case 2:
      return copy_pieces<uint16_t>(tile, thread);
    default:
      return copy_pieces<uint8_t>(tile, thread);
  }
}

// ---- a team ----

// Waits for the team's other threads.
__device__ void await_team(unsigned team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeamThreads) : "memory");
}

// Whether the ticket is one of these tiles.
__device__ bool is_among(uint64_t ticket, uint64_t where) {
  return ticket - (where >> kTilesBits) < (where & ((uint64_t{1} << kTilesBits) - 1));
}

// The slot of the command that has the ticket; one is there. All lanes of a warp, which pass where
// the ticket before was and get where this one is.
__device__ uint64_t find_command(const Board& board, uint64_t ticket, uint64_t hint,
                                 uint64_t* where) {
  const unsigned lane = threadIdx.x % kWarp;
  for (;; hint += kWarp) {
    const uint64_t slot = (hint + lane) % kRing;
    *where = read_word(&board.ring[slot].where);
    if (const unsigned found = __ballot_sync(kAll, is_among(ticket, *where)); found != 0) {
      const int from = __ffs(static_cast<int>(found)) - 1;
      *where = __shfl_sync(kAll, *where, from);
      return __shfl_sync(kAll, slot, from);
    }
  }
}

// The team's next tile, by its first warp.
__device__ void next_tile(Board& board, Tile& tile, uint64_t* hint) {
  const unsigned lane = threadIdx.x % kWarp;
  unsigned long long ticket = 0;
  uint64_t tiles = 0;
  if (lane == 0) {
    ticket = atomicAdd(&board.next_tile, 1ull);
    do tiles = acquire(&board.tiles);
    while (tiles <= ticket);
    tile.over = tiles == kOver;
  }
  ticket = __shfl_sync(kAll, ticket, 0);
  tiles = __shfl_sync(kAll, tiles, 0);
  __syncwarp();
  if (tiles == kOver) return;
  uint64_t where = tile.where;
  if (is_among(ticket, where)) {  // another of the command that the team has
    if (lane == 0) lay_out(tile, ticket - (where >> kTilesBits));
    return;
  }
  *hint = find_command(board, ticket, *hint, &where);
  if (lane < kCommandWords)
    tile.command[lane] = __ldcg(reinterpret_cast<const Words*>(&board.ring[*hint]) + lane);
  __syncwarp();
  const Command& command = tile.what();
  const void* const* const inputs =
      command.inputs <= kInlineInputs ? command.in : static_cast<const void* const*>(command.in[0]);
  unsigned skewed = 0;
  for (unsigned k = lane; k < command.inputs; k += kWarp) {
    tile.in[k] = static_cast<const char*>(inputs[k]);
    skewed |= static_cast<unsigned>(reinterpret_cast<uintptr_t>(command.out) ^
                                    reinterpret_cast<uintptr_t>(inputs[k]));
  }
  skewed = __reduce_or_sync(kAll, skewed) % 16;
  if (lane != 0) return;
  tile.where = where;
  tile.skewed = skewed;
  lay_out(tile, ticket - (where >> kTilesBits));
  tile.tiles = static_cast<unsigned>(where & ((uint64_t{1} << kTilesBits) - 1));
}

// One thread says that its team has done a tile, after all of them have written theirs.
__device__ void count_tile(Mailbox& mailbox, Board& board, const Tile& tile) {
  const uint64_t number = tile.what().number;
  uint32_t& finished = board.finished[number % kRing];
  // Of the device: whoever counts the last tile tells the system of them all.
  __threadfence();
  if (atomicAdd(&finished, 1u) + 1 < tile.tiles) return;
  *const_cast<volatile uint32_t*>(&finished) = 0;
  __threadfence_system();
  release_to_system(&mailbox.done[number % kRing], number);
}

// A team's first warp or a block's last has ended. The last of all makes the board as it was.
__device__ void leave(Mailbox& mailbox, Board& board, uint64_t launch) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t all = gridDim.x * (kTeams + 1);
  bool last = false;
  __syncwarp();
  if (lane == 0) {
    __threadfence_system();
    last = atomicAdd(&board.left, 1u) + 1 == all;
    __threadfence();
  }
  if (!__shfl_sync(kAll, static_cast<int>(last), 0)) return;
  for (unsigned slot = lane; slot < kRing; slot += kWarp) {
    board.finished[slot] = 0;
    board.ring[slot].where = 0;  // the next launch has the same tickets
  }
  if (lane == 0) {
    board.next_tile = 0;
    board.tiles = 0;
    board.launches = launch;
    board.begun = 0;
    board.left = 0;
  }
  __threadfence();
  __syncwarp();
  if (lane == 0) {
    __threadfence_system();
    release_to_system(&mailbox.ended, launch);
  }
}

__device__ void work(Mailbox& mailbox, Board& board, uint64_t launch, Tile& tile) {
  const unsigned team = threadIdx.x / kTeamThreads;
  const unsigned thread = threadIdx.x % kTeamThreads;
  uint64_t hint = 1;
  if (thread == 0) tile.where = 0;
  if (thread < kWarp) __syncwarp();
  for (;;) {
    if (thread < kWarp) next_tile(board, tile, &hint);
    await_team(team);
    if (tile.over) break;
    do_tile(tile, thread);
    await_team(team);
    if (thread == 0) count_tile(mailbox, board, tile);
  }
  if (thread < kWarp) leave(mailbox, board, launch);
}

// ---- the relay ----

// Copies the commands after number `have`, up to `posted`, into the board's ring.
__device__ void carry_over(const Mailbox& mailbox, Board& board, uint64_t have, uint64_t posted) {
  constexpr unsigned kAtOnce = 4;  // 16 commands
  const unsigned lane = threadIdx.x % kWarp;
  const auto words = static_cast<unsigned>(posted - have) * kCommandWords;
  const auto slot_of = [&](unsigned word) { return (have + 1 + word / kCommandWords) % kRing; };
  const uint64_t last = read_word(&mailbox.ring[posted % kRing].where);
  for (unsigned begin = lane; begin < words; begin += kAtOnce * kWarp) {
    Words x[kAtOnce];
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++)
      if (const unsigned word = begin + u * kWarp; word < words)
        x[u] = __ldcv(reinterpret_cast<const Words*>(&mailbox.ring[slot_of(word)]) +
                      word % kCommandWords);
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; u++)
      if (const unsigned word = begin + u * kWarp; word < words)
        write_words(reinterpret_cast<Words*>(&board.ring[slot_of(word)]) + word % kCommandWords,
                    x[u]);
  }
  __threadfence();
  __syncwarp();
  if (lane == 0)
    release(&board.tiles, (last >> kTilesBits) + (last & ((uint64_t{1} << kTilesBits) - 1)));
}

__device__ void relay(Mailbox& mailbox, Board& board, uint64_t launch) {
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) release_to_system(&mailbox.reached, launch);
  for (uint64_t have = 0;;) {
    uint64_t told = 0;  // both words in one trip
    if (lane < 2) told = acquire_of_system(lane == 0 ? &mailbox.posted : &mailbox.leave);
    const uint64_t posted = posted_in(__shfl_sync(kAll, told, 0), launch);
    const uint64_t leaves = __shfl_sync(kAll, told, 1);
    __syncwarp();
    if (leaves >= launch) break;
    if (posted <= have) continue;
    carry_over(mailbox, board, have, posted);
    have = posted;
  }
  if (lane == 0) release(&board.tiles, kOver);
}

}  // namespace
}  // namespace sennit::cuda

extern "C" __global__ void __launch_bounds__(sennit::cuda::kThreads, 1)
    sennit_worker(sennit::cuda::Mailbox* mailbox, sennit::cuda::Board* board, uint64_t launch) {
  using namespace sennit::cuda;
  __shared__ Tile tiles[kTeams];
  // The last to leave counts this one, and none has left that has not come by here.
  if (launch == kInGraph) launch = *const_cast<const volatile uint64_t*>(&board->launches) + 1;
  if (threadIdx.x < kWorkingThreads)
    return work(*mailbox, *board, launch, tiles[threadIdx.x / kTeamThreads]);
  // Whichever block begins first: another may not come before this one has gone.
  unsigned before = 0;
  if (threadIdx.x == kWorkingThreads) before = atomicAdd(&board->begun, 1u);
  if (__shfl_sync(kAll, before, 0) == 0) relay(*mailbox, *board, launch);
  leave(*mailbox, *board, launch);
}
