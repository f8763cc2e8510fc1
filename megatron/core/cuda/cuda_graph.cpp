#include "megatron/core/cuda_graph.h"

#include <type_traits>
#include <utility>

#include "megatron/core/cuda/driver.h"

namespace megatron {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

/// From the begin of a recording to its end, which comes also where the work throws.
class Recording {
 public:
  /// Other threads may call CUDA meanwhile: they have streams of their own.
  explicit Recording(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  ~Recording() {
    if (!std::exchange(is_under_way_, false)) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();  // so that a later launch does not report it
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Graph end() {
    is_under_way_ = false;
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "the recording of a CUDA graph");
    return Graph(graph);
  }

 private:
  cudaStream_t stream_;
  bool is_under_way_ = true;
};

class RealCudaGraph final : public CudaGraph {
 public:
  RealCudaGraph(cudaStream_t stream, const Graph& graph) : stream_(stream) {
    check_cuda(cudaGraphGetNodes(graph.get(), nullptr, &num_nodes_), "cudaGraphGetNodes");
    // Nodes that were recorded on a stream of higher priority than that of the launches keep it.
    check_cuda(cudaGraphInstantiate(&executable_, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
               "cudaGraphInstantiate");
  }
  ~RealCudaGraph() override { cudaGraphExecDestroy(executable_); }

  void launch() override { check_cuda(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }
  int64_t num_nodes() const override { return static_cast<int64_t>(num_nodes_); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
  size_t num_nodes_ = 0;
};

}  // namespace

std::unique_ptr<CudaGraph> record_cuda_graph(const CudaStream& stream, const std::function<void()>& work) {
  Recording recording(stream.stream);
  work();
  return std::make_unique<RealCudaGraph>(stream.stream, recording.end());
}

}  // namespace megatron
