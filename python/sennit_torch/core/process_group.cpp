// process_group.cpp: see python/sennit_torch/core/process_group.hpp.
#include "core/process_group.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include <pybind11/pybind11.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/device.hpp"
#include "core/meeting.hpp"
#include "core/reduction.hpp"
#include "core/registered.hpp"
#include "core/tensors.hpp"

namespace sennit_torch {
namespace {

// Makes a call of the library's, in its nonblocking form where there is a place for its handle.
template <typename Blocking, typename Starting, typename... Arguments>
sennit_status_t issue(Blocking blocking, Starting starting, sennit_work_t* work,
                      Arguments... arguments) {
  return work ? starting(arguments..., work) : blocking(arguments...);
}

sennit_status_t receive_from(void* recv, size_t count, sennit_type_t type, int peer, int tag,
                             sennit_comm_t comm) {
  return sennit_recv_tagged(recv, count, type, peer, tag, comm, nullptr);
}

const std::string kPassed = "passed";  // rank 0's word in a monitored barrier

// What keys of a job in a store begin with, which may have those of one before.
std::string name_of(const Word& id) {
  constexpr uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;  // FNV-1a
  uint64_t hash = kBasis;
  for (const uint8_t byte : id) hash = (hash ^ byte) * kPrime;
  return "sennit/" + std::to_string(hash) + "/";
}

// Made by the members alone, out of a communicator that has all of them.
std::shared_ptr<HeldCommunicator> group_of(const HeldCommunicator& all,
                                           const std::vector<int>& members,
                                           const std::string& name) {
  const int tag = static_cast<int>(std::hash<std::string>()(name) & INT_MAX);
  sennit_comm_t made = nullptr;
  if (sennit_comm_create_group(all.comm, members.data(), static_cast<int>(members.size()), tag,
                               &made) != SENNIT_OK)
    throw_error("new_group", sennit_last_error());
  return std::make_shared<HeldCommunicator>(made, all.has_devices);
}

// Calls on devices have a communicator of their own: those on host memory would wait for its
// stream. None where a rank has no device.
std::shared_ptr<DeviceCalls> device_calls_of(const HeldCommunicator& comm, int size,
                                             const std::string& name) {
  if (!comm.has_devices) return nullptr;
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<DeviceCalls>(group_of(comm, all, name + "/devices"));
}

// Communicators are made in the thread that Python has called. What a signal's handler throws while
// one waits ends it, and is thrown again when the library has returned.
class Interruption {
 public:
  explicit Interruption(sennit_config_t* config) {
    config->interrupted_user = this;
    config->interrupted = [](void* self) {
      try {
        check_signals();
        return 0;
      } catch (...) {
        static_cast<Interruption*>(self)->thrown_ = std::current_exception();
        return 1;
      }
    };
  }
  // What was made all the same others would wait for: it is aborted.
  void rethrow(sennit_comm_t made) const {
    if (!thrown_) return;
    if (made) {
      sennit_comm_abort(made);
      sennit_comm_destroy(made);
    }
    std::rethrow_exception(thrown_);
  }

