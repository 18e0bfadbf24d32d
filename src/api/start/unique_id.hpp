// unique_id.hpp: a job out of an id of 128 bytes that one process makes and the program hands to
// all ranks: address, port, job number, secret, checksum. Who makes it need not be rank 0, nor in
// the job, but has to live until all ranks have found rank 0.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "control/control_plane.hpp"

namespace sennit {

// Time-outs, SENNIT_INSECURE, SENNIT_INTERFACE and SENNIT_WIRE from the environment; the rest is
// left at its default.
BootstrapOptions bootstrap_defaults();

// This process listens at the id's port from now on: until rank 0 of its job, in this process,
// takes it over, or all ranks were sent on to one elsewhere, or nobody came for ten times
// SENNIT_ARRIVAL_TIMEOUT.
Result<std::vector<std::byte>> make_unique_id();
// Where all ranks know an address of rank 0's: each may make the same id by itself, which serves
// one job after the other. "host:port"; needs SENNIT_SECRET. Errors: no such address, none is set.
Result<std::vector<std::byte>> make_unique_id_at(const std::string& address);
// Rank 0's blocks where another process made the id, until that has answered. Errors: an id that is
// damaged or in use already, a maker that has ended.
Result<BootstrapOptions> options_from_unique_id(std::span<const std::byte> id, int rank, int size,
                                                Interruption interruption = {});
// No rank will come with it: closes its port, where it was made here and is not in use. An error
// where it is damaged.
Status forget_unique_id(std::span<const std::byte> id);
// For an id that a launcher carried to all its processes: it serves all their jobs, one after the
// other or side by side, and the port stays this process's for as long as it lives.
Result<BootstrapOptions> options_from_launch_id(std::span<const std::byte> id, int rank, int size);

}  // namespace sennit
