// all_ranks.cpp: see trainer/parallel/all_ranks.hpp.
#include "trainer/parallel/all_ranks.hpp"

#include <fmt/core.h>

#include "topology/source.hpp"

namespace sennit::trainer {

Status tell_all(std::string* text, int root, Communicator& group) {
  uint64_t bytes = text->size();
  group.broadcast(&bytes, sizeof bytes, root).wait();
  SENNIT_RETURN_IF_ERROR(group.traffic().status());
  text->resize(bytes);
  if (bytes > 0) group.broadcast(text->data(), bytes, root).wait();
  return group.traffic().status();
}

Status one_answer(const Status& own, Communicator& group) {
  // The first rank that failed has the largest; 0 on all: none did.
  double failed = own.ok() ? 0 : group.size() - group.rank();
  group.all_reduce(&failed, 1, Element::f64, Reduction::max).wait();
  if (group.traffic().failed()) return own.ok() ? group.traffic().status() : own;
  if (failed == 0) return {};
  const int first = group.size() - static_cast<int>(failed);
  int64_t kind = own.kind();
  group.broadcast(&kind, sizeof kind, first).wait();
  std::string text = own.text();
  if (group.rank() == first && first != 0)
    text = fmt::format("rank {} ({}): {}", first, this_host(), text);
  SENNIT_RETURN_IF_ERROR(tell_all(&text, first, group));
  return {static_cast<ErrorKind>(kind), group.rank() == 0 ? text : ""};
}

}  // namespace sennit::trainer
