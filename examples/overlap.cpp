// overlap.cpp: communication behind computing: nonblocking calls, and several calls as one group.
//
// A backward pass makes gradients layer by layer, from the last to the first. Each layer's all-
// reduce starts as soon as its gradient is there, and runs while the next one is computed.
#include <cmath>
#include <cstdio>
#include <sennit/sennit.hpp>
#include <vector>

namespace {

constexpr int kLayers = 8;
constexpr size_t kWeights = 1 << 18;  // of a layer

// Stands for the backward pass of one layer.
void compute(std::vector<float>& gradient, int rank, int layer) {
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = static_cast<float>(rank + layer) + 0.0f * std::sin(static_cast<float>(i));
}

sennit::Error run() {
  auto comm = sennit::Communicator::from_environment();
  if (!comm) return comm.error();
  const int size = comm->size();

  std::vector<std::vector<float>> gradients(kLayers, std::vector<float>(kWeights));
  std::vector<sennit::Work> works;
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    std::vector<float>& gradient = gradients[static_cast<size_t>(layer)];
    compute(gradient, comm->rank(), layer);
    // The buffer belongs to the work until it is done. All ranks start the same calls in the same
    // order.
    auto work = comm->start_all_reduce(gradient.data(), gradient.data(), kWeights, sennit::avg);
    if (!work) return work.error();
    works.push_back(*std::move(work));
  }
  for (sennit::Work& work : works)
    if (auto error = work.wait()) return error;
  for (int layer = 0; layer < kLayers; ++layer)
    if (gradients[static_cast<size_t>(layer)][0] !=
        static_cast<float>(layer) + static_cast<float>(size - 1) / 2)
      return {SENNIT_INTERNAL, "an average is wrong"};

  // A group starts all its calls together and waits for all of them at its end: here each rank
  // sends to the next and receives from the one before, which as two blocking calls would wait for
  // each other for ever.
  float mine = static_cast<float>(comm->rank());
  float theirs = -1;
  if (auto error = sennit::Error::from(sennit_group_start())) return error;
  if (auto error = comm->send(&mine, 1, (comm->rank() + 1) % size)) return error;
  if (auto error = comm->recv(&theirs, 1, (comm->rank() + size - 1) % size)) return error;
  if (auto error = sennit::Error::from(sennit_group_end())) return error;
  if (static_cast<int>(theirs) != (comm->rank() + size - 1) % size)
    return {SENNIT_INTERNAL, "not my neighbour's"};

  if (comm->rank() == 0)
    std::printf("%d ranks: %d gradients averaged behind computing\n", size, kLayers);
  return comm->finalize();
}

}  // namespace

int main() {
  const sennit::Error error = run();
  if (error) std::fprintf(stderr, "%s\n", error.text.c_str());
  return error ? 1 : 0;
}
