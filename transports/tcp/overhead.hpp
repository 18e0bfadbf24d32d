// overhead.hpp: how much of a network's rate is payload, where messages go over TCP, and what a
// message adds.
//
// Rates of links are those of the wire; every packet of an interface's MTU carries headers of IP
// and TCP (with timestamps) inside, and an Ethernet frame around it. What a frame counts on a wire
// in memory is less: no preamble, gap or checksum.
#pragma once

#include <cstdint>
#include <string>

namespace sennit {

// In thousandths, 1 to 1000; `in_memory`: virtual interfaces of one machine.
uint64_t tcp_payload_permille(int mtu, bool in_memory);

// What a message costs there beside its payload: the transport's own header, and those of a packet
// of its own.
uint64_t tcp_message_bytes(bool in_memory, bool sealed = false);

// Of the interface that has this numeric address; 1500 where that cannot be told.
int mtu_of(const std::string& address);

}  // namespace sennit
