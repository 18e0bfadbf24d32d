// c_api_collectives.cpp: the collectives of the C interface; each fills a Call and submits it.
#include <fmt/core.h>

#include "api/c_api.hpp"

namespace sennit {
namespace {

// A Call with what nearly all have; an unknown type is caught here, before it is converted.
struct Builder {
  Call call;
  bool bad_type = false;
  int type;

  Builder(Collective collective, const void* send, void* recv, size_t count, sennit_type_t t)
      : bad_type(t < 0 || t >= SENNIT_TYPE_COUNT), type(static_cast<int>(t)) {
    call.collective = collective;
    call.send = send;
    call.recv = recv;
    call.count = count;
    if (!bad_type) call.type = static_cast<DataType>(t);
  }
  Builder& op(sennit_op_t op) {
    call.op = static_cast<int>(op);
    return *this;
  }
  Builder& root(int root) {
    call.root = root;
    return *this;
  }
  Builder& tag(int tag) {
    call.tag = tag;
    return *this;
  }
  Builder& receiving() {
    call.receiving = true;
    return *this;
  }
  Builder& blocks(const size_t* counts, const size_t* displacements) {
    call.vector_variant = true;
    call.counts = counts;
    call.displacements = displacements;
    return *this;
  }
  Builder& recv_blocks(const size_t* counts, const size_t* displacements) {
    call.recv_counts = counts;
    call.recv_displacements = displacements;
    return *this;
  }
  sennit_status_t submit(sennit_comm_t comm, sennit_work_t* work) const {
    if (bad_type) return refuse(invalid(fmt::format("type {}: not a sennit_type_t", type)));
    return sennit::submit(comm, call, work);
  }
  sennit_status_t start(sennit_comm_t comm, sennit_work_t* work) const {
    if (!work) return refuse(invalid("work is NULL: a nonblocking call returns its handle there"));
    *work = nullptr;
    return submit(comm, work);
  }
};

}  // namespace
}  // namespace sennit

using namespace sennit;  // NOLINT: the functions below are the library's

extern "C" {

sennit_status_t sennit_all_reduce(const void* send, void* recv, size_t count, sennit_type_t type,
                                  sennit_op_t op, sennit_comm_t comm) {
  return Builder(Collective::all_reduce, send, recv, count, type).op(op).submit(comm, nullptr);
}
sennit_status_t sennit_all_reduce_start(const void* send, void* recv, size_t count,
                                        sennit_type_t type, sennit_op_t op, sennit_comm_t comm,
                                        sennit_work_t* work) {
  return Builder(Collective::all_reduce, send, recv, count, type).op(op).start(comm, work);
}

sennit_status_t sennit_reduce_scatter(const void* send, void* recv, size_t count,
                                      sennit_type_t type, sennit_op_t op, sennit_comm_t comm) {
  return Builder(Collective::reduce_scatter, send, recv, count, type).op(op).submit(comm, nullptr);
}
sennit_status_t sennit_reduce_scatter_start(const void* send, void* recv, size_t count,
                                            sennit_type_t type, sennit_op_t op, sennit_comm_t comm,
                                            sennit_work_t* work) {
  return Builder(Collective::reduce_scatter, send, recv, count, type).op(op).start(comm, work);
}

sennit_status_t sennit_all_gather(const void* send, void* recv, size_t count, sennit_type_t type,
                                  sennit_comm_t comm) {
  return Builder(Collective::all_gather, send, recv, count, type).submit(comm, nullptr);
}
sennit_status_t sennit_all_gather_start(const void* send, void* recv, size_t count,
                                        sennit_type_t type, sennit_comm_t comm,
                                        sennit_work_t* work) {
  return Builder(Collective::all_gather, send, recv, count, type).start(comm, work);
}

sennit_status_t sennit_broadcast(const void* send, void* recv, size_t count, sennit_type_t type,
                                 int root, sennit_comm_t comm) {
  return Builder(Collective::broadcast, send, recv, count, type).root(root).submit(comm, nullptr);
}
sennit_status_t sennit_broadcast_start(const void* send, void* recv, size_t count,
                                       sennit_type_t type, int root, sennit_comm_t comm,
                                       sennit_work_t* work) {
  return Builder(Collective::broadcast, send, recv, count, type).root(root).start(comm, work);
}

sennit_status_t sennit_reduce(const void* send, void* recv, size_t count, sennit_type_t type,
                              sennit_op_t op, int root, sennit_comm_t comm) {
  return Builder(Collective::reduce, send, recv, count, type)
      .op(op)
      .root(root)
      .submit(comm, nullptr);
}
sennit_status_t sennit_reduce_start(const void* send, void* recv, size_t count, sennit_type_t type,
                                    sennit_op_t op, int root, sennit_comm_t comm,
                                    sennit_work_t* work) {
  return Builder(Collective::reduce, send, recv, count, type).op(op).root(root).start(comm, work);
}

sennit_status_t sennit_gather(const void* send, void* recv, size_t count, sennit_type_t type,
                              int root, sennit_comm_t comm) {
  return Builder(Collective::gather, send, recv, count, type).root(root).submit(comm, nullptr);
}
sennit_status_t sennit_gather_start(const void* send, void* recv, size_t count, sennit_type_t type,
                                    int root, sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::gather, send, recv, count, type).root(root).start(comm, work);
}

