// trials.hpp: how many random trials a test makes: n; under a sanitizer, whose builds take ten
// times the time a trial, a fifth, of every kind of input. Tests that ask kSanitized say what they
// leave out.
#pragma once

namespace sennit_test {

#ifdef SENNIT_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

constexpr int trials(int n) { return kSanitized ? (n + 4) / 5 : n; }

}  // namespace sennit_test