 private:
  std::exception_ptr thrown_;
};

}  // namespace

ProcessGroupSennit::ProcessGroupSennit(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                       Milliseconds timeout, std::string name,
                                       const std::string& group, const std::vector<int>& members,
                                       bool has_device)
    : ProcessGroupSennit(std::move(store), rank, size, timeout, std::move(name)) {
  WholeJob& whole_job = WholeJob::instance();
  std::shared_ptr<HeldCommunicator> made;
  if (const std::shared_ptr<HeldCommunicator> all = members.empty() ? nullptr : whole_job.held()) {
    job_ = whole_job.name();
    meet(*store_, job_ + group + "/", rank, size, timeout, [] { return Word{1}; });
    made = group_of(*all, members, group);
  } else {
    made = start_job(rank, size, has_device);
  }
  if (members.empty()) whole_job.hold(made, job_);
  device_calls_ = device_calls_of(*made, size, group);
  comm_ = made;
}

ProcessGroupSennit::ProcessGroupSennit(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                       Milliseconds timeout, std::string name)
    : Backend(rank, size), store_(std::move(store)), timeout_(timeout), name_(std::move(name)) {
  init();
}

// What waits for a call on host memory ends it when its group's time is over (TorchCall), so the
// library, which has one time for all groups, waits for longer than any. Calls on devices it ends
// itself.
std::shared_ptr<HeldCommunicator> ProcessGroupSennit::start_job(int rank, int size,
                                                                bool has_device) {
  constexpr Milliseconds kLongest = std::chrono::hours(24);
  const std::string start = "sennit/start/";
  sennit_unique_id_t id;
  const Word word = meet(*store_, start, rank, size, timeout_, [&] {
    if (sennit_get_unique_id(&id) != SENNIT_OK) throw_error("start", sennit_last_error());
    return Word(id.internal, id.internal + sizeof id.internal);
  });
  TORCH_CHECK(word.size() == sizeof id.internal,
              "sennit: start: the store's id is of another version of sennit");
  std::memcpy(id.internal, word.data(), word.size());
  job_ = name_of(word);
  sennit_config_t config = SENNIT_CONFIG_INIT;
  const Milliseconds arrival = has_device ? timeout_.load() : std::max(timeout_.load(), kLongest);
  config.arrival_timeout_ms =
      static_cast<int32_t>(std::clamp<int64_t>(arrival.count(), 1, 2'000'000'000));
  Interruption interruption(&config);
  sennit_comm_t made = nullptr;
  const sennit_status_t began = sennit_comm_init_rank(&made, size, &id, rank, &config);
  if (rank == 0) forget(*store_, start + "word");  // all have it; the store may see another job
  interruption.rethrow(made);
  if (began != SENNIT_OK) throw_error("start", sennit_last_error());
  // Whether all ranks have one.
  int32_t have = has_device ? 1 : 0;
  const sennit_status_t agreed = sennit_all_reduce(&have, &have, 1, SENNIT_INT32, SENNIT_MIN, made);
  auto held = std::make_shared<HeldCommunicator>(made, have == 1);
  if (agreed != SENNIT_OK) throw_error("start", sennit_last_error());
  return held;
}

// Python lets go of it with its lock held, which those who are waited for may need.
ProcessGroupSennit::~ProcessGroupSennit() {
  std::optional<pybind11::gil_scoped_release> without_the_lock;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) without_the_lock.emplace();
  device_calls_.store(nullptr);
  comm_.store(nullptr);
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupSennit::getBackendOptions() {
  return c10::make_intrusive<Options>(name_, timeout_);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupSennit::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  const int size = static_cast<int>(ranks.size());
  const std::string group = options ? options->group_name : "";
  auto part =
      c10::make_intrusive<ProcessGroupSennit>(store, static_cast<int>(mine - ranks.begin()), size,
                                              options ? options->timeout : timeout_.load(), name_);
  part->job_ = job_;
  meet(*store, job_ + group + "/", static_cast<int>(mine - ranks.begin()), size,
       part->timeout_.load(), [] { return Word{1}; });
  const std::shared_ptr<HeldCommunicator> made = group_of(*held("split_group"), ranks, group);
  part->device_calls_ = device_calls_of(*made, size, group);
  part->comm_ = made;
  return part;
}

std::shared_ptr<HeldCommunicator> ProcessGroupSennit::held(const std::string& call) const {
  std::shared_ptr<HeldCommunicator> comm = comm_;
  if (!comm) throw_error(call, "the process group was shut down");
  return comm;
}

c10d::ErrorType ProcessGroupSennit::getError() {
  const std::shared_ptr<HeldCommunicator> comm = comm_;
  const std::shared_ptr<DeviceCalls> on_devices = device_calls_;
  sennit_status_t error = comm ? sennit_comm_get_async_error(comm->comm) : SENNIT_OK;
  if (error == SENNIT_OK && on_devices)
    error = sennit_comm_get_async_error(on_devices->comm()->comm);
  switch (error) {
    case SENNIT_OK:
      return c10d::ErrorType::SUCCESS;
    case SENNIT_TIMED_OUT:
      return c10d::ErrorType::TIMEOUT;
    case SENNIT_PEER_FAILED:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

void ProcessGroupSennit::abort() {
  if (const std::shared_ptr<DeviceCalls> on_devices = device_calls_)
    sennit_comm_abort(on_devices->comm()->comm);
  if (const std::shared_ptr<HeldCommunicator> comm = comm_) sennit_comm_abort(comm->comm);
}

// Without calls that are out this says goodbye to the other ranks.
void ProcessGroupSennit::shutdown() {
  // Nobody waits on the host for calls on devices: those that are out are waited for here.
  if (const std::shared_ptr<DeviceCalls> on_devices = device_calls_.exchange(nullptr))
    on_devices->settle(std::chrono::steady_clock::now() + timeout_.load());
  if (const std::shared_ptr<HeldCommunicator> comm = comm_.exchange(nullptr))
    TorchCall::settle(comm.get(), std::chrono::steady_clock::now() + kPatience);
}

#ifdef SENNIT_TORCH_HAS_COMPLETION_HOOKS
void ProcessGroupSennit::registerCompletionHook(int64_t hook_id, c10d::CompletionHook hook) {
  held("registerCompletionHook")->completions.add(hook_id, std::move(hook));
  Watcher::instance().look_at_all();
}

void ProcessGroupSennit::unregisterCompletionHook(int64_t hook_id) {
  if (const std::shared_ptr<HeldCommunicator> comm = comm_) comm->completions.remove(hook_id);
}
#endif

Milliseconds ProcessGroupSennit::or_default(Milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
}

std::shared_ptr<TorchCall> ProcessGroupSennit::started(TorchCall::Parts parts,
                                                       const Start& start) const {
  std::shared_ptr<HeldCommunicator> comm = held(parts.name);
  parts.timeout = or_default(parts.timeout);
  used(comm, parts.memory);
  auto call = std::make_shared<TorchCall>(
      comm, std::move(parts), [&](sennit_work_t* work) { return start(comm->comm, work); });
  call->is_out();
  return call;
}

// Only collectives have numbers: all ranks make all of them.
MadeWork ProcessGroupSennit::made(c10d::OpType type, TorchCall::Parts parts, const Start& start) {
  const std::string title = name_ + ":" + parts.name;
  const std::optional<c10::Device> device = device_of(parts.name, parts.memory);
  const auto count = [&] {
    if (!c10d::isP2POp(type)) sequence_++;
  };
  const std::shared_ptr<DeviceCalls> on_devices = device_calls_;
  if (!device) {
    const std::shared_ptr<TorchCall> call = started(std::move(parts), start);
    count();
    MadeWork work = c10::make_intrusive<TorchWork>(rank_, type, title, call, sequence_);
    if (on_devices && on_devices->in_batch()) coalesced_.push_back(work);
    return work;
  }
  const std::shared_ptr<HeldCommunicator> comm = held(parts.name);
  TORCH_CHECK(on_devices, "sennit: ", parts.name, ": a tensor on ", *device,
              "; not all ranks of the job have a CUDA device, and this group works on host memory");
  const Tensors inputs = parts.inputs;
  const Milliseconds timeout = or_default(parts.timeout);
  std::optional<Enqueued> enqueued = on_devices->enqueue(*device, std::move(parts), start);
  if (!c10d::isP2POp(type)) collectives_on_device_ = true;
  count();
  if (!enqueued) return nullptr;  // with the whole batch
  return c10::make_intrusive<DeviceWork>(rank_, type, title, inputs, on_devices->comm(),
                                         *std::move(enqueued), timeout, sequence_);
}

void ProcessGroupSennit::startCoalescing() {
  const std::shared_ptr<DeviceCalls> on_devices = device_calls_;
  if (!on_devices) return;
  on_devices->begin_batch();
  coalesced_.clear();
}

MadeWork ProcessGroupSennit::endCoalescing() {
  const std::shared_ptr<DeviceCalls> on_devices = device_calls_;
  std::vector<MadeWork> works;
  if (on_devices && on_devices->in_batch()) {
    works = std::exchange(coalesced_, {});
    if (std::optional<Enqueued> enqueued = on_devices->end_batch())
      works.push_back(c10::make_intrusive<DeviceWork>(
          rank_, c10d::OpType::COALESCED, name_ + ":coalesced", Tensors{}, on_devices->comm(),
          *std::move(enqueued), timeout_, sequence_));
  }
  if (works.size() == 1) return works[0];
  return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

// ---- collectives ----

MadeWork ProcessGroupSennit::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Tensor& tensor = only("broadcast", tensors);
  const Tensor data = dense("broadcast", tensor);
  auto after = rank_ == options.rootRank ? nullptr : back_into(tensor, data);
  return made(c10d::OpType::BROADCAST,
              {"broadcast", {tensor, data}, tensors, after, tensors, options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_broadcast, sennit_broadcast_start, work, data.data_ptr(),
                             data.data_ptr(), bytes_of(data), SENNIT_UINT8,
                             static_cast<int>(options.rootRank), comm);
              });
}

namespace {

// How many elements a rank's sparse tensor has, and then what must be the same of all ranks'. As
// long on all, also where they differ in the number of dimensions.
Tensor form_of(const Tensor& sparse) {
  constexpr int64_t kMostDimensions = 64;  // PyTorch's own limit for most operations
  TORCH_CHECK(sparse.dim() <= kMostDimensions, "sennit: all_reduce: a sparse tensor of ",
              sparse.dim(), " dimensions; it may have ", kMostDimensions, " at most");
  std::vector<int64_t> form{sparse._nnz(), static_cast<int64_t>(sparse.scalar_type()),
                            sparse.sparse_dim(), sparse.dim()};
  form.insert(form.end(), sparse.sizes().begin(), sparse.sizes().end());
  form.resize(form.size() + static_cast<size_t>(kMostDimensions - sparse.dim()));
  return at::tensor(form, at::kLong);
}

// How many elements each rank has. All ranks throw where two differ.
std::vector<int64_t> elements_of(const Tensor& forms, int rank) {
  std::vector<int64_t> elements;
  for (int64_t other = 0; other < forms.size(0); other++) {
    TORCH_CHECK(at::equal(forms[other].slice(0, 1), forms[rank].slice(0, 1)),
                "sennit: all_reduce: the sparse tensors of ranks ", rank, " and ", other,
                " differ in shape, type or number of sparse dimensions");
    elements.push_back(forms[other][0].item<int64_t>());
  }
  return elements;
}

}  // namespace

// The ranks' elements, as many as each has, one after the other; how many must be known first, so
// this waits.
MadeWork ProcessGroupSennit::allreduce_sparse(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  const at::NoGradGuard no_grad;
  Tensor& tensor = only("all_reduce", tensors);
  TORCH_CHECK(tensor.device().is_cpu(), "sennit: all_reduce: a sparse tensor on ", tensor.device(),
              "; sparse ones are summed in host memory alone");
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM,
              "sennit: all_reduce: of sparse tensors only sums are made");
  const Tensor mine = tensor.coalesce();
  const Tensor indices = mine.indices().contiguous(), values = mine.values().contiguous();
  const Tensor form = form_of(mine), forms = at::empty({size_, form.numel()}, at::kLong);
  const auto complete = [&](std::vector<Tensor> memory, const Start& start) {
    const auto call =
        started({"all_reduce", std::move(memory), {}, nullptr, {}, options.timeout}, start);
    call->complete(kNoTimeout);
    if (const std::exception_ptr error = call->error()) std::rethrow_exception(error);
  };
  complete({form, forms}, [&](sennit_comm_t comm, sennit_work_t* work) {
    return sennit_all_gather_start(form.data_ptr(), forms.data_ptr(),
                                   static_cast<size_t>(form.numel()), SENNIT_INT64, comm, work);
  });
  const std::vector<int64_t> each = elements_of(forms, rank_);
  const int64_t all = std::accumulate(each.begin(), each.end(), int64_t{0});
  // A row an element: where it stands, and what it is.
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = all;
  const Tensor places = indices.t().contiguous();
  const Tensor all_places = at::empty({all, indices.size(0)}, indices.options());
  const Tensor all_values = at::empty(shape, values.options());
  const auto gather = [&](const Tensor& from, const Tensor& to) {
    std::vector<size_t> bytes;
    const size_t of_one = all == 0 ? 0 : to.nbytes() / static_cast<size_t>(all);
    for (const int64_t elements : each) bytes.push_back(of_one * static_cast<size_t>(elements));
    complete({from, to}, [&](sennit_comm_t comm, sennit_work_t* work) {
      return sennit_all_gather_v_start(from.data_ptr(), to.data_ptr(), bytes.data(), nullptr,
                                       SENNIT_UINT8, comm, work);
    });
  };
  gather(places, all_places);
  gather(values, all_values);
  tensor.copy_(at::sparse_coo_tensor(all_places.t(), all_values, tensor.sizes()).coalesce());
  return made(
      c10d::OpType::_ALLREDUCE_SPARSE, {"all_reduce", {}, {}, nullptr, tensors, options.timeout},
      [&](sennit_comm_t comm, sennit_work_t* work) { return sennit_barrier_start(comm, work); });
}

MadeWork ProcessGroupSennit::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
    return allreduce_sparse(tensors, options);
  Tensor& tensor = only("allreduce", tensors);
  const Tensor data = dense("allreduce", tensor);
  const TorchReduction r = reduction_of("allreduce", data, options.reduceOp);
  return made(c10d::OpType::ALLREDUCE,
              {"all_reduce",
               {tensor, data, r.factor_on_device},
               tensors,
               back_into(tensor, data),
               tensors,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return with_operation(r, comm, [&](sennit_op_t op) {
                  return issue(sennit_all_reduce, sennit_all_reduce_start, work, data.data_ptr(),
                               data.data_ptr(), r.count, r.type, op, comm);
                });
              });
}

MadeWork ProcessGroupSennit::allreduce_coalesced(Tensors& tensors,
                                                 const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK(!tensors.empty(), "sennit: allreduce_coalesced: no tensors");
  const Tensor all = joined("allreduce_coalesced", tensors, true);
  const TorchReduction r = reduction_of("allreduce_coalesced", all, options.reduceOp);
  return made(c10d::OpType::ALLREDUCE_COALESCED,
              {"all_reduce_coalesced",
               {all, r.factor_on_device},
               tensors,
               [all, tensors] { scattered(all, tensors); },
               tensors,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return with_operation(r, comm, [&](sennit_op_t op) {
                  return issue(sennit_all_reduce, sennit_all_reduce_start, work, all.data_ptr(),
                               all.data_ptr(), r.count, r.type, op, comm);
                });
              });
}

MadeWork ProcessGroupSennit::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Tensor& tensor = only("reduce", tensors);
  const Tensor data = dense("reduce", tensor);
  const TorchReduction r = reduction_of("reduce", data, options.reduceOp);
  const bool is_root = rank_ == options.rootRank;
  return made(c10d::OpType::REDUCE,
              {"reduce",
               {tensor, data, r.factor_on_device},
               tensors,
               is_root ? back_into(tensor, data) : nullptr,
               tensors,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return with_operation(r, comm, [&](sennit_op_t op) {
                  return issue(sennit_reduce, sennit_reduce_start, work, data.data_ptr(),
                               is_root ? data.data_ptr() : nullptr, r.count, r.type, op,
                               static_cast<int>(options.rootRank), comm);
                });
              });
}

MadeWork ProcessGroupSennit::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == 1, "sennit: allgather: ", outputs.size(),
              " lists of outputs; a rank has one");
  const Tensor data = dense("allgather", only("allgather", inputs));
  equal_sizes("allgather", outputs[0], data.numel(), size_);
  const Tensor all = joined("allgather", outputs[0], false);
  equal_types("allgather", data, all);
  return made(c10d::OpType::ALLGATHER,
              {"all_gather",
               {data, all},
               inputs,
               [all, to = outputs[0]] { scattered(all, to); },
               outputs[0],
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_all_gather, sennit_all_gather_start, work, data.data_ptr(),
                             all.data_ptr(), bytes_of(data), SENNIT_UINT8, comm);
              });
}

