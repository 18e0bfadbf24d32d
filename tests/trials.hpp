// trials.hpp: how many random trials a test makes: n; under a sanitizer, whose builds take ten times the time
// a trial, a fifth. No test is left out there, and no kind of input.
#pragma once

namespace sennit_test {

constexpr int trials(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (n + 4) / 5;
#else
  return n;
#endif
}

}  // namespace sennit_test
