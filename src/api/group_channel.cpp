// group_channel.cpp: see api/group_channel.hpp.
#include "api/group_channel.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/arithmetic.hpp"

namespace sennit {
namespace {

constexpr size_t kRanksShown = 16;

std::string describe(const std::vector<int>& ranks, int tag, uint32_t comm) {
  const auto shown = static_cast<ptrdiff_t>(std::min(ranks.size(), kRanksShown));
  return fmt::format("create_group of ranks {}{} of communicator {}, tag {}",
                     fmt::join(ranks.begin(), ranks.begin() + shown, ","),
                     ranks.size() > kRanksShown ? ",..." : "", comm, tag);
}

uint64_t hash_of(const std::vector<int>& ranks) {
  uint64_t hash = ranks.size();
  for (const int rank : ranks) hash = mix(hash, static_cast<uint64_t>(rank));
  return hash;
}

}  // namespace

GroupChannel::GroupChannel(Context& context, CommunicatorState& of)
    : context_(context),
      of_(of),
      channel_(channel_of(of.id()), of.members(), context.rank(), context.engine(),
               context.control()),
      mailbox_(context.engine(), channel_.id(), channel_.others()),
      world_(2, context.rank()) {
  context_.registry().add(&channel_);
}

GroupChannel::~GroupChannel() { context_.registry().remove(&channel_); }

Status GroupChannel::check(const CommunicatorState& of, const std::vector<int>& ranks, int tag) {
  if (tag < 0) return invalid(fmt::format("create_group: tag {}: expected 0 or more", tag));
  std::vector<bool> listed(static_cast<size_t>(of.size()));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= of.size())
      return invalid(
          fmt::format("create_group: rank {} in the list: expected 0 <= it < {}", rank, of.size()));
    if (listed[static_cast<size_t>(rank)])
      return invalid(fmt::format("create_group: rank {} stands in the list twice", rank));
    listed[static_cast<size_t>(rank)] = true;
  }
  if (!listed[static_cast<size_t>(of.rank())])
    return invalid(fmt::format(
        "create_group: rank {}, which calls it, is not in the list: only members call it",
        of.rank()));
  return {};
}

Result<uint32_t> GroupChannel::agree_on_number(const std::vector<int>& ranks, int tag) {
  CallDescriptor making;
  making.comm = channel_.id();
  making.seq = static_cast<uint32_t>(tag);
  making.signature = hash_of(ranks);
  making.text = describe(ranks, tag, of_.id());
  for (const int rank : ranks) making.makers.push_back(of_.world_rank(rank));
  making.refused_before = of_.calls().makes_group();
  const std::string& text = making.text;
  if (const Status failed = channel_.status(); !failed.ok()) {
    if (channel_.failed_ranks().empty()) return failed.with_context(text);
    return failed.with_context(
        text + ": the communicator has lost a member, and who goes on without it is not decided");
  }
  const size_t n = ranks.size();
  const auto self =
      static_cast<size_t>(std::find(ranks.begin(), ranks.end(), of_.rank()) - ranks.begin());
  // First all say that they have come: what others send on the new communicator is kept only where
  // its making is under way (Registry::Making). In round `step` those before `step` hear those
  // `step` further, and on the way back they tell them the number. Then all say that they have it:
  // nothing is under way any more, and the tag may begin anew.
  uint32_t number = 0;
  const size_t last = std::bit_ceil(n) / 2;
  const auto partner = [&](size_t step) -> int {
    if (self < step && self + step < n) return ranks[self + step];
    return self >= step && self < 2 * step ? ranks[self - step] : -1;
  };
  const auto round = [&](size_t step, bool up) -> Status {
    const int rank = partner(step);
    return rank < 0 ? Status() : exchange(up == (self < step), rank, making, &number);
  };
  const auto up = [&]() -> Status {
    for (size_t step = last; step > 0; step /= 2) SENNIT_RETURN_IF_ERROR(round(step, true));
    return {};
  };
  const auto down = [&]() -> Status {
    for (size_t step = 1; step <= last; step *= 2) SENNIT_RETURN_IF_ERROR(round(step, false));
    return {};
  };
  Status status = up();
  if (self == 0) number = context_.draw_communicator_number();
  if (status.ok()) status = down();
  if (status.ok()) status = up();
  if (!status.ok()) return status.with_context(text);
  {
    const MutexLock lock(context_.engine().mutex());
    for (size_t step = 1; step <= last; step *= 2)
      if (const int rank = partner(step); rank >= 0)
        mailbox_.forget(of_.world_rank(rank), static_cast<uint32_t>(tag));
  }
  if (number == 0)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("{}: rank {} has handed out all its numbers for communicators", text,
                              of_.world_rank(ranks[0])));
  return number;
}

Status GroupChannel::exchange(bool receiving, int rank, const CallDescriptor& making,
                              uint32_t* number) {
  Request request;
  request.collective = Collective::send_recv;
  request.type = DataType::uint32;
  request.count = 1;
  request.root = 1;
  ProgramBuilder builder;
  const Range whole{0, 0, kUnits};
  if (receiving)
    builder.recv(request.root, builder.output({&whole, 1}), 0, true);
  else
    builder.send(request.root, builder.input({&whole, 1}), 0, true);
  const std::shared_ptr<Prepared> prepared = prepare(request, {}, builder.finish());
  prepared->signature = making.signature;
  prepared->description = making.text;

  Engine& engine = context_.engine();
  auto execution = std::make_unique<Execution>(engine, channel_.id(), world_, prepared);
  Buffers& buffers = execution->buffers();
  buffers.input = buffers.output = reinterpret_cast<std::byte*>(number);
  buffers.input_layout.count = buffers.output_layout.count = buffers.wire_layout.count = 1;
  const int peer = of_.world_rank(rank);
  if (receiving)
    engine.start_receive(*execution, mailbox_, peer, making.seq, false);
  else
    engine.start_send(*execution, mailbox_, peer, making.seq, false);
  // It may have failed before the start: then nobody else cancels what was just posted.
  if (channel_.failed()) engine.fail_communicator(channel_.id(), channel_.status());
  await(*execution, making);
  Status result;
  {
    const MutexLock lock(engine.mutex());
    result = execution->status();
    execution.reset();
  }
  // What all members are told, where there is more to tell.
  const Status verdict = channel_.status();
  return result.ok() || verdict.ok() ? result : verdict;
}

// Who waits long says so, since one of the others may have been refused what it was to make.
void GroupChannel::await(const Execution& execution, CallDescriptor making) {
  constexpr int64_t kSliceNs = 500'000'000;
  const auto is_done = [&] { return execution.done(); };
  for (int64_t waited_ns = kSliceNs; !context_.engine().wait(is_done, kSliceNs);
       waited_ns += kSliceNs) {
    making.stalled_ms = waited_ns / 1'000'000;
    context_.control().report_stall(making);
  }
}

}  // namespace sennit
