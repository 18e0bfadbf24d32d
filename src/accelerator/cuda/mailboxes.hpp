// mailboxes.hpp: the mailboxes of one device, and the workers that talk through them.
//
// A mailbox is out from the moment a worker gets it until the kernel of its launch has ended, which
// the kernel itself says. So a stream that is stuck keeps its mailbox, and whoever gave up on it
// goes on. Mailboxes are never freed: a kernel that comes late still finds its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/block_shares.hpp"
#include "accelerator/cuda/device_health.hpp"
#include "accelerator/cuda/driver.hpp"
#include "accelerator/cuda/mailbox.hpp"
#include "base/mutex.hpp"

namespace sennit::cuda {

// One mailbox, its board, and the number of its latest launch.
struct Post {
  Mailbox* mailbox = nullptr;  // pinned
  Address board = 0;           // of the Board, on the device
  uint64_t launch = 0;
};

// Any thread. The context of the device is current where the driver is asked.
class Mailboxes {
 public:
  // The driver outlives this, which outlives its workers. `stream`: one that nobody else uses.
  Mailboxes(const Driver& driver, Stream stream) : driver_(driver), stream_(stream) {}
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // One whose last kernel has ended, with the number of its next launch.
  Result<Post> take() SENNIT_EXCLUDES(mutex_);
  // It is out until its kernel has ended.
  void give_back(const Post& post) SENNIT_EXCLUDES(mutex_);

 private:
  void collect() SENNIT_REQUIRES(mutex_);
  Result<std::vector<Post>> make_more() const;

  const Driver& driver_;
  const Stream stream_;
  Mutex mutex_;
  std::vector<Post> idle_ SENNIT_GUARDED_BY(mutex_);
  std::deque<Post> leaving_ SENNIT_GUARDED_BY(mutex_);
};

// What the kernel is started with.
struct Kernel {
  const Driver* driver = nullptr;
  Context context = nullptr;
  Function function = nullptr;
  unsigned most_blocks = 1;       // of a call
  BlockShares* shares = nullptr;  // of the device's calls
  DeviceHealth* health = nullptr;
};

// A worker whose kernel is told what to do through a mailbox.
class MailboxWorker final : public StreamWorker {
 public:
  MailboxWorker(const Kernel& kernel, Mailboxes& mailboxes, const Post& post)
      : kernel_(kernel), mailboxes_(mailboxes), post_(post), mailbox_(*post.mailbox) {}
  ~MailboxWorker() override;

  Status enqueue(void* stream, uint64_t work_bytes) override;
  bool reached() override;
  void submit(const LocalWork& work, uint64_t token) override;
  void poll(std::vector<uint64_t>* done) override;
  Status lost() const override { return kernel_.health->status(); }
  void leave() override;

 private:
  struct Out {
    uint64_t number;
    uint64_t token;
  };
  // What waits for room in the ring.
  struct Waiting {
    LocalWork work;
    std::vector<const void*> inputs;
    uint64_t token;
  };
  void post(const LocalWork& work, std::span<const void* const> inputs, uint64_t token);
  bool has_room() const;

  const Kernel kernel_;
  Mailboxes& mailboxes_;
  const Post post_;
  Mailbox& mailbox_;
  bool enqueued_ = false;
  void* stream_ = nullptr;  // where enqueued_
  uint64_t posted_ = 0;     // commands
  uint64_t next_tile_ = 0;  // of the launch
  std::vector<Out> out_;    // by falling age
  std::deque<Waiting> waiting_;
};

}  // namespace sennit::cuda
