// backend_sennit.cpp: the trainer's communication on sennit's public interface.
//
// A rank that dies fails the communicators that it is a member of, and no others. What is said of a
// group's failure is therefore what the job's own communicator, which has all ranks, has failed
// with, if it has: a group that was aborted was aborted because of that.
#include "sennit/sennit.h"
#include "trainer/base/launcher.hpp"
#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {
namespace {

Status status_of(sennit_status_t status) {
  return status == SENNIT_OK ? Status() : Status(status, sennit_last_error());
}

sennit_type_t type_of(Element element) {
  switch (element) {
    case Element::f32:
      return SENNIT_FLOAT32;
    case Element::bf16:
      return SENNIT_BFLOAT16;
    case Element::f64:
      return SENNIT_FLOAT64;
    case Element::byte:
      return SENNIT_UINT8;
  }
  return SENNIT_UINT8;
}

// A communicator's handle. A group's keeps the job's open.
struct Handle {
  Handle(sennit_comm_t own, std::shared_ptr<Handle> all) : comm(own), job(std::move(all)) {}
  // Without waiting for the others: a rank that has failed must come to its end.
  ~Handle() { (void)sennit_comm_destroy(comm); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status job_status() const {
    return status_of(sennit_comm_get_async_error(job ? job->comm : comm));
  }
  Status explained(const Status& status) const {
    const Status of_job = status.ok() ? Status() : job_status();
    return of_job.ok() ? status : of_job;
  }

  const sennit_comm_t comm;
  const std::shared_ptr<Handle> job;  // none: this is it
};

class SennitWork : public Work {
 public:
  SennitWork(sennit_work_t handle, std::shared_ptr<Handle> group)
      : handle_(handle), group_(std::move(group)) {}
  ~SennitWork() override { (void)sennit_work_free(handle_); }
  SennitWork(const SennitWork&) = delete;
  SennitWork& operator=(const SennitWork&) = delete;
  Result<bool> test() override {
    const sennit_status_t status = sennit_work_test(handle_);
    if (status == SENNIT_IN_PROGRESS) return false;
    if (status != SENNIT_OK) return group_->explained(status_of(status));
    return true;
  }
  Status wait() override { return group_->explained(status_of(sennit_work_wait(handle_, -1))); }

 private:
  sennit_work_t handle_;
  std::shared_ptr<Handle> group_;
};

class SennitCommunicator : public Communicator {
 public:
  SennitCommunicator(std::shared_ptr<Handle> handle, int rank, int size, Traffic* traffic)
      : Communicator(rank, size, traffic), handle_(std::move(handle)) {}

  Result<int> fabric_position() override {
    int position = 0;
    const Status status = status_of(sennit_comm_fabric_position(handle_->comm, &position));
    if (!status.ok()) return status;
    return position;
  }
  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Status job_status() const override { return handle_->job_status(); }
  // Of what has failed already the library tells all its ranks itself, and why.
  void abort() override {
    if (sennit_comm_get_async_error(handle_->comm) == SENNIT_OK)
      (void)sennit_comm_abort(handle_->comm);
  }

 protected:
  Started start_all_reduce(void* data, size_t count, Element element,
                           Reduction reduction) override {
    sennit_work_t work = nullptr;
    const sennit_op_t op = reduction == Reduction::sum ? SENNIT_SUM : SENNIT_MAX;
    return started(
        sennit_all_reduce_start(data, data, count, type_of(element), op, handle_->comm, &work),
        &work);
  }
  Started start_reduce_scatter(const void* send, void* receive, size_t count,
                               Element element) override {
    sennit_work_t work = nullptr;
    return started(sennit_reduce_scatter_start(send, receive, count, type_of(element), SENNIT_SUM,
                                               handle_->comm, &work),
                   &work);
  }
  Started start_all_gather(const void* send, void* receive, size_t count,
                           Element element) override {
    sennit_work_t work = nullptr;
    return started(
        sennit_all_gather_start(send, receive, count, type_of(element), handle_->comm, &work),
        &work);
  }
  Started start_broadcast(void* data, size_t bytes, int root) override {
    sennit_work_t work = nullptr;
    return started(
        sennit_broadcast_start(data, data, bytes, SENNIT_UINT8, root, handle_->comm, &work), &work);
  }
  Started start_send(const void* data, size_t count, Element element, int peer) override {
    sennit_work_t work = nullptr;
    return started(sennit_send_start(data, count, type_of(element), peer, handle_->comm, &work),
                   &work);
  }
  Started start_receive(void* data, size_t count, Element element, int peer) override {
    sennit_work_t work = nullptr;
    return started(sennit_recv_start(data, count, type_of(element), peer, handle_->comm, &work),
                   &work);
  }

 private:
  Started started(sennit_status_t status, const sennit_work_t* work) const {
    if (status != SENNIT_OK) return handle_->explained(status_of(status));
    return std::shared_ptr<Work>(std::make_shared<SennitWork>(*work, handle_));
  }
  const std::shared_ptr<Handle> handle_;
};

Result<std::unique_ptr<Communicator>> make_communicator(sennit_comm_t comm,
                                                        std::shared_ptr<Handle> job,
                                                        Traffic* traffic) {
  auto handle = std::make_shared<Handle>(comm, std::move(job));
  int rank = 0, size = 0;
  const Status of_rank = status_of(sennit_comm_rank(comm, &rank));
  if (!of_rank.ok()) return of_rank;
  const Status of_size = status_of(sennit_comm_size(comm, &size));
  if (!of_size.ok()) return of_size;
  return std::unique_ptr<Communicator>(
      std::make_unique<SennitCommunicator>(std::move(handle), rank, size, traffic));
}

Result<std::unique_ptr<Communicator>> SennitCommunicator::split(int color, int key) {
  sennit_comm_t part = nullptr;
  const Status status = status_of(sennit_comm_split(handle_->comm, color, key, &part));
  if (!status.ok()) return status;
  return make_communicator(part, handle_->job ? handle_->job : handle_, &traffic());
}

}  // namespace

Result<std::unique_ptr<Communicator>> adopt_sennit(sennit_comm_t handle, Traffic* traffic) {
  return make_communicator(handle, nullptr, traffic);
}

Result<std::unique_ptr<Communicator>> open_sennit(Traffic* traffic) {
  sennit_comm_t handle = nullptr;
  const Status status = status_of(launched() ? sennit_comm_init_env(&handle, nullptr)
                                             : sennit_comm_init_local(&handle, 1, nullptr));
  if (!status.ok()) return status;
  return adopt_sennit(handle, traffic);
}

}  // namespace sennit::trainer
