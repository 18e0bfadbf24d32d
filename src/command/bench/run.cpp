// run.cpp: one rank's part of `sennit bench`: joins the job, runs every case, measures, checks.
//
// A time is that of the slowest rank in an iteration, with a barrier of all before each; median,
// least, mean and most over the iterations, or over the launches of a graph (-G), of which each has
// all iterations and gives the mean of them. Where the ranks are divided (command/bench/groups.hpp)
// each group's communicator does it, all of them at once, and the bound is that of the set. Checks
// run afterwards on fresh data, with the output poisoned and a guard behind it. Times and error
// counts are exchanged over the control plane, not by the collectives under test.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "base/clock.hpp"
#include "base/options.hpp"
#include "command/bench/bench.hpp"
#include "command/bench/device.hpp"
#include "command/bench/groups.hpp"
#include "cost/rates.hpp"
#include "plan/bound.hpp"

namespace sennit::bench {

int exit_status(const Status& status) {
  switch (status.kind()) {
    case SENNIT_OK:
      return 0;
    case SENNIT_INVALID_ARGUMENT:
    case SENNIT_NOT_FOUND:
      return 2;
    case SENNIT_OUT_OF_RESOURCES:
    case SENNIT_UNSUPPORTED:
      return 3;
    default:
      return 1;
  }
}

namespace {

constexpr size_t kGuardBytes = 64;
constexpr size_t kPageBytes = 4096;
constexpr int kPoison = 0xa5;

Status from_c(sennit_status_t kind) {
  return kind == SENNIT_OK ? Status() : Status(kind, sennit_last_error());
}

// Memory of the library, which peers can read in place, registered memory, any, or a device's.
class Memory {
 public:
  // `device`: of BufferMemory::device.
  Status allocate(sennit_comm_t comm, size_t bytes, BufferMemory memory,
                  const BenchDevice* device) {
    if (memory == BufferMemory::device) {
      const Result<std::byte*> there = device->allocate(bytes);
      if (!there) return there.status();
      device_ = device;
      on_device_ = *there;
      bytes_ = bytes;
    }
    if (memory == BufferMemory::sennit) {
      comm_ = comm;
      SENNIT_RETURN_IF_ERROR(from_c(sennit_mem_alloc(comm, bytes, &data_)));
    } else {
      data_ = std::aligned_alloc(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
      if (!data_)
        return {SENNIT_OUT_OF_RESOURCES,
                fmt::format("no memory for {}: use a smaller -e", format_bytes(bytes))};
    }
    std::memset(data_, 0, bytes);
    if (device_) return device_->copy(on_device_, data_, bytes);
    if (memory != BufferMemory::registered) return {};
    SENNIT_RETURN_IF_ERROR(from_c(sennit_mem_register(comm, data_, bytes)));
    registered_ = comm;
    return {};
  }
  ~Memory() {
    if (device_) device_->free(on_device_, bytes_);
    if (registered_) sennit_mem_deregister(registered_, data_);
    if (comm_)
      sennit_mem_free(comm_, data_);
    else
      std::free(data_);
  }
  // What the processor reads and writes. A device's is behind it until send() or fetch().
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  // Where calls find `at`, which lies in data().
  std::byte* called(std::byte* at) const { return device_ ? on_device_ + (at - data()) : at; }
  bool holds(const std::byte* at) const { return at >= data() && at < data() + bytes_; }
  // The first bytes, to the device and from it.
  Status send(size_t bytes) const {
    return device_ ? device_->copy(on_device_, data_, bytes) : Status();
  }
  Status fetch(size_t bytes) const {
    return device_ ? device_->copy(data_, on_device_, bytes) : Status();
  }

 private:
  sennit_comm_t comm_ = nullptr;  // whose memory it is
  sennit_comm_t registered_ = nullptr;
  void* data_ = nullptr;
  const BenchDevice* device_ = nullptr;
  std::byte* on_device_ = nullptr;
  size_t bytes_ = 0;  // there
};

class RankRun {
 public:
  // `world`: of all ranks; `comm`: of this one's group of `groups`, the same where there is one.
  // `device`: with its buffers, or null.
  RankRun(const Options& options, const RankGroups& groups, const BenchDevice* device,
          sennit_comm_t world, sennit_comm_t comm, uint64_t start_ns)
      : options_(options),
        groups_(groups),
        device_(device),
        world_(world),
        comm_(comm),
        everyone_(internal(world)),
        inside_(internal(comm)),
        start_ns_(start_ns) {}