MadeWork ProcessGroupSennit::_allgather_base(Tensor& output, Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  const Tensor data = dense("all_gather_into_tensor", input);
  const Tensor all = dense("all_gather_into_tensor", output);
  TORCH_CHECK(
      output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(),
      "sennit: all_gather_into_tensor: ", input.numel(), " ", input.scalar_type(), " of each of ",
      size_, " ranks into ", output.numel(), " ", output.scalar_type());
  return made(c10d::OpType::_ALLGATHER_BASE,
              {"all_gather_into_tensor",
               {data, all, output},
               {input},
               back_into(output, all),
               {output},
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_all_gather, sennit_all_gather_start, work, data.data_ptr(),
                             all.data_ptr(), bytes_of(data), SENNIT_UINT8, comm);
              });
}

// outputs[r][i] is rank r's inputs[i].
MadeWork ProcessGroupSennit::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && !inputs.empty(),
              "sennit: allgather_coalesced: ", outputs.size(), " lists of outputs for ", size_,
              " ranks");
  const Tensor data = joined("allgather_coalesced", inputs, true);
  Tensors to;
  for (Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "sennit: allgather_coalesced: ", list.size(),
                " outputs of ", inputs.size(), " inputs");
    to.insert(to.end(), list.begin(), list.end());
  }
  const Tensor all = joined("allgather_coalesced", to, false);
  TORCH_CHECK(all.numel() == data.numel() * size_,
              "sennit: allgather_coalesced: outputs of other sizes than the inputs");
  equal_types("allgather_coalesced", data, all);
  return made(c10d::OpType::ALLGATHER_COALESCED,
              {"all_gather_coalesced",
               {data, all},
               inputs,
               [all, to] { scattered(all, to); },
               to,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_all_gather, sennit_all_gather_start, work, data.data_ptr(),
                             all.data_ptr(), bytes_of(data), SENNIT_UINT8, comm);
              });
}

