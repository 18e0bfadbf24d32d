// message_cost.hpp: what a message between processes of one machine costs its cores.
//
// Where ranks share cores and do not share memory (containers, namespaces), a small collective
// takes as long as cores need for all of its messages. That differs between machines by a factor of
// four, most of it the wake-up of the other process, which in a virtual machine may take a trip out
// of it. So it is measured, in about 10 ms, by rank 0 while the others wait; its machine stands for
// all.
#pragma once

#include <cstdint>

namespace sennit {

// Nanoseconds of a core for one small message over TCP, sender and receiver together: what two
// threads, each on a core of its own where this process may run on two, take to bounce one over the
// loopback interface, and half of that again for what it does not pass there (the transport,
// virtual links): which fits the 105 requests of tests/data/choices_slow.txt. The fastest of
// all bounces counts, on cores that are kept from sleeping: where other processes take turns on
// them, any few bounces in a row take milliseconds. 0: it cannot be measured here.
uint64_t measure_message_cpu_ns();

}  // namespace sennit