sennit_status_t sennit_scatter(const void* send, void* recv, size_t count, sennit_type_t type,
                               int root, sennit_comm_t comm) {
  return Builder(Collective::scatter, send, recv, count, type).root(root).submit(comm, nullptr);
}
sennit_status_t sennit_scatter_start(const void* send, void* recv, size_t count, sennit_type_t type,
                                     int root, sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::scatter, send, recv, count, type).root(root).start(comm, work);
}

sennit_status_t sennit_all_to_all(const void* send, void* recv, size_t count, sennit_type_t type,
                                  sennit_comm_t comm) {
  return Builder(Collective::all_to_all, send, recv, count, type).submit(comm, nullptr);
}
sennit_status_t sennit_all_to_all_start(const void* send, void* recv, size_t count,
                                        sennit_type_t type, sennit_comm_t comm,
                                        sennit_work_t* work) {
  return Builder(Collective::all_to_all, send, recv, count, type).start(comm, work);
}

sennit_status_t sennit_barrier(sennit_comm_t comm) {
  return Builder(Collective::barrier, nullptr, nullptr, 0, SENNIT_UINT8).submit(comm, nullptr);
}
sennit_status_t sennit_barrier_start(sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::barrier, nullptr, nullptr, 0, SENNIT_UINT8).start(comm, work);
}

sennit_status_t sennit_send(const void* send, size_t count, sennit_type_t type, int peer,
                            sennit_comm_t comm) {
  return Builder(Collective::send_recv, send, nullptr, count, type)
      .root(peer)
      .submit(comm, nullptr);
}
sennit_status_t sennit_send_start(const void* send, size_t count, sennit_type_t type, int peer,
                                  sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::send_recv, send, nullptr, count, type).root(peer).start(comm, work);
}

sennit_status_t sennit_recv(void* recv, size_t count, sennit_type_t type, int peer,
                            sennit_comm_t comm) {
  return Builder(Collective::send_recv, nullptr, recv, count, type)
      .root(peer)
      .receiving()
      .submit(comm, nullptr);
}
sennit_status_t sennit_recv_start(void* recv, size_t count, sennit_type_t type, int peer,
                                  sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::send_recv, nullptr, recv, count, type)
      .root(peer)
      .receiving()
      .start(comm, work);
}

sennit_status_t sennit_send_tagged(const void* send, size_t count, sennit_type_t type, int peer,
                                   int tag, sennit_comm_t comm) {
  return Builder(Collective::send_recv, send, nullptr, count, type)
      .root(peer)
      .tag(tag)
      .submit(comm, nullptr);
}
sennit_status_t sennit_send_tagged_start(const void* send, size_t count, sennit_type_t type,
                                         int peer, int tag, sennit_comm_t comm,
                                         sennit_work_t* work) {
  return Builder(Collective::send_recv, send, nullptr, count, type)
      .root(peer)
      .tag(tag)
      .start(comm, work);
}

