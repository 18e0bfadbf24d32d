// groups.cpp: process groups: tensor-parallel groups of two, and across them data-parallel groups.
//
// With 4 ranks:        data 0   data 1
//            tensor 0   p0       p2        tensor groups {p0, p1}, {p2, p3}: one matrix over two
//            tensor 1   p1       p3        data groups {p0, p2}, {p1, p3}: same part, other data
//
// p is the position in fabric order, not the rank: neighbours in it are near in the network
// whatever order the launcher chose, so the group that talks most has the shortest ways.
#include <cstdio>
#include <sennit/sennit.hpp>
#include <vector>

namespace {

constexpr int kTensor = 2;

sennit::Error run() {
  auto world = sennit::Communicator::from_environment();
  if (!world) return world.error();
  if (world->size() % kTensor != 0)
    return {SENNIT_INVALID_ARGUMENT, "an even number of ranks, please"};
  int position = 0;
  if (auto error = sennit::Error::from(sennit_comm_fabric_position(world->handle(), &position)))
    return error;

  // Ranks of the same color form a communicator, ordered by key. Every rank calls split.
  auto tensor = world->split(position / kTensor, position);
  if (!tensor) return tensor.error();
  auto data = world->split(position % kTensor, position);
  if (!data) return data.error();
  sennit::Communicator& in_tensor = **tensor;
  sennit::Communicator& in_data = **data;

  // A product whose inner dimension is cut over the tensor group: partial results add up to the
  // whole.
  std::vector<float> partial(4096, 1.0f);
  if (auto error = in_tensor.all_reduce(partial.data(), partial.data(), partial.size()))
    return error;
  // Gradients of this rank's part: the average over those who have the same part.
  std::vector<float> gradient(4096, static_cast<float>(in_data.rank()));
  if (auto error =
          in_data.all_reduce(gradient.data(), gradient.data(), gradient.size(), sennit::avg))
    return error;

  if (partial[0] != static_cast<float>(kTensor) ||
      gradient[0] != static_cast<float>(in_data.size() - 1) / 2)
    return {SENNIT_INTERNAL, "a sum is wrong"};
  if (world->rank() == 0)
    std::printf("%d tensor ranks x %d data ranks\n", in_tensor.size(), in_data.size());

  // Groups end before what they were split from.
  if (auto error = in_tensor.finalize()) return error;
  if (auto error = in_data.finalize()) return error;
  return world->finalize();
}

}  // namespace

int main() {
  const sennit::Error error = run();
  if (error) std::fprintf(stderr, "%s\n", error.text.c_str());
  return error ? 1 : 0;
}
