// Gloo's collectives under the clock of perf/peers/peer.hpp. Ranks find one another by RANK,
// WORLD_SIZE and a folder that all of them see, GLOO_STORE; they talk over GLOO_INTERFACE. `sennit
// emulate run --peer gloo` sets these.
//
// All-reduce, all-gather, broadcast and all-to-all are Gloo's defaults; its reduce-scatter is
// halving-doubling, the only one it has.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <climits>
#include <functional>

#include "perf/peers/peer.hpp"

namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  if (value) return value;
  std::fprintf(stderr, "gloo_perf: %s is not set; run it with `sennit emulate run --peer gloo`\n",
               name);
  std::exit(2);
}

class Gloo : public peer::Library {
 public:
  Gloo() {
    gloo::transport::tcp::attr attributes;
    attributes.iface = variable("GLOO_INTERFACE");
    auto context = std::make_shared<gloo::rendezvous::Context>(std::atoi(variable("RANK")),
                                                               std::atoi(variable("WORLD_SIZE")));
    context->setTimeout(std::chrono::minutes(5));
    gloo::rendezvous::FileStore store(variable("GLOO_STORE"));
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  const char* name() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  // Its reduce-scatter counts all blocks together in an int, and everything else in a size_t.
  size_t most(const std::string& collective) const override {
    return collective == "reduce_scatter" ? INT_MAX / static_cast<size_t>(ranks()) : SIZE_MAX;
  }
  void max_over_ranks(std::vector<double>* values) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values->data(), values->size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<double>));
    gloo::allreduce(options);
  }
  bool prepare(const std::string& collective, float* in, float* out, size_t count) override {
    const size_t total = count * static_cast<size_t>(ranks());
    scatter_.reset();
    if (collective == "all_reduce")
      run_ = [=, this] {
        gloo::AllreduceOptions options(context_);
        options.setInput(in, count);
        options.setOutput(out, count);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
      };
    else if (collective == "all_gather")
      run_ = [=, this] {
        gloo::AllgatherOptions options(context_);
        options.setInput(in, count);
        options.setOutput(out, total);
        gloo::allgather(options);
      };
    else if (collective == "broadcast")
      run_ = [=, this] {
        gloo::BroadcastOptions options(context_);
        options.setOutput(rank() == 0 ? in : out, count);  // in place: the root sends what it has
        options.setRoot(0);
        gloo::broadcast(options);
      };
    else if (collective == "all_to_all")
      run_ = [=, this] {
        gloo::AlltoallOptions options(context_);
        options.setInput(in, total);
        options.setOutput(out, total);
        gloo::alltoall(options);
      };
    else if (collective == "reduce_scatter") {
      const std::vector<int> blocks(static_cast<size_t>(ranks()), static_cast<int>(count));
      scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{in}, static_cast<int>(total), blocks);
      run_ = [=, this] {
        scatter_->run();  // leaves this rank's block at the front of `in`
        std::memcpy(out, in, count * sizeof(float));
      };
    } else
      return false;
    return true;
  }
  void run() override { run_(); }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  std::function<void()> run_;
};

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse(argc, argv);
  Gloo library;
  return peer::Bench(library, options).run();
}
