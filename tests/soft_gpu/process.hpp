// process.hpp: what the software GPU knows of its process: whether the driver is ready, how often
// it was called, whether a device has broken, and where its chance comes from.
#pragma once

#include <cstdint>
#include <string>

namespace soft_gpu {

// Numbers of CUresult.
inline constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                     kInvalidDevice = 101, kInvalidContext = 201, kInvalidHandle = 400,
                     kNotFound = 500, kNotReady = 600, kIllegalAddress = 700, kNoBinary = 209,
                     kPeerAccessUnsupported = 217, kPeerAccessAlreadyEnabled = 704,
                     kContextIsDestroyed = 709, kAlreadyRegistered = 712, kNotRegistered = 713,
                     kNotPermitted = 800, kCaptureUnsupported = 900, kCaptureInvalid = 901,
                     kCaptureUnjoined = 904, kCaptureIsolation = 905, kCaptureImplicit = 906;

// How the devices are too old, as SOFT_GPU_OLD says; 0: they are not.
int oldness();
// Makes the driver ready, the first time.
void initialize();
// Each call of the driver begins with it: counts the call, and says why it fails at once, or 0.
int enter();
// The same for a call that works also before cuInit and on a broken device.
void count_call();

// Memory is taken or registered.
void count_allocation();

// A kernel did what no device survives: says so, and every later call fails.
void break_device(const std::string& why);
bool broken();
// 0, or kIllegalAddress: what a call that has waited for a device returns.
int device_error();

// While one lives, this thread runs a function of the program's in a stream, which may not call.
class HostFunction {
 public:
  HostFunction();
  ~HostFunction();
};

// While one lives, a kernel runs that reads memory of the program's. When the process exits it
// stays in goes_on() for good, because that memory's time is over then.
class RunningKernel {
 public:
  RunningKernel();
  ~RunningKernel();
  bool goes_on();  // false: the device has broken
};

// Chance for one stream, from the process's seed.
class Dice {
 public:
  explicit Dice(uint64_t index);
  uint64_t below(uint64_t bound);
  void sleep_below(uint64_t microseconds);

 private:
  uint64_t state_;
};

}  // namespace soft_gpu