MadeWork ProcessGroupSennit::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "sennit: allgather_into_tensor_coalesced: ", outputs.size(), " outputs of ",
              inputs.size(), " inputs");
  const at::NoGradGuard no_grad;
  // Rank r's inputs lie together in what comes, and apart in the outputs.
  std::vector<Tensors> parts(static_cast<size_t>(size_));
  for (size_t i = 0; i < inputs.size(); i++) {
    const Tensor& output = outputs[i];
    TORCH_CHECK(output.numel() == inputs[i].numel() * size_,
                "sennit: allgather_into_tensor_coalesced: an output of ", output.numel(),
                " elements for inputs of ", inputs[i].numel());
    // Rows can be taken apart wherever they lie.
    const bool has_rows = output.dim() > 0 && output.size(0) % size_ == 0;
    TORCH_CHECK(has_rows || output.is_contiguous(),
                "sennit: allgather_into_tensor_coalesced: an output of shape ", output.sizes(),
                " that is not contiguous, whose rows are not the same number of each of ", size_,
                " ranks");
    const Tensor by_rank = has_rows ? output.unflatten(0, {size_, output.size(0) / size_})
                                    : output.view({size_, inputs[i].numel()});
    for (int r = 0; r < size_; r++) parts[static_cast<size_t>(r)].push_back(by_rank.select(0, r));
  }
  return allgather_coalesced(parts, inputs, options);
}

