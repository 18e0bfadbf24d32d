// nccl_client_test.cpp: a program that was built for NCCL, with NVIDIA's header where there is one,
// has on 8 ranks the bits of sennit's own interface: as threads, as processes, and over tcp between
// emulated hosts; and the same on memory of the software GPU.
// ctest quiet: it builds network namespaces
// ctest compiles: src/nccl/numbers.cpp
// ctest runs: nccl_real_client sennit_nccl sennit_command soft_gpu
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nccl/numbers.hpp"
#include "tests/nccl/client_sums.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace {

using client::kCount;
using client::kRoot;
using client::line;
using client::name;
using Bytes = std::vector<std::byte>;

constexpr int kRanks = 8;
// A sanitizer opens libraries in the program's name, which knows nothing of the forwarder's path.
#ifdef SENNIT_SANITIZED
const std::string kLibraries = SENNIT_BINARY_DIR "/lib:";
#else
const std::string kLibraries;
#endif
const std::string kClient = "env LD_LIBRARY_PATH=" + kLibraries +
                            SENNIT_BINARY_DIR "/soft_gpu " SENNIT_BINARY_DIR
                                              "/bin/nccl_real_client ";
const std::string kEmulate =
    SENNIT_BINARY_DIR "/bin/sennit emulate run --racks 2,2 --ranks-per-host 2 ";

class Expected {
 public:
  Expected() : lines_(kRanks) {
    sennit_test::Ranks ranks(kRanks);
    ranks.run([&](int rank, sennit_comm_t comm) {
      std::string& lines = lines_[static_cast<size_t>(rank)];
      for (int type = 0; type < client::kTypes; type++) {
        for (int op = 0; op < client::kOps; op++) lines += reduced(rank, comm, type, op);
        lines += moved(rank, comm, type);
      }
      lines += multiplied(rank, comm, 2, "all_reduce of what was multiplied");
      for (const float scalar : client::kScalars)
        lines += multiplied(rank, comm, scalar, "all_reduce of what a device's scalar multiplied");
    });
  }
  const std::string& of(int rank) const { return lines_[static_cast<size_t>(rank)]; }

 private:
  static Bytes result(int type, size_t count) {
    return Bytes(count * client::kElements[static_cast<size_t>(type)].bytes);
  }
  static sennit_type_t own(int type) {
    return *sennit::nccl::type_of(static_cast<ncclDataType_t>(type));
  }
  static void ok(sennit_status_t status) { EXPECT_EQ(status, SENNIT_OK) << sennit_last_error(); }

  static std::string reduced(int rank, sennit_comm_t comm, int type, int op) {
    const sennit_op_t o = *sennit::nccl::op_of(static_cast<ncclRedOp_t>(op));
    const Bytes in = client::input(rank, type, op, kCount);
    const Bytes whole = client::input(rank, type, op, kRanks * kCount);
    Bytes all = result(type, kCount), roots = all, part = all;
    ok(sennit_all_reduce(in.data(), all.data(), kCount, own(type), o, comm));
    ok(sennit_reduce(in.data(), roots.data(), kCount, own(type), o, kRoot, comm));
    ok(sennit_reduce_scatter(whole.data(), part.data(), kCount, own(type), o, comm));
    return line(name("all_reduce", type, op), all) +
           line(name("reduce", type, op), rank == kRoot ? roots : Bytes()) +
           line(name("reduce_scatter", type, op), part);
  }

