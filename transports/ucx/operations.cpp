// operations.cpp: see transports/ucx/operations.hpp.
#include "transports/ucx/operations.hpp"

namespace sennit::ucx {
namespace {

// What UCX wants to know about memory: one piece, or a list that stays in the operation.
struct MemoryDescription {
  void* buffer = nullptr;
  size_t count = 0;
};

MemoryDescription describe(std::span<const Segment> segments, PendingOperation& operation,
                           ucp_request_param_t& param) {
  for (const Segment& segment : segments)
    if (segment.bytes > 0) operation.iov.push_back({segment.data, segment.bytes});
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  if (operation.iov.size() > 1) {
    param.datatype = ucp_dt_make_iov();
    return {operation.iov.data(), operation.iov.size()};
  }
  param.datatype = ucp_dt_make_contig(1);
  if (operation.iov.empty()) return {};
  return {operation.iov[0].buffer, operation.iov[0].length};
}

}  // namespace

PendingOperation& Operations::begin(RemoteWorker& peer) {
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  PendingOperation& operation = *free_.back();
  free_.pop_back();
  operation.owner = this;
  operation.peer = &peer;
  operation.send = nullptr;
  operation.recv = nullptr;
  operation.iov.clear();
  operation.doomed = Status();
  operation.active = true;
  return operation;
}

void Operations::send(PendingOperation& operation, ucp_ep_h endpoint,
                      std::span<const Segment> segments, bool eager) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = on_sent;
  param.user_data = &operation;
  param.flags = eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  const MemoryDescription memory = describe(segments, operation, param);
  started(operation,
          worker_.library().am_send_nbx(endpoint, kActiveMessageId, &operation.header,
                                        sizeof(Header), memory.buffer, memory.count, &param));
}

void Operations::receive(PendingOperation& operation, std::span<const Segment> segments,
                         void* descriptor) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_received;
  param.user_data = &operation;
  const MemoryDescription memory = describe(segments, operation, param);
  started(operation, worker_.library().am_recv_data_nbx(worker_.get(), descriptor, memory.buffer,
                                                        memory.count, &param));
}

void Operations::started(PendingOperation& operation, ucs_status_ptr_t result) {
  if (result == nullptr)
    ended(operation, UCS_OK);
  else if (UCS_PTR_IS_ERR(result))
    ended(operation, UCS_PTR_STATUS(result));
}

void Operations::ended(PendingOperation& operation, ucs_status_t status) {
  operation.active = false;
  free_.push_back(&operation);
  handler_.on_ended(operation, status);
}

void Operations::on_sent(void* request, ucs_status_t status, void* operation) {
  auto& over = *static_cast<PendingOperation*>(operation);
  over.owner->worker_.library().request_free(request);
  over.owner->ended(over, status);
}

void Operations::on_received(void* request, ucs_status_t status, size_t, void* operation) {
  on_sent(request, status, operation);
}

}  // namespace sennit::ucx