MadeWork ProcessGroupSennit::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  const bool is_root = rank_ == options.rootRank;
  const Tensor data = dense("gather", only("gather", inputs));
  Tensor all;
  Tensors to;
  if (is_root) {
    TORCH_CHECK(outputs.size() == 1, "sennit: gather: ", outputs.size(),
                " lists of outputs; the root has one");
    to = outputs[0];
    equal_sizes("gather", to, data.numel(), size_);
    all = joined("gather", to, false);
    equal_types("gather", data, all);
  }
  std::function<void()> after;
  if (is_root) after = [all, to] { scattered(all, to); };
  return made(c10d::OpType::GATHER, {"gather", {data, all}, inputs, after, to, options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_gather, sennit_gather_start, work, data.data_ptr(),
                             is_root ? all.data_ptr() : nullptr, bytes_of(data), SENNIT_UINT8,
                             static_cast<int>(options.rootRank), comm);
              });
}

MadeWork ProcessGroupSennit::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ScatterOptions& options) {
  const bool is_root = rank_ == options.rootRank;
  Tensor& tensor = only("scatter", outputs);
  const Tensor data = dense("scatter", tensor);
  Tensor all;
  if (is_root) {
    TORCH_CHECK(inputs.size() == 1, "sennit: scatter: ", inputs.size(),
                " lists of inputs; the root has one");
    equal_sizes("scatter", inputs[0], data.numel(), size_);
    all = joined("scatter", inputs[0], true);
    equal_types("scatter", all, data);
  }
  return made(c10d::OpType::SCATTER,
              {"scatter",
               {data, all, tensor},
               is_root ? inputs[0] : Tensors{},
               back_into(tensor, data),
               outputs,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_scatter, sennit_scatter_start, work,
                             is_root ? all.data_ptr() : nullptr, data.data_ptr(), bytes_of(data),
                             SENNIT_UINT8, static_cast<int>(options.rootRank), comm);
              });
}