  Status run(Report* report) {
    const Collective collective = options_.collective;
    const uint64_t largest = std::max<uint64_t>(options_.max_bytes, 8) + kGuardBytes;
    if (device_) SENNIT_RETURN_IF_ERROR(from_c(sennit_comm_set_stream(comm_, device_->stream())));
    SENNIT_RETURN_IF_ERROR(send_.allocate(comm_, largest, options_.memory, device_));
    SENNIT_RETURN_IF_ERROR(recv_.allocate(comm_, largest, options_.memory, device_));
    const bool reporting = everyone_.rank() == 0;
    const std::string ranks = fmt::format("{} ranks", everyone_.size());
    if (reporting) {
      const CostModel& cost = everyone_.context().plan_options().cost;
      report->begin(divided() ? fmt::format("{} in {}", ranks, groups_text(groups_)) : ranks,
                    everyone_.tree(), device_ ? device_memory_cost(cost) : cost);
    }
    int first_root = 0, last_root = 0;
    if (is_rooted(collective)) {
      first_root = std::max(options_.root, 0);
      last_root = options_.root < 0 ? smallest_group() - 1 : options_.root;
    }
    for (const DataType type : options_.types)
      for (const Op op : options_.ops) {
        if (options_.ops.size() > 1 && !applies(op, type)) continue;
        for (int root = first_root; root <= last_root; root++)
          for (const uint64_t bytes : sizes(options_)) {
            Measurement m;
            m.what = make_case(options_, type, op, root, inside_.rank(), inside_.size(), bytes);
            m.groups = static_cast<int>(groups_.size());
            SENNIT_RETURN_IF_ERROR(measure(m, bytes).with_context(
                fmt::format("{} of {} bytes, {}", name(collective), m.what.bytes(), name(type))));
            wrong_ +=
                m.out_of_place.wrong.value_or(0) + (m.in_place ? m.in_place->wrong.value_or(0) : 0);
            if (reporting) report->add(m);
          }
      }
    if (reporting) report->end(footprint());
    return {};
  }
  uint64_t wrong() const { return wrong_; }
  std::string footprint() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    const std::string engine = inside_.context().engine().statistics();  // none without a peer
    return fmt::format("started in {:.3f} s; bootstrap: {}{}{}; peak memory {} MiB",
                       static_cast<double>(start_ns_) * 1e-9,
                       inside_.context().control().statistics(), engine.empty() ? "" : "; ", engine,
                       usage.ru_maxrss / 1024);
  }

 private:
  bool divided() const { return groups_.size() > 1; }
  int smallest_group() const {
    size_t least = groups_[0].size();
    for (const std::vector<int>& members : groups_) least = std::min(least, members.size());
    return static_cast<int>(least);
  }

  Status measure(Measurement& m, uint64_t bytes) {
    op_ = static_cast<sennit_op_t>(m.what.op);
    if (m.what.op == Op::premul_sum) {
      alignas(8) std::byte scalar[8] = {};
      premul_scalar(m.what.type, inside_.rank(), scalar);
      SENNIT_RETURN_IF_ERROR(from_c(sennit_op_create_premul_sum(
          &op_, scalar, static_cast<sennit_type_t>(m.what.type), comm_)));
    }
    SENNIT_RETURN_IF_ERROR(explain(m, bytes));
    SENNIT_RETURN_IF_ERROR(time(m.what, false, &m.out_of_place));
    const bool in_place =
        m.what.collective != Collective::send_recv && m.what.collective != Collective::barrier;
    if (in_place) SENNIT_RETURN_IF_ERROR(time(m.what, true, &m.in_place.emplace()));
    if (m.what.op == Op::premul_sum) SENNIT_RETURN_IF_ERROR(from_c(sennit_op_destroy(op_, comm_)));
    return {};
  }

  // What the planner chose, and the bound: from the same functions that the library itself uses.
  Status explain(Measurement& m, uint64_t bytes) {
    const TierTree& tree = inside_.tree();
    Request request;
    request.collective = m.what.collective;
    request.type = m.what.type;
    request.op = m.what.op;
    request.root =
        is_rooted(m.what.collective) ? tree.position_of_rank[static_cast<size_t>(m.what.root)] : 0;
    request.count = m.what.count;
    if (request.collective == Collective::send_recv) {
      m.algorithm = straight_name();
    } else {
      const Result<Plan> plan = inside_.plan(request, memory_of(request));
      if (!plan) return plan.status();
      m.algorithm = plan->algorithm;
      if (plan->predicted_ns != 0) m.predicted_us = static_cast<double>(plan->predicted_ns) / 1e3;
      add_bound(m, request, bytes);
    }
    if (device_) raise_to_device_bound(m, bytes);
    return {};
  }