sennit_status_t sennit_recv_tagged(void* recv, size_t count, sennit_type_t type, int peer, int tag,
                                   sennit_comm_t comm, int* source) {
  Builder builder(Collective::send_recv, nullptr, recv, count, type);
  builder.root(peer).tag(tag).receiving();
  if (source == nullptr || peer != SENNIT_ANY_SOURCE) {
    const sennit_status_t status = builder.submit(comm, nullptr);
    if (source != nullptr && status == SENNIT_OK) *source = peer;
    return status;
  }
  if (sennit::in_group())
    return refuse(
        invalid("recv from any source: the source is not known within a group; call "
                "sennit_recv_tagged_start and, after the group, sennit_work_source"));
  sennit_work_t work = nullptr;
  sennit_status_t status = builder.start(comm, &work);
  if (status != SENNIT_OK) return status;
  status = sennit_work_wait(work, -1);
  if (status == SENNIT_OK) sennit_work_source(work, source);
  sennit_work_free(work);
  return status;
}
sennit_status_t sennit_recv_tagged_start(void* recv, size_t count, sennit_type_t type, int peer,
                                         int tag, sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::send_recv, nullptr, recv, count, type)
      .root(peer)
      .tag(tag)
      .receiving()
      .start(comm, work);
}

sennit_status_t sennit_all_gather_v(const void* send, void* recv, const size_t counts[],
                                    const size_t displacements[], sennit_type_t type,
                                    sennit_comm_t comm) {
  return Builder(Collective::all_gather, send, recv, 0, type)
      .blocks(counts, displacements)
      .submit(comm, nullptr);
}
sennit_status_t sennit_all_gather_v_start(const void* send, void* recv, const size_t counts[],
                                          const size_t displacements[], sennit_type_t type,
                                          sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::all_gather, send, recv, 0, type)
      .blocks(counts, displacements)
      .start(comm, work);
}

sennit_status_t sennit_reduce_scatter_v(const void* send, void* recv, const size_t counts[],
                                        sennit_type_t type, sennit_op_t op, sennit_comm_t comm) {
  return Builder(Collective::reduce_scatter, send, recv, 0, type)
      .blocks(counts, nullptr)
      .op(op)
      .submit(comm, nullptr);
}
sennit_status_t sennit_reduce_scatter_v_start(const void* send, void* recv, const size_t counts[],
                                              sennit_type_t type, sennit_op_t op,
                                              sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::reduce_scatter, send, recv, 0, type)
      .blocks(counts, nullptr)
      .op(op)
      .start(comm, work);
}

sennit_status_t sennit_gather_v(const void* send, void* recv, const size_t counts[],
                                const size_t displacements[], sennit_type_t type, int root,
                                sennit_comm_t comm) {
  return Builder(Collective::gather, send, recv, 0, type)
      .blocks(counts, displacements)
      .root(root)
      .submit(comm, nullptr);
}
sennit_status_t sennit_gather_v_start(const void* send, void* recv, const size_t counts[],
                                      const size_t displacements[], sennit_type_t type, int root,
                                      sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::gather, send, recv, 0, type)
      .blocks(counts, displacements)
      .root(root)
      .start(comm, work);
}

sennit_status_t sennit_scatter_v(const void* send, void* recv, const size_t counts[],
                                 const size_t displacements[], sennit_type_t type, int root,
                                 sennit_comm_t comm) {
  return Builder(Collective::scatter, send, recv, 0, type)
      .blocks(counts, displacements)
      .root(root)
      .submit(comm, nullptr);
}
sennit_status_t sennit_scatter_v_start(const void* send, void* recv, const size_t counts[],
                                       const size_t displacements[], sennit_type_t type, int root,
                                       sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::scatter, send, recv, 0, type)
      .blocks(counts, displacements)
      .root(root)
      .start(comm, work);
}

sennit_status_t sennit_all_to_all_v(const void* send, const size_t send_counts[],
                                    const size_t send_displacements[], void* recv,
                                    const size_t recv_counts[], const size_t recv_displacements[],
                                    sennit_type_t type, sennit_comm_t comm) {
  return Builder(Collective::all_to_all, send, recv, 0, type)
      .blocks(send_counts, send_displacements)
      .recv_blocks(recv_counts, recv_displacements)
      .submit(comm, nullptr);
}
sennit_status_t sennit_all_to_all_v_start(const void* send, const size_t send_counts[],
                                          const size_t send_displacements[], void* recv,
                                          const size_t recv_counts[],
                                          const size_t recv_displacements[], sennit_type_t type,
                                          sennit_comm_t comm, sennit_work_t* work) {
  return Builder(Collective::all_to_all, send, recv, 0, type)
      .blocks(send_counts, send_displacements)
      .recv_blocks(recv_counts, recv_displacements)
      .start(comm, work);
}

}  // extern "C"
