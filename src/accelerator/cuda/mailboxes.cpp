// mailboxes.cpp: see accelerator/cuda/mailboxes.hpp.
#include "accelerator/cuda/mailboxes.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "reduce/reduce.hpp"
#include "reduce/table.hpp"

namespace sennit::cuda {
namespace {

// So many are made at once: their memory is pinned together.
constexpr size_t kMadeAtOnce = 8;
// A block for so many bytes of results, as far as there are blocks.
constexpr uint64_t kBytesOfABlock = 128 * 1024;

uint64_t read(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}
void write(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// What a stream that is not captured waits for by itself. The context is current.
StreamOrder order_of(const Driver& driver, void* stream) {
  if (is_legacy(stream)) return StreamOrder::legacy;
  if (is_per_thread(stream)) return StreamOrder::blocking;
  unsigned flags = kNonBlocking;  // where this driver does not say
  if (driver.cuStreamGetFlags) driver.cuStreamGetFlags(static_cast<Stream>(stream), &flags);
  return flags & kNonBlocking ? StreamOrder::free : StreamOrder::blocking;
}

}  // namespace

// ---- the mailboxes ----

// The driver is asked without the lock: it may wait for a kernel that waits for somebody who gives
// a mailbox back.
Result<Post> Mailboxes::take() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      collect();
      if (!idle_.empty()) {
        Post post = idle_.back();
        idle_.pop_back();
        post.launch++;
        std::fill(std::begin(post.mailbox->done), std::end(post.mailbox->done), 0);
        return post;
      }
    }
    const Result<std::vector<Post>> more = make_more();
    if (!more) return more.status();
    const MutexLock lock(mutex_);
    idle_.insert(idle_.end(), more->begin(), more->end());
  }
}

// Those whose kernels have ended are idle.
void Mailboxes::collect() {
  for (size_t left = leaving_.size(); left > 0; left--) {
    Leaving leaving = std::move(leaving_.front());
    leaving_.pop_front();
    Post& post = leaving.post;
    const uint64_t ended = read(post.mailbox->ended);
    if (leaving.gone ? !*leaving.gone : ended != post.launch) {
      leaving_.push_back(std::move(leaving));
      continue;
    }
    post.launch = ended;  // a graph may have been launched also after it was given back
    write(post.mailbox->leave, ended);
    idle_.push_back(post);
  }
}

void Mailboxes::give_back(const Post& post, Gone gone) {
  const MutexLock lock(mutex_);
  leaving_.push_back({post, std::move(gone)});
}

bool Mailboxes::none_is_stuck() {
  const MutexLock lock(mutex_);
  collect();
  return std::all_of(leaving_.begin(), leaving_.end(), [](const Leaving& leaving) {
    return !leaving.gone && read(leaving.post.mailbox->reached) == leaving.post.launch;
  });
}