  // A barrier has none.
  Planning::Memory memory_of(const Request& request) const {
    return device_ && request.collective != Collective::barrier ? Planning::Memory::device
                                                                : Planning::Memory::host;
  }

  void add_bound(Measurement& m, const Request& request, uint64_t bytes) {
    const TierTree& whole = everyone_.tree();
    const Bound bound =
        divided() ? bound_of(options_, groups_, whole, m.what.type, m.what.op, m.what.root, bytes)
                  : lower_bound(request, whole);
    if (!bound.known) return;
    m.bound_us = static_cast<double>(bound.time_ns) / 1e3;
    if (bound.binding_tier >= 0)
      m.binding_tier = whole.tiers[static_cast<size_t>(bound.binding_tier)].name;
  }

  // Where the network between hosts is not known, a device's memory alone would say too little.
  void raise_to_device_bound(Measurement& m, uint64_t bytes) const {
    if (!m.bound_us && !device_->one_host()) return;
    const std::optional<double> of_memory =
        device_->bound_us(options_, groups_, m.what.type, m.what.op, m.what.root, bytes);
    if (of_memory.value_or(0) <= m.bound_us.value_or(0)) return;
    m.bound_us = of_memory;
    m.binding_tier = "device";
  }

  // Where a case's data lies for the processor. In place it lies as in NCCL.
  struct Buffers {
    std::byte* send;
    std::byte* recv;
  };
  // Where the call finds it.
  std::byte* called(std::byte* at) const {
    return send_.holds(at) ? send_.called(at) : recv_.called(at);
  }
  Buffers buffers_of(const Case& c, bool in_place) const {
    if (!in_place) return {send_.data(), recv_.data()};
    const size_t own = static_cast<size_t>(c.rank) * c.count * type_bytes(c.type);
    std::byte* const base = recv_.data();
    switch (c.collective) {
      case Collective::all_gather:
        return {base + own, base};
      case Collective::gather:
        return {c.rank == c.root ? base + own : send_.data(), base};
      case Collective::reduce_scatter:
        return {base, base + own};
      case Collective::scatter:
        return {base, c.rank == c.root ? base + own : send_.data()};
      default:
        return {base, base};
    }
  }

  // Makes the call, and waits for its end.
  Status call(const Case& c, const Buffers& at) {
    SENNIT_RETURN_IF_ERROR(start(c, {called(at.send), called(at.recv)}));
    return device_ ? device_->synchronize() : Status();
  }
  Status start(const Case& c, const Buffers& at) {
    const auto type = static_cast<sennit_type_t>(c.type);
    sennit_work_t work = nullptr;
    const bool has_handle = !options_.blocking && options_.graph_launches == 0;
    sennit_work_t* const handle = has_handle ? &work : nullptr;
    sennit_status_t kind = SENNIT_OK;
    // A function of the library in both forms, called in the one that was asked for.
    const auto run = [&](auto blocking, auto other, auto... arguments) {
      kind = handle ? other(arguments..., comm_, handle) : blocking(arguments..., comm_);
    };
    switch (c.collective) {
      case Collective::all_reduce:
        run(sennit_all_reduce, sennit_all_reduce_start, at.send, at.recv, c.count, type, op_);
        break;
      case Collective::reduce_scatter:
        run(sennit_reduce_scatter, sennit_reduce_scatter_start, at.send, at.recv, c.count, type,
            op_);
        break;
      case Collective::all_gather:
        run(sennit_all_gather, sennit_all_gather_start, at.send, at.recv, c.count, type);
        break;
      case Collective::broadcast:
        run(sennit_broadcast, sennit_broadcast_start, at.send, at.recv, c.count, type, c.root);
        break;
      case Collective::reduce:
        run(sennit_reduce, sennit_reduce_start, at.send, at.recv, c.count, type, op_, c.root);
        break;
      case Collective::gather:
        run(sennit_gather, sennit_gather_start, at.send, at.recv, c.count, type, c.root);
        break;
      case Collective::scatter:
        run(sennit_scatter, sennit_scatter_start, at.send, at.recv, c.count, type, c.root);
        break;
      case Collective::all_to_all:
        run(sennit_all_to_all, sennit_all_to_all_start, at.send, at.recv, c.count, type);
        break;
      case Collective::barrier:
        run(sennit_barrier, sennit_barrier_start);
        break;
      case Collective::send_recv: {  // to the next rank, from the previous one, both at once
        sennit_group_start();
        const sennit_status_t sent =
            sennit_send(at.send, c.count, type, (c.rank + 1) % c.ranks, comm_);
        kind = sennit_recv(at.recv, c.count, type, (c.rank + c.ranks - 1) % c.ranks, comm_);
        const sennit_status_t ended = sennit_group_end();
        if (kind == SENNIT_OK) kind = sent == SENNIT_OK ? ended : sent;
        break;
      }
    }
    if (kind != SENNIT_OK || !work) return from_c(kind);
    kind = sennit_work_wait(work, -1);
    const Status result = from_c(kind);
    sennit_work_free(work);
    return result;
  }

