// connections.hpp: what the kernel knows of the connections between a job's hosts (TCP_INFO, as the
// ranks recorded it), said of a link: whether segments are lost there, or whether an end is slow.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/job.hpp"

namespace sennit::diagnose {

// What a rank sends to a peer on another host.
struct Connection {
  int from = 0, to = 0;  // world ranks
  ConnectionRecord record;
};
// Of all ranks whose recordings are here, by sender.
std::vector<Connection> connections_of(const JobRecording& job);

// What is said in favour of a verdict on a link, and what it rules out.
struct KernelView {
  std::vector<std::string> evidence, ruled_out;
};
// By what was counted lately on the connections whose data crosses the link, beside the others.
// `where`: "out of rack1", as links are named. Nothing where none that was used crosses it. Where
// much more is lost elsewhere, that is told as well.
KernelView kernel_view(const JobRecording& job, const std::vector<Connection>& connections,
                       const std::function<bool(const Connection&)>& crosses,
                       const std::string& where);
// The same of all connections between hosts, where no link is to blame: many segments that were
// sent again are worth a word all the same.
KernelView kernel_view_of_all(const JobRecording& job, const std::vector<Connection>& connections);

}  // namespace sennit::diagnose