// The boards are cleared in a stream of ours: one of the program's might wait for a kernel that
// waits for us.
Result<std::vector<Post>> Mailboxes::make_more() const {
  constexpr size_t kMailboxBytes = (sizeof(Mailbox) + kPageBytes - 1) / kPageBytes * kPageBytes;
  const auto check = [&](int error, const char* what) {
    return error == kSuccess ? Status()
                             : Status(SENNIT_OUT_OF_RESOURCES,
                                      fmt::format("{}: {}", what, error_text(driver_, error)));
  };
  const Result<std::byte*> memory = pinned_memory(driver_, kMadeAtOnce * kMailboxBytes);
  if (!memory) return memory.status();
  Address boards = 0;
  constexpr size_t kBoardBytes = (sizeof(Board) + kPageBytes - 1) / kPageBytes * kPageBytes;
  SENNIT_RETURN_IF_ERROR(
      check(driver_.cuMemAlloc_v2(&boards, kMadeAtOnce * kBoardBytes), "cuMemAlloc of boards"));
  SENNIT_RETURN_IF_ERROR(
      check(driver_.cuMemsetD8Async(boards, 0, kMadeAtOnce * kBoardBytes, stream_),
            "cuMemsetD8Async of boards"));
  SENNIT_RETURN_IF_ERROR(
      check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize of boards"));
  std::vector<Post> posts;
  for (size_t i = 0; i < kMadeAtOnce; i++) {
    Mailbox* const mailbox = new (*memory + i * kMailboxBytes) Mailbox;
    posts.push_back({mailbox, boards + i * kBoardBytes, 0});
  }
  return posts;
}

// ---- a worker ----

Status MailboxWorker::launch(void* stream, uint64_t work_bytes, uint64_t number, uint64_t capture) {
  const Driver& driver = *kernel_.driver;
  const CurrentContext current(driver, kernel_.context);
  stream_ = {name_of(stream), capture, capture == 0 ? order_of(driver, stream) : StreamOrder::free};
  SENNIT_RETURN_IF_ERROR(kernel_.owners->enter(stream_, owner_));
  const auto wanted = static_cast<unsigned>(
      std::clamp<uint64_t>(work_bytes / kBytesOfABlock, 1, kernel_.most_blocks));
  const unsigned blocks = kernel_.shares->take(stream_.name, owner_, wanted);
  Mailbox* mailbox = &mailbox_;
  Address board = post_.board;
  void* parameters[] = {&mailbox, &board, &number};
  int error = current.error();
  if (error == kSuccess)
    error = driver.cuLaunchKernel(kernel_.function, blocks, 1, 1, kThreads, 1, 1, 0,
                                  static_cast<Stream>(stream), parameters, nullptr);
  enqueued_ = true;
  if (error == kSuccess) return {};
  leave_stream();
  return {SENNIT_INTERNAL,
          fmt::format("cuLaunchKernel into the stream at {}: {}: is it a stream of the device that "
                      "the communicator was given?",
                      stream, error_text(driver, error))};
}

bool MailboxWorker::leave_stream() {
  if (!std::exchange(enqueued_, false)) return false;
  kernel_.shares->give_back(stream_.name, owner_);
  kernel_.owners->leave(stream_, owner_);
  return true;
}

bool MailboxWorker::launch_is_reached() const { return read(mailbox_.reached) == post_.launch; }

void MailboxWorker::let_go(uint64_t number) {
  waiting_.clear();
  write(mailbox_.leave, number);
}

void MailboxWorker::clear() {
  std::fill(std::begin(mailbox_.done), std::end(mailbox_.done), 0);
  posted_ = next_tile_ = 0;
  out_.clear();
}

bool MailboxWorker::has_room() const {
  return out_.empty() || posted_ + 1 - out_.front().number < kRing;
}

void MailboxWorker::submit(const LocalWork& work, uint64_t token) {
  if (waiting_.empty() && has_room()) return post(work, work.inputs, token);
  waiting_.push_back({work, {work.inputs.begin(), work.inputs.end()}, token});
}

void MailboxWorker::post(const LocalWork& work, std::span<const void* const> inputs,
                         uint64_t token) {
  SENNIT_CHECK(!inputs.empty() && inputs.size() <= kMostInputs);
  const uint64_t number = posted_ + 1;
  const size_t slot = number % kRing;
  Command& command = mailbox_.ring[slot];
  const uint64_t bytes = work.count * (work.copies ? 1 : type_bytes(work.type));
  const uint64_t tiles = tiles_of(bytes);
  SENNIT_CHECK(tiles > 0 && tiles >> kTilesBits == 0);
  command.where = next_tile_ << kTilesBits | tiles;
  command.number = number;
  command.out = work.out;
  command.count = work.count;
  command.divisor = work.divisor;
  command.tile_shift = tile_shift_of(bytes);
  command.inputs = static_cast<uint32_t>(inputs.size());
  command.type = static_cast<uint8_t>(work.type);
  command.op = work.copies ? kCopy : static_cast<uint8_t>(kernel_op(work.op, work.divisor));
  if (inputs.size() <= kInlineInputs) {
    std::copy(inputs.begin(), inputs.end(), command.in);
  } else {
    std::copy(inputs.begin(), inputs.end(), mailbox_.more[slot]);
    command.in[0] = mailbox_.more[slot];
  }
  next_tile_ += tiles;
  posted_ = number;
  out_.push_back({number, token});
  write(mailbox_.posted, posting(post_.launch, number));
}

void MailboxWorker::poll(std::vector<uint64_t>* done) {
  std::erase_if(out_, [&](const Out& out) {
    if (read(mailbox_.done[out.number % kRing]) < out.number) return false;
    done->push_back(out.token);
    return true;
  });
  while (!waiting_.empty() && has_room()) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    post(next.work, next.inputs, next.token);
  }
}

