// late_transfers.hpp: a communicator whose transfers are as late as
// trainer/parallel/communication.hpp allows.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {

// The memory of one transfer; its data go by way of copies.
struct LateData {
  const char* send = nullptr;
  char* receive = nullptr;
  std::vector<char> sent, received;

  LateData(const void* from, size_t send_bytes, void* to, size_t receive_bytes)
      : send(static_cast<const char*>(from)),
        receive(static_cast<char*>(to)),
        sent(send, send + send_bytes),
        received(receive_bytes) {}
  // In place: the whole of what is sent lies in what is received, or the other way round.
  bool sends(size_t byte) const {
    return receive + byte >= send && receive + byte < send + sent.size() &&
           sent.size() < received.size();
  }
  bool receives(size_t byte) const {
    return send + byte >= receive && send + byte < receive + received.size() &&
           received.size() <= sent.size();
  }
  void hide() {
    for (size_t i = 0; i < received.size(); i++)
      if (!sends(i)) receive[i] = -1;
  }
  void deliver() {
    bool as_it_was = true;
    for (size_t i = 0; i < sent.size(); i++) as_it_was &= receives(i) || send[i] == sent[i];
    EXPECT_TRUE(as_it_was) << "what is sent was written to before its transfer had ended";
    bool untouched = true;
    for (size_t i = 0; i < received.size(); i++) untouched &= sends(i) || receive[i] == -1;
    EXPECT_TRUE(untouched) << "what is received was written to before its transfer had ended";
    std::copy(received.begin(), received.end(), receive);
  }
};

// Another communicator, whose transfers go by way of copies. What is received is there when
// wait() comes back and no sooner: until then its memory is full of NaNs. What is sent must stay
// as it is until then. test() never sees anything complete. The test fails where a caller does
// not keep to that.
class LateCommunicator final : public Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> adopt(sennit_comm_t handle, Traffic* traffic) {
    const auto beneath = std::make_shared<Traffic>();
    return wrap(adopt_sennit(handle, beneath.get()), beneath, traffic);
  }
  Result<int> fabric_position() override { return inner_->fabric_position(); }
  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    return wrap(inner_->split(color, key), beneath_, &traffic());
  }
  void abort() override { inner_->abort(); }

 protected:
  Started start_all_reduce(void* data, size_t count, Element element,
                           Reduction reduction) override {
    const size_t bytes = count * bytes_of(element);
    return start({data, bytes, data, bytes}, [&](LateData& late) {
      late.received = late.sent;
      return inner_->all_reduce(late.received.data(), count, element, reduction);
    });
  }
  Started start_reduce_scatter(const void* send, void* receive, size_t count,
                               Element element) override {
    const size_t bytes = count * bytes_of(element);
    return start({send, bytes * static_cast<size_t>(size()), receive, bytes}, [&](LateData& late) {
      return inner_->reduce_scatter(late.sent.data(), late.received.data(), count, element);
    });
  }
  Started start_all_gather(const void* send, void* receive, size_t count,
                           Element element) override {
    const size_t bytes = count * bytes_of(element);
    return start({send, bytes, receive, bytes * static_cast<size_t>(size())}, [&](LateData& late) {
      return inner_->all_gather(late.sent.data(), late.received.data(), count, element);
    });
  }
  Started start_broadcast(void* data, size_t bytes, int root) override {
    const size_t in = rank() == root ? bytes : 0;
    return start({data, in, data, bytes - in}, [&](LateData& late) {
      return inner_->broadcast(in > 0 ? late.sent.data() : late.received.data(), bytes, root);
    });
  }
  Started start_send(const void* data, size_t count, Element element, int peer) override {
    return start({data, count * bytes_of(element), nullptr, 0}, [&](LateData& late) {
      return inner_->send(late.sent.data(), count, element, peer);
    });
  }
  Started start_receive(void* data, size_t count, Element element, int peer) override {
    return start({nullptr, 0, data, count * bytes_of(element)}, [&](LateData& late) {
      return inner_->receive(late.received.data(), count, element, peer);
    });
  }

 private:
  class LateWork final : public Work {
   public:
    LateWork(LateData data, Traffic* beneath) : data_(std::move(data)), beneath_(beneath) {}
    template <typename Start>
    void start(Start start) {
      transfer_ = start(data_);
      data_.hide();
    }
    Result<bool> test() override { return false; }
    Status wait() override {
      transfer_.wait();
      data_.deliver();
      return beneath_->status();
    }

   private:
    LateData data_;
    Traffic* beneath_;
    Transfer transfer_;
  };

  LateCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Traffic> beneath,
                   Traffic* traffic)
      : Communicator(inner->rank(), inner->size(), traffic),
        beneath_(std::move(beneath)),
        inner_(std::move(inner)) {}
  static Result<std::unique_ptr<Communicator>> wrap(Result<std::unique_ptr<Communicator>> inner,
                                                    std::shared_ptr<Traffic> beneath,
                                                    Traffic* traffic) {
    if (!inner) return inner;
    return std::unique_ptr<Communicator>(
        new LateCommunicator(*std::move(inner), std::move(beneath), traffic));
  }
  template <typename Start>
  Started start(LateData data, Start start) {
    auto work = std::make_shared<LateWork>(std::move(data), beneath_.get());
    work->start(start);
    if (beneath_->failed()) return beneath_->status();
    return std::shared_ptr<Work>(std::move(work));
  }

  std::shared_ptr<Traffic> beneath_;  // of inner_, which is never told to wait by itself
  std::unique_ptr<Communicator> inner_;
};

}  // namespace sennit::trainer
