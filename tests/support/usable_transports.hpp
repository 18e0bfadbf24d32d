// usable_transports.hpp: the registered transports by what they say of themselves, and which of
// them can work on this machine.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "transports/transport.hpp"

namespace sennit_test {

// Throws std::invalid_argument where none is registered under that name.
inline const sennit::TransportFactory& transport_named(std::string_view name) {
  std::string all;
  for (const sennit::TransportFactory& factory : sennit::transports()) {
    if (factory.name == name) return factory;
    all += " " + std::string(factory.name);
  }
  throw std::invalid_argument("transport " + std::string(name) + ": expected of" + all);
}

// Its ranks are threads of one process.
inline bool within_one_process(std::string_view name) {
  return transport_named(name).farthest == sennit::Reach::same_process;
}

// What SENNIT_WIRE=sealed changes something for.
inline bool can_be_sealed(std::string_view name) {
  const sennit::TransportFactory& factory = transport_named(name);
  return factory.farthest == sennit::Reach::network && factory.keeps_secrets;
}

// Whether an instance can be made here. In a child process, since there are transports that work on
// one side of a fork only.
inline bool works_here(const sennit::TransportFactory& factory) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    sennit::TransportContext context;
    context.secret.assign(32, std::byte{0x5e});
    context.host_interface = "127.0.0.1";
    context.asked_for = true;
    const bool made = factory.make(context).ok();
    _exit(made ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The names of all that work here, by falling priority.
inline std::vector<std::string> usable_transports() {
  std::vector<std::string> names;
  for (const sennit::TransportFactory& factory : sennit::transports())
    if (works_here(factory)) names.emplace_back(factory.name);
  return names;
}

}  // namespace sennit_test
