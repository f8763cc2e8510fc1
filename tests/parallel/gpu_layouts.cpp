#include "tests/parallel/gpu_layouts.h"

#include "megatron/base/error.h"

namespace megatron::testing {
namespace {

const std::string kPipeline = " --pipeline-model-parallel-size ", kTensor = " --tensor-model-parallel-size ";
const std::string kSequence = " --sequence-parallel", kZbV = " --pipeline-schedule zb-v";
const std::string kSharded = " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather";
const std::string kContext = " --context-parallel-size 2 --cp-comm-type ";
const std::string kHybrid =
    " --dataloader-inter-document-masking --hybrid-context-parallel --max-seqlen-per-dp-cp-rank ";
const std::string kInterleaved = " --num-virtual-stages-per-pipeline-rank 2";

}  // namespace

std::vector<std::string> gpu_layouts_of(int num_ranks) {
  switch (num_ranks) {
    case 2:
      return {"",
              kSharded + " --ddp-num-buckets 3",
              kTensor + "2",
              kTensor + "2" + kSequence,
              kTensor + "2" + kSequence + " --tp-comm-overlap",
              kTensor + "2" + kSequence +
                  " --tp-comm-overlap --tp-comm-overlap-ag-splits 2 "
                  "--tp-comm-overlap-delay-wgrad",
              kPipeline + "2",
              kPipeline + "2" + kInterleaved,
              kPipeline + "2 --pipeline-schedule zb-h1",
              kPipeline + "2" + kZbV,
              kContext + "p2p",
              kContext + "all_gather" + kSharded,
              kContext + "a2a",
              kHybrid + "8",
              kHybrid + "8 --cp-comm-type all_gather",
              kHybrid + "16 --use-distributed-optimizer"};
    case 4:
      return {kSharded + " --ddp-num-buckets 3",
              kTensor + "4" + kSequence,
              kTensor + "4" + kSequence +
                  " --tp-comm-overlap --tp-comm-overlap-rs-dgrad --tp-comm-overlap-ag-splits 3 "
                  "--tp-comm-overlap-rs-splits 3",
              kTensor + "2" + kSequence + kSharded,
              kPipeline + "4",
              kPipeline + "2" + kInterleaved + kSharded,
              kPipeline + "2" + kZbV + kTensor + "2" + kSequence,
              kContext + "p2p" + kTensor + "2" + kSequence,
              kContext + "a2a" + kPipeline + "2",
              " --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
              kHybrid + "8 --use-distributed-optimizer",
              kHybrid + "8" + kTensor + "2" + kSequence};
    case 8:
      return {kSharded + " --ddp-num-buckets 3",
              kPipeline + "2" + kTensor + "2" + kSequence + kSharded,
              kPipeline + "2" + kZbV + kTensor + "2" + kSequence + " --tp-comm-overlap" + kSharded,
              kPipeline + "4" + kSharded,
              kPipeline + "2" + kTensor + "4" + kSequence,
              kTensor + "4" + kSequence + " --tp-comm-overlap" + kSharded};
    default:
      throw NotSupported(fmt::format("there are layouts of 2, 4 and 8 ranks, not of {}", num_ranks));
  }
}

bool shares_documents(const std::string& layout) {
  return layout.find("--hybrid-context-parallel") != std::string::npos;
}

std::vector<std::string> deep_gpu_layouts_of(int num_ranks) {
  if (num_ranks < 4) return {};
  return {kPipeline + "4" + kZbV, kPipeline + "4" + kInterleaved};
}

}  // namespace megatron::testing
