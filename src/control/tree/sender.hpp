// sender.hpp: the two ways that news take in the tree. Control thread only.
#pragma once

#include "control/frame.hpp"

namespace sennit::control {

class Sender {
 public:
  virtual ~Sender() = default;
  // To the parent. False: there is none at the moment.
  virtual bool send_up(const EncodedFrame& frame) = 0;
  // To all children but the one on channel `except`.
  virtual void flood_down(const EncodedFrame& frame, uint64_t except = 0) = 0;
};

}  // namespace sennit::control
