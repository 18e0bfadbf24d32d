// worker.cpp: see worker.hpp.
//
// The words of the mailbox are read and written as the device does, and nothing else here orders
// this thread and the host's. The thread sanitizer sees a host that forgets its part.
#include "tests/soft_gpu/worker.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accelerator/cuda/mailbox.hpp"
#include "reduce/element.hpp"
#include "tests/soft_gpu/memory.hpp"

namespace soft_gpu {
namespace {

using sennit::KernelOp;
using sennit::cuda::Board;
using sennit::cuda::Command;
using sennit::cuda::kCopy;
using sennit::cuda::kInGraph;
using sennit::cuda::kInlineInputs;
using sennit::cuda::kMostInputs;
using sennit::cuda::kRing;
using sennit::cuda::kTilesBits;
using sennit::cuda::Mailbox;
using sennit::cuda::posted_in;
using sennit::cuda::tile_shift_of;
using sennit::cuda::tiles_of;

constexpr uint64_t kMostDelay = 100;  // microseconds

uint64_t acquire(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
void release(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// A command with addresses that this thread can use.
struct LocalCommand {
  Command command;
  std::byte* out = nullptr;
  std::vector<const void*> inputs;
  uint64_t bytes = 0;  // of the result, and of each input
};

bool overlaps(const void* a, const void* b, uint64_t bytes_of_a, uint64_t bytes_of_b) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto other = reinterpret_cast<uintptr_t>(b);
  return first < other + bytes_of_b && other < first + bytes_of_a;
}

// Whether one of them writes where the other reads or writes.
bool overlap(const LocalCommand& a, const LocalCommand& b) {
  const auto writes_into = [](const LocalCommand& writer, const LocalCommand& reader) {
    return std::any_of(reader.inputs.begin(), reader.inputs.end(), [&](const void* in) {
      return overlaps(writer.out, in, writer.bytes, reader.bytes);
    });
  };
  return overlaps(a.out, b.out, a.bytes, b.bytes) || writes_into(a, b) || writes_into(b, a);
}

// One launch.
class Worker {
 public:
  Worker(const Gpu& gpu, Mailbox& mailbox, Board& board, uint64_t launch, Dice dice)
      : gpu_(gpu), mailbox_(mailbox), board_(board), launch_(launch), dice_(dice) {}

  void run();

 private:
  bool stop(const std::string& why);
  bool take_board();
  bool take_posted();
  bool is_reached(uintptr_t address) const;
  bool translate(LocalCommand* command);
  bool accept(const Command& command);
  void do_one();

  const Gpu& gpu_;
  Mailbox& mailbox_;
  Board& board_;
  uint64_t launch_;
  Dice dice_;
  RunningKernel running_;
  uint64_t taken_ = 0;             // commands
  uint64_t next_tile_ = 0;         // the first of the next command
  std::vector<LocalCommand> out_;  // taken and not done
};

// Always false.
bool Worker::stop(const std::string& why) {
  break_device(why + ", in launch " + std::to_string(launch_));
  return false;
}

// Two launches that share a board would claim one another's tiles.
bool Worker::take_board() {
  const uint64_t before = std::exchange(board_.launches, 0);
  if (launch_ == kInGraph) launch_ = before + 1;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&board_);
  if (std::any_of(bytes, bytes + sizeof(Board), [](std::byte b) { return b != std::byte{0}; }))
    return stop("the board is not zero: it is not cleared yet, or another launch has it");
  std::atomic_ref(board_.left).store(1, std::memory_order_relaxed);
  return true;
}

void Worker::run() {
  if (!take_board()) return;
  release(mailbox_.reached, launch_);
  for (uint64_t idle = 0; running_.goes_on();) {
    // First `leave`: whatever was posted before it is then seen as well.
    const bool leaves = acquire(mailbox_.leave) >= launch_;
    if (!take_posted()) return;
    // What is not done is either abandoned or done: the host must expect both.
    if (leaves && (out_.empty() || dice_.below(2) == 0)) break;
    if (!out_.empty()) {
      do_one();
      idle = 0;
    } else if (++idle < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  if (broken()) return;
  board_.launches = launch_;
  std::atomic_ref(board_.left).store(0, std::memory_order_relaxed);
  release(mailbox_.ended, launch_);
}

// False: the device has broken.
bool Worker::take_posted() {
  const uint64_t posted = posted_in(acquire(mailbox_.posted), launch_);
  while (taken_ < posted)
    if (!accept(mailbox_.ring[++taken_ % kRing])) return false;
  return true;
}

bool Worker::accept(const Command& posted) {
  LocalCommand taken{posted, nullptr, {}, 0};
  const std::string name = "command " + std::to_string(taken_);
  if (posted.number != taken_)
    return stop(name + "'s slot holds command " + std::to_string(posted.number));
  if (out_.size() == kRing) return stop(name + " is one more than fit");
  if (!translate(&taken)) return false;
  const uint64_t tiles = posted.where & ((1u << kTilesBits) - 1);
  if (posted.where >> kTilesBits != next_tile_ || tiles == 0 || tiles != tiles_of(taken.bytes) ||
      posted.tile_shift != tile_shift_of(taken.bytes))
    return stop(name + " has tiles that are not its");
  next_tile_ += tiles;
  for (const LocalCommand& other : out_)
    if (overlap(taken, other))
      return stop(name + " overlaps command " + std::to_string(other.command.number));
  out_.push_back(std::move(taken));
  return true;
}

// Memory of another device only where access to it was enabled.
bool Worker::is_reached(uintptr_t address) const {
  const Range range = range_at(address);
  return range.kind != RangeKind::device || range.device == gpu_.ordinal ||
         gpu_.peers >> range.device & 1;
}

bool Worker::translate(LocalCommand* taken) {
  const Command& command = taken->command;
  const std::string name = "command " + std::to_string(command.number);
  if (command.inputs == 0 || command.inputs > kMostInputs)
    return stop(name + " has " + std::to_string(command.inputs) + " inputs");
  if (command.op != kCopy &&
      (sennit::element::bytes_of(command.type) == 0 || command.op >= sennit::kKernelOps ||
       (command.op >= static_cast<uint8_t>(KernelOp::band) && command.type > SENNIT_UINT64)))
    return stop(name + " has an operation that its type has not");
  taken->bytes =
      command.count * (command.op == kCopy ? 1 : sennit::element::bytes_of(command.type));
  const auto find = [&](const void* address, uint64_t bytes) -> std::byte* {
    const auto at = reinterpret_cast<uintptr_t>(address);
    std::byte* const found = is_reached(at) ? reach(at, bytes) : nullptr;
    if (found == nullptr) stop("illegal address in " + name);
    return found;
  };
  const void* const* inputs = command.in;
  if (command.inputs > kInlineInputs)
    inputs = reinterpret_cast<const void* const*>(find(inputs[0], command.inputs * sizeof(void*)));
  if (inputs == nullptr || command.count == 0) return inputs != nullptr;
  taken->out = find(command.out, taken->bytes);
  for (uint32_t i = 0; i < command.inputs && !broken(); i++) {
    taken->inputs.push_back(find(inputs[i], taken->bytes));
    if (taken->inputs[i] != taken->out &&
        overlaps(taken->out, taken->inputs[i], taken->bytes, taken->bytes))
      return stop(name + "'s result overlaps an input");
  }
  return !broken();
}

void Worker::do_one() {
  std::swap(out_[dice_.below(out_.size())], out_.back());
  const LocalCommand& next = out_.back();
  const Command& command = next.command;
  if (dice_.below(16) == 0) dice_.sleep_below(kMostDelay);
  if (command.count > 0 && command.op == kCopy)
    std::memmove(next.out, next.inputs[0], next.bytes);
  else if (command.count > 0)
    sennit::element::reduce_elements(command.type, static_cast<KernelOp>(command.op), next.out,
                                     next.inputs.data(), command.inputs, command.count,
                                     command.divisor);
  release(mailbox_.done[command.number % kRing], command.number);
  out_.pop_back();
}

}  // namespace

void run_worker(const Gpu& gpu, uintptr_t mailbox, uintptr_t board, uint64_t launch, Dice dice) {
  auto* const reached_mailbox = reinterpret_cast<Mailbox*>(reach(mailbox, sizeof(Mailbox)));
  auto* const reached_board = reinterpret_cast<Board*>(reach(board, sizeof(Board)));
  if (reached_mailbox == nullptr || reached_board == nullptr ||
      range_at(board).kind != RangeKind::device)
    return break_device("illegal address: the mailbox or the board of a launch");
  Worker(gpu, *reached_mailbox, *reached_board, launch, dice).run();
}

}  // namespace soft_gpu