  static std::string moved(int rank, sennit_comm_t comm, int type) {
    const sennit_type_t t = own(type);
    const Bytes in = client::input(rank, type, 0, kCount);
    const Bytes whole = client::input(rank, type, 0, kRanks * kCount);
    Bytes cast = result(type, kCount), dealt = cast, ring = cast;
    Bytes gathered = result(type, kRanks * kCount), exchanged = gathered, roots = gathered;
    ok(sennit_broadcast(in.data(), cast.data(), kCount, t, kRoot, comm));
    ok(sennit_all_gather(in.data(), gathered.data(), kCount, t, comm));
    ok(sennit_all_to_all(whole.data(), exchanged.data(), kCount, t, comm));
    ok(sennit_gather(in.data(), roots.data(), kCount, t, kRoot, comm));
    ok(sennit_scatter(whole.data(), dealt.data(), kCount, t, kRoot, comm));
    ring = client::input((rank + kRanks - 1) % kRanks, type, 0, kCount);
    const std::string broadcast = line(name("broadcast", type, 0), cast);
    return broadcast + broadcast + line(name("all_gather", type, 0), gathered) +
           line(name("all_to_all", type, 0), exchanged) +
           line(name("gather", type, 0), rank == kRoot ? roots : Bytes()) +
           line(name("scatter", type, 0), dealt) + line(name("ring", type, 0), ring);
  }

  static std::string multiplied(int rank, sennit_comm_t comm, float factor, const char* what) {
    sennit_op_t op;
    ok(sennit_op_create_premul_sum(&op, &factor, SENNIT_FLOAT32, comm));
    const Bytes in = client::input(rank, ncclFloat32, 0, kCount);
    Bytes out = result(ncclFloat32, kCount);
    ok(sennit_all_reduce(in.data(), out.data(), kCount, SENNIT_FLOAT32, op, comm));
    ok(sennit_op_destroy(op, comm));
    return line(name(what, ncclFloat32, 0), out);
  }

  std::vector<std::string> lines_;
};

class NcclClient : public testing::Test {
 protected:
  // Lines of an older header's calls only, in the same order.
  void compare() const {
    static const Expected kExpected;
    for (int rank = 0; rank < kRanks; rank++) {
      std::ifstream file(folder / std::to_string(rank));
      std::istringstream expected(kExpected.of(rank));
      std::string got, wanted;
      int lines = 0;
      for (; std::getline(file, got); lines++) {
        while (std::getline(expected, wanted) &&
               wanted.substr(0, wanted.rfind(' ')) != got.substr(0, got.rfind(' '))) {
        }
        ASSERT_EQ(got, wanted) << "rank " << rank;
      }
      EXPECT_GT(lines, client::kTypes * (3 * client::kOps + 4)) << "rank " << rank;
    }
  }

  sennit::trainer::TestFolder folder;
};

// On memory of the host's, of a device's, and there by graphs.
class NcclClients : public NcclClient, public testing::WithParamInterface<const char*> {
 protected:
  static std::string client() { return kClient + GetParam(); }
};

TEST_P(NcclClients, RanksAsThreads) {
  const auto run = sennit_test::sh("timeout 100 " + client() + " threads 8 " + folder.path());
  ASSERT_EQ(run.status, 0) << run.output;
  compare();
}

TEST_P(NcclClients, RanksAsProcesses) {
  const auto run = sennit_test::sh("for r in 0 1 2 3 4 5 6 7; do timeout 100 " + client() +
                                   " process $r 8 " + folder.path() +
                                   " & all=\"$all $!\"; done; bad=0; for p in $all; do wait $p || "
                                   "bad=1; done; exit $bad");
  ASSERT_EQ(run.status, 0) << run.output;
  compare();
}

TEST_P(NcclClients, RanksOnEmulatedHosts) {
  const auto trial = sennit_test::sh(kEmulate + "-- true");
  if (trial.status == 3) GTEST_SKIP() << "NOT TESTED, no emulated fabric here: " << trial.output;
  const auto run = sennit_test::sh(kEmulate + "-- sh -c 'exec timeout 100 " + client() +
                                   " process $RANK $WORLD_SIZE " + folder.path() + "'");
  ASSERT_EQ(run.status, 0) << run.output;
  compare();
}

INSTANTIATE_TEST_SUITE_P(On, NcclClients, testing::Values("", "device", "graph"),
                         [](const auto& on) {
                           const std::string how = on.param;
                           return how.empty() ? "host" : how;
                         });

}  // namespace