MadeWork ProcessGroupSennit::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(inputs.size() == 1, "sennit: reduce_scatter: ", inputs.size(),
              " lists of inputs; a rank has one");
  Tensor& tensor = only("reduce_scatter", outputs);
  equal_sizes("reduce_scatter", inputs[0], tensor.numel(), size_);
  Tensor all = joined("reduce_scatter", inputs[0], true);
  return _reduce_scatter_base(tensor, all, options);
}

MadeWork ProcessGroupSennit::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  const Tensor data = dense("reduce_scatter", input), out = dense("reduce_scatter", output);
  TORCH_CHECK(
      input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(),
      "sennit: reduce_scatter: ", input.numel(), " ", input.scalar_type(), " of ", size_,
      " ranks into ", output.numel(), " ", output.scalar_type());
  const TorchReduction r = reduction_of("reduce_scatter", out, options.reduceOp);
  return made(c10d::OpType::_REDUCE_SCATTER_BASE,
              {"reduce_scatter",
               {data, out, output, r.factor_on_device},
               {input},
               back_into(output, out),
               {output},
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return with_operation(r, comm, [&](sennit_op_t op) {
                  return issue(sennit_reduce_scatter, sennit_reduce_scatter_start, work,
                               data.data_ptr(), out.data_ptr(), r.count, r.type, op, comm);
                });
              });
}

MadeWork ProcessGroupSennit::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "sennit: reduce_scatter_tensor_coalesced: ", outputs.size(), " outputs of ",
              inputs.size(), " inputs");
  const at::NoGradGuard no_grad;
  // All that rank r gets lies together in what is sent.
  Tensors by_rank;
  for (int r = 0; r < size_; r++)
    for (size_t i = 0; i < inputs.size(); i++) {
      TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_,
                  "sennit: reduce_scatter_tensor_coalesced: ", inputs[i].numel(), " elements of ",
                  size_, " ranks into ", outputs[i].numel());
      by_rank.push_back(inputs[i].reshape({size_, -1}).select(0, r));
    }
  const Tensor data = joined("reduce_scatter_tensor_coalesced", by_rank, true);
  const Tensor out = joined("reduce_scatter_tensor_coalesced", outputs, false);
  equal_types("reduce_scatter_tensor_coalesced", data, out);
  const TorchReduction r = reduction_of("reduce_scatter_tensor_coalesced", out, options.reduceOp);
  return made(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
              {"reduce_scatter_tensor_coalesced",
               {data, out, r.factor_on_device},
               inputs,
               [out, outputs] { scattered(out, outputs); },
               outputs,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return with_operation(r, comm, [&](sennit_op_t op) {
                  return issue(sennit_reduce_scatter, sennit_reduce_scatter_start, work,
                               data.data_ptr(), out.data_ptr(), r.count, r.type, op, comm);
                });
              });
}

