// request_list.hpp: a doubly linked list of requests through MessageRequest::next and previous. A
// request is in one list at a time; the list owns nothing.
#pragma once

#include "transports/transport.hpp"

namespace sennit {

template <typename Request>
class RequestList {
 public:
  bool empty() const { return first_ == nullptr; }
  Request* front() const { return static_cast<Request*>(first_); }
  static Request* after(const Request* request) { return static_cast<Request*>(request->next); }
  void push_back(Request& request) {
    request.next = nullptr;
    request.previous = last_;
    (last_ ? last_->next : first_) = &request;
    last_ = &request;
  }
  void push_front(Request& request) {
    request.previous = nullptr;
    request.next = first_;
    (first_ ? first_->previous : last_) = &request;
    first_ = &request;
  }
  void remove(Request& request) {
    (request.previous ? request.previous->next : first_) = request.next;
    (request.next ? request.next->previous : last_) = request.previous;
    request.next = request.previous = nullptr;
  }
  // Takes out all for which `which(request)` holds, and calls `taken(request)` on each.
  template <typename Which, typename Taken>
  void take_if(Which which, Taken taken) {
    for (Request* request = front(); request;) {
      Request* const next = after(request);
      if (which(*request)) {
        remove(*request);
        taken(*request);
      }
      request = next;
    }
  }

 private:
  MessageRequest* first_ = nullptr;
  MessageRequest* last_ = nullptr;
};

}  // namespace sennit