  // Captures so many of the call, and launches all of them so often; `taken` gets what one of them
  // took in each launch.
  Status launch(const Case& c, const Buffers& at, int calls, int launches,
                std::vector<uint64_t>* taken) {
    const Result<std::unique_ptr<cuda::CapturedGraph>> graph = device_->capture([&]() -> Status {
      for (int i = 0; i < calls; i++)
        SENNIT_RETURN_IF_ERROR(start(c, {called(at.send), called(at.recv)}));
      return {};
    });
    if (!graph) return graph.status();
    for (int i = 0; i < launches; i++) {
      SENNIT_RETURN_IF_ERROR(from_c(sennit_barrier(world_)));
      const uint64_t before = now_ns();
      SENNIT_RETURN_IF_ERROR((*graph)->launch());
      SENNIT_RETURN_IF_ERROR(device_->synchronize());
      taken->push_back((now_ns() - before) / static_cast<uint64_t>(calls));
    }
    // Graphs pass by a communicator that has failed.
    return from_c(sennit_comm_get_async_error(comm_));
  }

  static size_t largest_side(const Case& c) {
    const uint64_t elements = std::max(c.send_elements(), c.recv_elements());
    return std::max<size_t>(elements * type_bytes(c.type), c.bytes());
  }

  Status time(const Case& c, bool in_place, Times* times) {
    const Buffers at = buffers_of(c, in_place);
    fill_input(c, 0, at.send);
    const size_t whole = largest_side(c);
    SENNIT_RETURN_IF_ERROR(send_.send(whole));
    SENNIT_RETURN_IF_ERROR(recv_.send(whole));
    for (int i = 0; i < options_.warm_up; i++) SENNIT_RETURN_IF_ERROR(call(c, at));
    std::vector<uint64_t> taken;
    if (options_.graph_launches > 0)
      SENNIT_RETURN_IF_ERROR(launch(c, at, options_.iterations, options_.graph_launches, &taken));
    for (int i = 0; i < options_.iterations && options_.graph_launches == 0; i++) {
      SENNIT_RETURN_IF_ERROR(from_c(sennit_barrier(world_)));
      const uint64_t before = now_ns();
      SENNIT_RETURN_IF_ERROR(call(c, at));
      taken.push_back(now_ns() - before);
    }
    uint64_t wrong = 0;
    for (int i = 0; i < options_.check; i++)
      SENNIT_RETURN_IF_ERROR(check(c, in_place, static_cast<uint64_t>(i) + 1, &wrong));
    taken.push_back(wrong);
    return slowest(taken, times);
  }

  Status check(const Case& c, bool in_place, uint64_t seed, uint64_t* wrong) {
    const Buffers at = buffers_of(c, in_place);
    const size_t received = c.recv_elements() * type_bytes(c.type);
    const size_t whole = largest_side(c) + kGuardBytes;
    std::memset(recv_.data(), kPoison, whole);
    fill_input(c, seed, at.send);
    SENNIT_RETURN_IF_ERROR(send_.send(whole));
    SENNIT_RETURN_IF_ERROR(recv_.send(whole));
    std::vector<uint64_t> taken;
    SENNIT_RETURN_IF_ERROR(from_c(sennit_barrier(world_)));
    SENNIT_RETURN_IF_ERROR(options_.graph_launches > 0 ? launch(c, at, 1, 1, &taken) : call(c, at));
    SENNIT_RETURN_IF_ERROR(send_.fetch(whole));
    SENNIT_RETURN_IF_ERROR(recv_.fetch(whole));
    Checked output = check_output(c, seed, at.recv);
    if (!in_place) {
      const Checked input = check_input(c, seed, at.send);
      if (output.wrong == 0) output.first = input.first;
      output.wrong += input.wrong;
      for (size_t i = 0; i < kGuardBytes; i++)
        if (at.recv[received + i] != std::byte{kPoison} && output.wrong++ == 0)
          output.first = fmt::format("byte {} behind the output was written", i);
    }
    if (output.wrong > 0)
      fmt::print(stderr, "sennit bench: rank {}: {} of {} bytes {}: {} wrong: {}\n", c.rank,
                 name(c.collective), c.bytes(), in_place ? "in place" : "out of place",
                 output.wrong, output.first);
    *wrong += output.wrong;
    return {};
  }