namespace {

// Bytes for each rank, of rows for each; none: equal parts.
std::vector<size_t> byte_counts(const Tensor& tensor, const std::vector<int64_t>& rows, int ranks) {
  std::vector<size_t> counts(static_cast<size_t>(ranks));
  const int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  const size_t row = all == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(all);
  if (rows.empty()) {
    TORCH_CHECK(all % ranks == 0, "sennit: all_to_all_single: ", all, " rows for ", ranks,
                " ranks; give the sizes of the parts");
    for (size_t& count : counts) count = static_cast<size_t>(all / ranks) * row;
    return counts;
  }
  TORCH_CHECK(rows.size() == static_cast<size_t>(ranks) &&
                  std::accumulate(rows.begin(), rows.end(), int64_t{0}) == all &&
                  std::all_of(rows.begin(), rows.end(), [](int64_t part) { return part >= 0; }),
              "sennit: all_to_all_single: parts of ", at::IntArrayRef(rows), " rows; they must be ",
              ranks, ", none negative, and add up to ", all, " rows");
  for (size_t i = 0; i < rows.size(); i++) counts[i] = static_cast<size_t>(rows[i]) * row;
  return counts;
}

std::vector<size_t> byte_counts(const Tensors& tensors) {
  std::vector<size_t> counts;
  counts.reserve(tensors.size());
  for (const Tensor& tensor : tensors) counts.push_back(tensor.nbytes());
  return counts;
}

}  // namespace

MadeWork ProcessGroupSennit::alltoall_base(Tensor& output, Tensor& input,
                                           std::vector<int64_t>& output_rows,
                                           std::vector<int64_t>& input_rows,
                                           const c10d::AllToAllOptions& options) {
  const Tensor in = dense("all_to_all_single", input), out = dense("all_to_all_single", output);
  equal_types("all_to_all_single", in, out);
  const std::vector<size_t> sent = byte_counts(in, input_rows, size_);
  const std::vector<size_t> received = byte_counts(out, output_rows, size_);
  return made(c10d::OpType::ALLTOALL_BASE,
              {"all_to_all_single",
               {in, out, output},
               {input},
               back_into(output, out),
               {output},
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_all_to_all_v, sennit_all_to_all_v_start, work, in.data_ptr(),
                             sent.data(), nullptr, out.data_ptr(), received.data(), nullptr,
                             SENNIT_UINT8, comm);
              });
}

MadeWork ProcessGroupSennit::alltoall(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllToAllOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(),
              "sennit: all_to_all: ", inputs.size(), " inputs and ", outputs.size(),
              " outputs for ", size_, " ranks");
  const Tensor in = joined("all_to_all", inputs, true), out = joined("all_to_all", outputs, false);
  equal_types("all_to_all", in, out);
  const std::vector<size_t> sent = byte_counts(inputs), received = byte_counts(outputs);
  return made(c10d::OpType::ALLTOALL,
              {"all_to_all",
               {in, out},
               inputs,
               [out, outputs] { scattered(out, outputs); },
               outputs,
               options.timeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_all_to_all_v, sennit_all_to_all_v_start, work, in.data_ptr(),
                             sent.data(), nullptr, out.data_ptr(), received.data(), nullptr,
                             SENNIT_UINT8, comm);
              });
}

MadeWork ProcessGroupSennit::send(Tensors& tensors, int peer, int tag) {
  const Tensor data = dense("send", only("send", tensors));
  return made(c10d::OpType::SEND, {"send", {data}, tensors, nullptr, tensors, c10d::kUnsetTimeout},
              [=](sennit_comm_t comm, sennit_work_t* work) {
                return issue(sennit_send_tagged, sennit_send_tagged_start, work, data.data_ptr(),
                             bytes_of(data), SENNIT_UINT8, peer, tag, comm);
              });
}

MadeWork ProcessGroupSennit::recv(Tensors& tensors, int peer, int tag) {
  return receive(c10d::OpType::RECV, "recv", tensors, peer, tag);
}

MadeWork ProcessGroupSennit::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK(
      only("recvAnySource", tensors).device().is_cpu(), "sennit: recvAnySource: a tensor on ",
      tensors[0].device(),
      "; who sent would be known only when the stream has come to its end: name the source");
  return receive(c10d::OpType::RECVANYSOURCE, "recvAnySource", tensors, SENNIT_ANY_SOURCE, tag);
}

