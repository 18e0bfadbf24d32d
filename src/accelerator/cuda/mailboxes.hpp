// mailboxes.hpp: the mailboxes of one device, and the workers that talk through them.
//
// A mailbox is out from the moment a worker gets it until the kernel of its launch has ended, which
// the kernel itself says. So a stream that is stuck keeps its mailbox, and whoever gave up on it
// goes on. Mailboxes are never freed: a kernel that comes late still finds its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/block_shares.hpp"
#include "accelerator/cuda/device_health.hpp"
#include "accelerator/cuda/driver.hpp"
#include "accelerator/cuda/kernels_out.hpp"
#include "accelerator/cuda/mailbox.hpp"
#include "accelerator/cuda/stream_owners.hpp"
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
  // With the number of its latest launch: it is out until that has ended, or, of a graph, until
  // `gone` says that there will be none any more.
  using Gone = std::shared_ptr<const std::atomic<bool>>;
  void give_back(const Post& post, Gone gone = nullptr) SENNIT_EXCLUDES(mutex_);
  // Whether the kernels of all mailboxes that were given back end by themselves: none is in a
  // stream that has not come to it, or in a graph.
  bool none_is_stuck() SENNIT_EXCLUDES(mutex_);

 private:
  void collect() SENNIT_REQUIRES(mutex_);
  Result<std::vector<Post>> make_more() const;

  const Driver& driver_;
  const Stream stream_;
  Mutex mutex_;
  std::vector<Post> idle_ SENNIT_GUARDED_BY(mutex_);
  struct Leaving {
    Post post;
    Gone gone;
  };
  std::deque<Leaving> leaving_ SENNIT_GUARDED_BY(mutex_);
};

// What the kernel is started with.
struct Kernel {
  const Driver* driver = nullptr;
  Context context = nullptr;
  Function function = nullptr;
  unsigned most_blocks = 1;       // of a call
  BlockShares* shares = nullptr;  // of the device's calls
  StreamOwners* owners = nullptr;
  KernelsOut* kernels = nullptr;
  DeviceHealth* health = nullptr;
};

// A worker whose kernel is told what to do through a mailbox.
class MailboxWorker : public StreamWorker {
 public:
  MailboxWorker(const Kernel& kernel, Mailboxes& mailboxes, const Post& post,
                const StreamOwner& owner)
      : kernel_(kernel),
        mailboxes_(mailboxes),
        post_(post),
        owner_(owner),
        mailbox_(*post.mailbox) {}

  void submit(const LocalWork& work, uint64_t token) override;
  void poll(std::vector<uint64_t>* done) override;
  Status lost() const override { return kernel_.health->status(); }

 protected:
  // Puts the kernel into the stream. `number`: of the launch, or kInGraph. `capture`: the number of
  // that which the stream is being captured into, or 0.
  Status launch(void* stream, uint64_t work_bytes, uint64_t number, uint64_t capture);
  // Whether there was a launch: it is not in the stream any more.
  bool leave_stream();
  bool launch_is_reached() const;
  void let_go(uint64_t number);  // launches up to this one end
  void clear();                  // for the next launch, which was reached

  const Kernel kernel_;
  Mailboxes& mailboxes_;
  Post post_;

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

  const StreamOwner owner_;
  Mailbox& mailbox_;
  bool enqueued_ = false;
  SharedStream stream_;     // where enqueued_
  uint64_t posted_ = 0;     // commands
  uint64_t next_tile_ = 0;  // of the launch
  std::vector<Out> out_;    // by falling age
  std::deque<Waiting> waiting_;
};

// Of a call, or of a group of calls, that is made once.
class CallWorker final : public MailboxWorker {
 public:
  using MailboxWorker::MailboxWorker;
  ~CallWorker() override;
  Status enqueue(void* stream, uint64_t work_bytes) override;
  bool reached() override { return launch_is_reached(); }
  bool over() const override { return false; }
  void leave() override { let_go(post_.launch); }
  void retire() override {}
};

// Of a place in a graph, which may be launched any number of times, one after the other. The graph
// keeps what tells whether it is gone.
class GraphWorker final : public MailboxWorker {
 public:
  GraphWorker(const Kernel& kernel, Mailboxes& mailboxes, const Post& post,
              const StreamOwner& owner)
      : MailboxWorker(kernel, mailboxes, post, owner) {
    kernel_.kernels->graph_made();
  }
  ~GraphWorker() override;
  Status enqueue(void* stream, uint64_t work_bytes) override;
  bool reached() override;
  bool over() const override { return gone_->load(std::memory_order_acquire); }
  void leave() override;
  void retire() override { let_go(UINT64_MAX); }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  Status keep_in_graph(void* stream, uint64_t* capture);

  const Flag gone_ = std::make_shared<std::atomic<bool>>(false);
  bool kept_ = false;  // a graph has that flag
};

}  // namespace sennit::cuda
