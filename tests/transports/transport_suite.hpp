// transport_suite.hpp: the fixture of the transports family's conformance suite: a world of ranks
// over one registered transport, made by MAKE_WORLD in every test, and the list of transports to
// run over.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/usable_transports.hpp"
#include "tests/transports/transport_harness.hpp"

namespace sennit::test {

inline constexpr size_t kEager = 8192;

// Its parameter is one of transport_names().
class TransportTest : public testing::TestWithParam<std::string> {
 protected:
  void make(int size) {
    world_ = std::make_unique<World>(GetParam(), size, kEager);
    if (!world_->ok()) GTEST_SKIP() << world_->why_not();
  }
  World& world() { return *world_; }

  std::unique_ptr<World> world_;
};

// At the start of a test: the world, or skips the test.
#define MAKE_WORLD(size) \
  make(size);            \
  if (IsSkipped()) return

// The registered transports; the first and the last of them also behind a delay, and sealed what
// can be.
inline std::vector<std::string> transport_names() {
  std::vector<std::string> out, sealed;
  for (const TransportFactory& factory : transports()) {
    out.emplace_back(factory.name);
    if (sennit_test::can_be_sealed(factory.name)) sealed.push_back(out.back() + "+sealed");
  }
  for (const std::string& name : {out.front(), out.back()}) out.push_back(name + "+delay");
  out.insert(out.end(), sealed.begin(), sealed.end());
  return out;
}

// The parameter in a test's name, where no '+' may stand.
inline std::string test_name(const testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

#define SENNIT_ON_EVERY_TRANSPORT(Suite) \
  INSTANTIATE_TEST_SUITE_P(Every, Suite, testing::ValuesIn(transport_names()), test_name)

}  // namespace sennit::test