MadeWork ProcessGroupSennit::receive(c10d::OpType type, const char* name, Tensors& tensors,
                                     int peer, int tag) {
  Tensor& tensor = only(name, tensors);
  const Tensor data = dense(name, tensor);
  return made(
      type,
      {name, {data, tensor}, tensors, back_into(tensor, data), tensors, c10d::kUnsetTimeout, true},
      [=](sennit_comm_t comm, sennit_work_t* work) {
        return issue(receive_from, sennit_recv_tagged_start, work, data.data_ptr(), bytes_of(data),
                     SENNIT_UINT8, peer, tag, comm);
      });
}

// What was enqueued on a device before is over.
// One that nobody waits for yet is a call in the stream, where all ranks know that the group is on
// a device: it is named, or there was a collective on it. Any other waits for the device first.
MadeWork ProcessGroupSennit::barrier(const c10d::BarrierOptions& options) {
  const std::shared_ptr<DeviceCalls> on_devices = device_calls_;
  if (on_devices && options.asyncOp) {
    std::optional<c10::Device> device = getBoundDeviceId();
    if (!options.device_ids.empty())
      device.emplace(c10::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids[0]));
    if (!device && collectives_on_device_) device = on_devices->device();
    if (device) return barrier_on(*device, options);
  }
  if (on_devices)
    on_devices->await("barrier", std::chrono::steady_clock::now() + or_default(options.timeout));
  return made(
      c10d::OpType::BARRIER, {"barrier", {}, {}, nullptr, {}, options.timeout},
      [&](sennit_comm_t comm, sennit_work_t* work) { return sennit_barrier_start(comm, work); });
}

// The library's own barrier is of hosts. Nobody looks at what comes out of this sum.
MadeWork ProcessGroupSennit::barrier_on(c10::Device device, const c10d::BarrierOptions& options) {
  const Tensor one = at::empty({1}, at::dtype(at::kByte).device(device));
  return made(c10d::OpType::BARRIER, {"barrier", {one}, {}, nullptr, {}, options.timeout},
              [one](sennit_comm_t comm, sennit_work_t*) {
                return sennit_all_reduce(one.data_ptr(), one.data_ptr(), 1, SENNIT_UINT8,
                                         SENNIT_BOR, comm);
              });
}

// Rank 0 names who has not come, to the others as well, which wait for its word for as long as any
// call may take: the time-out is rank 0's. All through the store, so that the communicator is as
// whole afterwards as it was. The texts are those that PyTorch's users know. All have left a
// barrier when they are in the next one: then its word goes.
void ProcessGroupSennit::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  const auto key = [this](uint64_t number, const std::string& what) {
    return job_ + "monitored/" + std::to_string(number) + "/" + what;
  };
  const uint64_t number = monitored_++;
  if (rank_ != 0) {
    store_->set(key(number, std::to_string(rank_)), std::vector<uint8_t>{1});
    std::string failure = "rank 0 says nothing";
    try {
      if (comes(*store_, key(number, "word"), std::chrono::steady_clock::now() + timeout_.load())) {
        const Word word = store_->get(key(number, "word"));
        failure.assign(word.begin(), word.end());
      }
    } catch (const pybind11::error_already_set&) {  // the handler of a signal
      throw;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (failure == kPassed) return;
    throw_error("monitored_barrier",
                "Rank " + std::to_string(rank_) +
                    " successfully reached monitoredBarrier, but received errors while waiting "
                    "for send/recv from rank 0: " +
                    failure);
  }
  const std::string failure =
      late_ranks(key(number, ""), or_default(options.timeout), wait_for_all);
  if (failure.empty() && number > 0) store_->deleteKey(key(number - 1, "word"));
  const std::string& word = failure.empty() ? kPassed : failure;
  store_->set(key(number, "word"), std::vector<uint8_t>(word.begin(), word.end()));
  if (!failure.empty()) throw_error("monitored_barrier", failure);
}

// Empty: all have come.
std::string ProcessGroupSennit::late_ranks(const std::string& prefix, Milliseconds timeout,
                                           bool wait_for_all) const {
  const std::string in_time = std::to_string(timeout.count()) + " ms";
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<int> late;
  for (int rank = 1; rank < size_ && (late.empty() || wait_for_all); rank++) {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 && !wait_for_all)
      return "Rank 0 timed out in monitoredBarrier after " + in_time + ", before rank " +
             std::to_string(rank) + " was seen";
    const std::string key = prefix + std::to_string(rank);
    if (comes(*store_, key, deadline))
      forget(*store_, key);
    else
      late.push_back(rank);
  }
  if (late.empty()) return "";
  std::string ranks = late.size() == 1 ? "Rank" : "Ranks";
  for (size_t i = 0; i < late.size(); i++) ranks += (i == 0 ? " " : ", ") + std::to_string(late[i]);
  return ranks + " failed to pass monitoredBarrier in " + in_time;
}

}  // namespace sennit_torch