  // `mine`: nanoseconds by iteration, then the number of wrong elements.
  Status slowest(const std::vector<uint64_t>& mine, Times* times) {
    const Result<std::vector<std::vector<std::byte>>> all =
        inside_.context().control().all_gather(std::as_bytes(std::span(mine)));
    if (!all) return all.status();
    std::vector<double> us(mine.size() - 1, 0);
    uint64_t wrong = 0;
    for (const std::vector<std::byte>& blob : *all) {
      if (blob.size() != mine.size() * sizeof(uint64_t))
        return invalid("the ranks were started with different options");
      std::vector<uint64_t> theirs(mine.size());
      std::memcpy(theirs.data(), blob.data(), blob.size());
      for (size_t i = 0; i < us.size(); i++)
        us[i] = std::max(us[i], static_cast<double>(theirs[i]) / 1e3);
      wrong += theirs.back();
    }
    std::sort(us.begin(), us.end());
    const size_t n = us.size();
    times->median_us = n % 2 == 1 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
    times->min_us = us.front();
    times->max_us = us.back();
    times->mean_us = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(n);
    if (options_.check > 0) times->wrong = wrong;
    return {};
  }

  const Options& options_;
  const RankGroups& groups_;
  const BenchDevice* const device_;
  const sennit_comm_t world_, comm_;
  Communicator& everyone_;
  Communicator& inside_;
  Memory send_, recv_;
  sennit_op_t op_ = SENNIT_SUM;
  const uint64_t start_ns_;  // how long joining the job took
  uint64_t wrong_ = 0;
};

// Divides the ranks as was asked for, and runs this one's part.
Status run_groups(const Options& options, sennit_comm_t world, uint64_t start_ns, Report* report,
                  uint64_t* wrong) {
  const Result<RankGroups> groups = groups_of(options, internal(world).size());
  if (!groups) return groups.status();
  std::unique_ptr<BenchDevice> device;
  if (options.memory == BufferMemory::device) {
    Result<std::unique_ptr<BenchDevice>> opened =
        BenchDevice::open(internal(world).context().control());
    if (!opened) return opened.status().with_context("--memory device");
    device = *std::move(opened);
  }
  sennit_comm_t group = world;
  const int rank = internal(world).rank();
  for (size_t g = 0; g < groups->size() && groups->size() > 1; g++)
    if (std::ranges::find((*groups)[g], rank) != (*groups)[g].end())
      SENNIT_RETURN_IF_ERROR(from_c(sennit_comm_split(world, static_cast<int>(g), rank, &group)));
  Status status;
  {
    RankRun run(options, *groups, device.get(), world, group, start_ns);
    status = run.run(report);
    *wrong = run.wrong();
  }
  if (group == world) return status;
  if (status.ok()) status = from_c(sennit_comm_finalize(group));
  sennit_comm_destroy(group);
  return status;
}

}  // namespace

int run_rank(const Options& options, BootstrapOptions bootstrap, Report* report) {
  const int rank = bootstrap.rank;
  sennit_config_t config = SENNIT_CONFIG_INIT;
  if (!options.fabric.empty()) config.fabric = options.fabric.c_str();
  if (!options.algorithm.empty()) config.algorithm = options.algorithm.c_str();
  const uint64_t begin_ns = now_ns();
  const Result<sennit_comm_t> comm = start_job(std::move(bootstrap), &config);
  const uint64_t start_ns = now_ns() - begin_ns;
  Status status = comm.status();
  uint64_t wrong = 0;
  if (comm) {
    status = run_groups(options, *comm, start_ns, report, &wrong);
    if (status.ok()) status = from_c(sennit_comm_finalize(*comm));
    sennit_comm_destroy(*comm);
  }
  if (!status.ok()) fmt::print(stderr, "sennit bench: rank {}: {}\n", rank, status.text());
  return !status.ok() ? exit_status(status) : (wrong > 0 ? 1 : 0);
}

}  // namespace sennit::bench