// ---- of a call ----

// Its kernel may still be in a stream that is stuck: of the two who know of it one always does.
CallWorker::~CallWorker() {
  leave();
  const bool launched = leave_stream();
  if (!launched) post_.launch--;  // which there was none of
  mailboxes_.give_back(post_);
  if (launched) kernel_.kernels->ended();
}

Status CallWorker::enqueue(void* stream, uint64_t work_bytes) {
  kernel_.kernels->launches();
  Status launched = launch(stream, work_bytes, post_.launch, 0);
  if (!launched.ok()) kernel_.kernels->ended();
  return launched;
}

// ---- of a place in a graph ----

// The graph may be launched still.
GraphWorker::~GraphWorker() {
  retire();
  leave_stream();
  if (!kept_) gone_->store(true, std::memory_order_release);
  mailboxes_.give_back(post_, gone_);
  kernel_.kernels->graph_over();
}

// As long as the graph may be launched, its blocks count as out.
Status GraphWorker::enqueue(void* stream, uint64_t work_bytes) {
  uint64_t capture = 0;
  SENNIT_RETURN_IF_ERROR(keep_in_graph(stream, &capture));
  return launch(stream, work_bytes, kInGraph, capture);
}

// Something that the graph gives up when it and all that was made of it are gone.
Status GraphWorker::keep_in_graph(void* stream, uint64_t* capture) {
  const Driver& driver = *kernel_.driver;
  const CurrentContext current(driver, kernel_.context);
  int capturing = 0;
  unsigned long long number = 0;
  Graph graph = nullptr;
  UserObject object = nullptr;
  int error = current.error();
  if (error == kSuccess)
    error = driver.cuStreamGetCaptureInfo_v2(static_cast<Stream>(stream), &capturing, &number,
                                             &graph, nullptr, nullptr);
  if (error == kSuccess && capturing != kCapturing)
    return {SENNIT_INVALID_ARGUMENT,
            "the capture of the stream has ended while a call was made part of its graph: keep the "
            "group's calls, and its end, within the capture"};
  if (error == kSuccess) {
    const auto destroy = [](void* flag) {
      const std::unique_ptr<Flag> its(static_cast<Flag*>(flag));
      (*its)->store(true, std::memory_order_release);
    };
    error = driver.cuUserObjectCreate(&object, new Flag(gone_), destroy, 1, kDestroyedAtAnyTime);
  }
  if (error == kSuccess) {
    error = driver.cuGraphRetainUserObject(graph, object, 1, kGivenAway);
    if (error != kSuccess) driver.cuUserObjectRelease(object, 1);
  }
  kept_ = error == kSuccess;
  *capture = number;
  if (kept_) return {};
  return {SENNIT_INTERNAL, fmt::format("the graph that the stream at {} is captured into: {}",
                                       stream, error_text(driver, error))};
}

bool GraphWorker::reached() {
  if (!launch_is_reached()) return false;
  clear();
  kernel_.kernels->began();
  return true;
}

void GraphWorker::leave() {
  let_go(post_.launch);
  kernel_.kernels->ended();
  post_.launch++;
}

}  // namespace sennit::cuda
