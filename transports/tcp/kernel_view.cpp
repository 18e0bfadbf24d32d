// kernel_view.cpp: see transports/tcp/kernel_view.hpp.
#include "transports/tcp/kernel_view.hpp"

// Not <netinet/tcp.h>: the C library's own description ends before most of what is asked for here.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.hpp"

namespace sennit::tcp {

void KernelView::add(int peer, int fd) {
  const MutexLock lock(mutex_);
  sockets_[peer] = fd;
}

void KernelView::remove(int peer) {
  const MutexLock lock(mutex_);
  sockets_.erase(peer);
}

std::vector<ConnectionStatistics> KernelView::read() const {
  std::vector<ConnectionStatistics> all;
  for (int next = 0;;) {
    const MutexLock lock(mutex_);
    const auto socket = sockets_.lower_bound(next);
    if (socket == sockets_.end()) return all;
    all.push_back(kernel_statistics(socket->first, socket->second));
    next = socket->first + 1;
  }
}

ConnectionStatistics kernel_statistics(int peer, int fd) {
  ConnectionStatistics statistics;
  statistics.peer = peer;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return statistics;
  constexpr uint32_t kNoRtt = ~0u;  // as the kernel has it before the first
  statistics.least_rtt_us = info.tcpi_min_rtt == kNoRtt ? 0 : info.tcpi_min_rtt;
  statistics.smoothed_rtt_us = info.tcpi_rtt;
  statistics.application_limited = info.tcpi_delivery_rate_app_limited;
  statistics.delivered_bytes_per_s = info.tcpi_delivery_rate;
  statistics.counters = {now_ns(),
                         info.tcpi_busy_time,
                         info.tcpi_rwnd_limited,
                         info.tcpi_sndbuf_limited,
                         info.tcpi_data_segs_out,
                         info.tcpi_total_retrans,
                         info.tcpi_bytes_sent,
                         info.tcpi_bytes_retrans};
  return statistics;
}

}  // namespace sennit::tcp
