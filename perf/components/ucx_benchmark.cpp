// ucx_benchmark.cpp: the ucx transport between two processes beside UCX itself: one-way latency,
// and exchanges. UCX itself means tagged messages without peer failure handling and without
// matching of ours. Names: ucx/... and raw_ucx/... With UCX_TLS=tcp both use the same wire; by
// default raw UCX takes shared memory here, which UCX does not offer with failure handling.
//   UCX_TLS=tcp build/release/bin/ucx_benchmark
#include <ucp/api/ucp.h>

#include "perf/components/transport_pair.hpp"

namespace {

using namespace sennit;

class RawUcx : public perf::Pair {
 public:
  explicit RawUcx(size_t bytes) : out_(bytes, std::byte{3}), in_(bytes) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    SENNIT_CHECK(ucp_init(&params, nullptr, &context_) == UCS_OK);
    ucp_worker_params_t worker{};
    SENNIT_CHECK(ucp_worker_create(context_, &worker, &worker_) == UCS_OK);
  }
  std::vector<std::byte> address() override {
    ucp_address_t* address = nullptr;
    size_t bytes = 0;
    SENNIT_CHECK(ucp_worker_get_address(worker_, &address, &bytes) == UCS_OK);
    const auto* first = reinterpret_cast<const std::byte*>(address);
    std::vector<std::byte> result(first, first + bytes);
    ucp_worker_release_address(worker_, address);
    return result;
  }
  void meet(const std::vector<std::byte>& address) override {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    SENNIT_CHECK(ucp_ep_create(worker_, &params, &endpoint_) == UCS_OK);
  }
  void send(size_t bytes) override { wait(start_send(bytes)); }
  void recv(size_t bytes) override { wait(start_recv(bytes)); }
  void exchange(size_t bytes) override {
    const ucs_status_ptr_t in = start_recv(bytes), out = start_send(bytes);
    wait(in);
    wait(out);
  }

 private:
  ucs_status_ptr_t start_send(size_t bytes) {
    ucp_request_param_t param{};
    return ucp_tag_send_nbx(endpoint_, out_.data(), bytes, 1, &param);
  }
  ucs_status_ptr_t start_recv(size_t bytes) {
    ucp_request_param_t param{};
    return ucp_tag_recv_nbx(worker_, in_.data(), bytes, 1, UINT64_MAX, &param);
  }
  void wait(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
  }
  std::vector<std::byte> out_, in_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

void run(benchmark::State& state, bool raw, bool exchange) {
  perf::run_pair(state, exchange, [&](int rank, size_t bytes) -> std::unique_ptr<perf::Pair> {
    if (raw) return std::make_unique<RawUcx>(bytes);
    TransportContext context;
    context.rank = rank;
    context.size = 2;
    context.asked_for = true;
    for (const TransportFactory& factory : transports()) {
      if (factory.name != "ucx") continue;
      Result<std::unique_ptr<Transport>> made = factory.make(context);
      SENNIT_CHECK(made.ok());
      return std::make_unique<perf::TransportPair>(rank, std::move(*made), bytes, false, false);
    }
    SENNIT_CHECK(!"this benchmark is built with UCX only");
    return nullptr;
  });
}

const int kRegistered = [] {
  for (const bool raw : {false, true}) {
    const std::string name = raw ? "raw_ucx" : "ucx";
    benchmark::RegisterBenchmark((name + "/latency").c_str(), run, raw, false)
        ->Arg(8)
        ->Arg(1024)
        ->Arg(8192)
        ->Arg(65536)
        ->UseRealTime();
    benchmark::RegisterBenchmark((name + "/exchange").c_str(), run, raw, true)
        ->Arg(128 << 10)
        ->Arg(1 << 20)
        ->Arg(8 << 20)
        ->UseRealTime();
  }
  return 0;
}();

}  // namespace
