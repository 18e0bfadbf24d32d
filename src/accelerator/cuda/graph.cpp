// graph.cpp: see accelerator/cuda/graph.hpp.
#include "accelerator/cuda/graph.hpp"

#include <fmt/core.h>

namespace sennit::cuda {
namespace {

Status checked(const Driver& driver, int error, const char* what) {
  if (error == kSuccess) return {};
  return {SENNIT_INTERNAL, fmt::format("{}: {}", what, error_text(driver, error))};
}

}  // namespace

Result<std::unique_ptr<CapturedGraph>> CapturedGraph::of(void* stream,
                                                         const std::function<Status()>& calls) {
  const Result<const Driver*> opened = driver();
  if (!opened) return opened.status();
  const Driver& driver = **opened;
  if (!driver.cuStreamBeginCapture_v2 || !driver.cuStreamEndCapture ||
      !driver.cuGraphInstantiateWithFlags || !driver.cuGraphLaunch || !driver.cuGraphExecDestroy ||
      !driver.cuGraphDestroy)
    return Status(SENNIT_UNSUPPORTED, "CUDA's driver makes no graphs: it is too old");
  auto* const from = static_cast<Stream>(stream);
  SENNIT_RETURN_IF_ERROR(checked(driver, driver.cuStreamBeginCapture_v2(from, kThreadLocalCapture),
                                 "cuStreamBeginCapture"));
  const Status made = calls();
  Graph graph = nullptr;
  const Status ended =
      checked(driver, driver.cuStreamEndCapture(from, &graph), "cuStreamEndCapture");
  GraphExec launchable = nullptr;
  Status all = made.ok() ? ended : made;
  if (all.ok())
    all = checked(driver, driver.cuGraphInstantiateWithFlags(&launchable, graph, 0),
                  "cuGraphInstantiate");
  if (graph) driver.cuGraphDestroy(graph);
  if (!all.ok()) return all;
  return std::unique_ptr<CapturedGraph>(new CapturedGraph(driver, from, launchable));
}

CapturedGraph::~CapturedGraph() { driver_.cuGraphExecDestroy(graph_); }

Status CapturedGraph::launch() const {
  return checked(driver_, driver_.cuGraphLaunch(graph_, stream_), "cuGraphLaunch");
}

}  // namespace sennit::cuda
