// noting_control.hpp: a control plane without a job, for what is tested alone: it only notes what
// it is told.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "control/control_plane.hpp"

namespace sennit_test {

// Of one of four ranks.
class NotingControl : public sennit::Control {
 public:
  explicit NotingControl(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 4; }
  uint64_t job() const override { return 0; }
  const std::vector<std::byte>& secret() const override { return secret_; }
  bool sealed() const override { return false; }
  std::string interface_address() const override { return ""; }
  sennit::Result<std::vector<std::vector<std::byte>>> all_gather(
      std::span<const std::byte>) override {
    return sennit::invalid("not asked for here");
  }
  sennit::Result<std::vector<std::byte>> broadcast(std::span<const std::byte>) override {
    return sennit::invalid("not asked for here");
  }
  void report_suspect(int, const std::string&) override {}
  void report_stall(const sennit::CallDescriptor&) override {}
  void expire(const sennit::CallDescriptor&, int64_t) override {}
  void report_mismatch(const sennit::CallDescriptor&, int) override {}
  void abort(uint32_t comm, const std::string& why) override {
    told += "abort " + std::to_string(comm) + " " + why + "; ";
  }
  void fail(uint32_t comm, const sennit::Status& status) override {
    told += "fail " + std::to_string(comm) + " " + status.text() + "; ";
  }
  void tell(uint8_t, std::vector<std::byte>, MayWait) override {}
  void announce(uint8_t, uint64_t, std::vector<std::byte>) override {}
  void leave() override {}
  std::string statistics() const override { return ""; }

  std::string told;

 private:
  const int rank_;
  std::vector<std::byte> secret_;
};

}  // namespace sennit_test
