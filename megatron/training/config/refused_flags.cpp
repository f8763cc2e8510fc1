#include "megatron/training/config/refused_flags.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace megatron {
namespace {

struct Refusal {
  std::string_view reason;
  std::string_view flags;  // separated by spaces
};

// What is not here yet, by feature.
constexpr auto kNotYet = std::to_array<Refusal>({
    {"reinforcement learning, which pretrain_gpt does not do",
     "--grpo-clamp-eps-lower --grpo-clamp-eps-upper --grpo-entropy-term-weight "
     "--grpo-filter-groups-with-same-reward --grpo-group-size --grpo-iterations --grpo-kl-beta "
     "--grpo-prompts-per-step --langrl-env-config --no-rl-inference-logprobs-is-correction "
     "--no-rl-offload-inference-model-weights-when-idle --no-rl-partial-rollouts --no-rl-persist-cuda-graphs "
     "--no-rl-skip-bos-token --no-rl-training-cuda-graphs --no-rl-use-sequence-packing "
     "--no-rl-verify-model-weights-swap --perform-rl-step --refit-method --rl-consumption-granularity "
     "--rl-default-temperature --rl-default-top-k --rl-default-top-p --rl-generation-lag "
     "--rl-importance-sampling-truncation-coef --rl-inference-expert-model-parallel-size "
     "--rl-inference-expert-tensor-model-parallel-size --rl-inference-logprobs-is-correction "
     "--rl-inference-model-unified-memory-level --rl-inference-parsers --rl-inference-pipeline-model-parallel-size "
     "--rl-inference-tensor-model-parallel-size --rl-kv-cache-management-mode "
     "--rl-offload-inference-model-weights-when-idle --rl-offload-optimizer-during-inference --rl-partial-rollouts "
     "--rl-persist-cuda-graphs --rl-profile --rl-profile-dir --rl-prompts-per-eval --rl-sequence-packing-algo "
     "--rl-sequence-packing-max-sequences-per-bin --rl-skip-bos-token --rl-submission-granularity "
     "--rl-training-cuda-graphs --rl-use-sequence-packing --rl-verify-model-weights-swap"},
    {"this kind of logging and profiling",
     "--app-tag-run-name --app-tag-run-version --config-logger-dir --inference-wandb-logging "
     "--log-device-memory-used --log-energy --log-max-attention-logit --logits-load-decode-threads "
     "--logits-load-dir --logits-load-ignore-errors --logits-load-kd-loss-alpha --logits-load-msc-prefetch-depth "
     "--logits-load-prefetch-factor --logits-save-dir --logits-save-dtype --logits-save-top-k --logits-save-top-p "
     "--logits-save-top-p-min-k --memory-snapshot-path --no-barrier-with-level-1-timing "
     "--no-inference-wandb-logging --one-logger-async --one-logger-project --one-logger-run-name "
     "--pytorch-profiler-collect-callstack --pytorch-profiler-collect-chakra --record-memory-history"},
    {"mixtures of experts; here every layer is dense",
     "--delay-wgrad-compute --ep-overlap-early-attn-memory-release --expert-tensor-parallel-num-weight-shards "
     "--high-priority-a2a-comm-stream --moe-apply-probs-on-input --moe-aux-loss-coeff --moe-deepep-num-sms "
     "--moe-enable-deepep --moe-enable-routing-replay --moe-expert-capacity-factor "
     "--moe-expert-rank-capacity-factor --moe-ffn-hidden-size --moe-flex-dispatcher-backend "
     "--moe-flex-dispatcher-num-sms --moe-grouped-gemm --moe-hybridep-num-blocks-permute "
     "--moe-hybridep-num-blocks-unpermute --moe-hybridep-num-sms --moe-hybridep-num-sms-preprocessing "
     "--moe-hybridep-pad-uneven-dispatch-inputs --moe-input-jitter-eps --moe-latent-size --moe-layer-freq "
     "--moe-layer-recompute --moe-mlp-glu-interleave-size --moe-ncclep-static-shape --moe-ncclep-zero-copy "
     "--moe-pad-expert-input-to-capacity --moe-pad-experts-for-cuda-graph-inference --moe-paged-stash "
     "--moe-paged-stash-buffer-size-factor-cpu --moe-paged-stash-buffer-size-factor-cuda "
     "--moe-paged-stash-page-size --moe-per-layer-logging --moe-permute-fusion --moe-permute-fusion-into-hybridep "
     "--moe-router-bias-update-rate --moe-router-dtype --moe-router-enable-expert-bias --moe-router-force-biased "
     "--moe-router-force-load-balancing --moe-router-fusion --moe-router-group-topk "
     "--moe-router-load-balancing-type --moe-router-num-groups --moe-router-padding-for-fp8 "
     "--moe-router-padding-for-quantization --moe-router-pre-softmax --moe-router-quantile-balancing-ema "
     "--moe-router-score-function --moe-router-topk --moe-router-topk-scaling-factor "
     "--moe-routing-trace-capture-hidden-states --moe-routing-trace-capture-logits "
     "--moe-routing-trace-dump-weights --moe-routing-trace-max-training-iters --moe-routing-trace-path "
     "--moe-shared-expert-gate --moe-shared-expert-glu-interleave-size --moe-shared-expert-intermediate-size "
     "--moe-shared-expert-overlap --moe-single-grouped-bias --moe-single-grouped-weight "
     "--moe-token-dispatcher-type --moe-token-drop-policy --moe-upcycling-granularity --moe-use-grouped-tensor "
     "--moe-use-upcycling --moe-z-loss-coeff --num-experts --overlap-dispatch-backward-with-experts-wgrad "
     "--overlap-moe-expert-parallel-comm --save-tokens-per-expert-interval --use-grouped-gemm-for-dense-mlp "
     "--use-grouped-gemm-for-shared-expert"},
    {"multi-latent attention",
     "--cache-mla-latents --kv-lora-rank --mla-down-proj-fusion --multi-latent-attention --q-lora-rank "
     "--qk-head-dim --qk-pos-emb-head-dim --rope-type --v-head-dim"},
    {"multi-token prediction",
     "--mtp-detach-heads --mtp-hsm --mtp-hybrid-override-pattern --mtp-loss-scaling-factor --mtp-num-layers "
     "--mtp-standalone --mtp-use-repeated-layer"},
    {"hybrid models: Mamba, linear and sparse attention, layers of several kinds",
     "--disable-dsa-indexer-rotate-activation --disable-dsa-indexer-scoring-relu --disable-mamba-mem-eff-path "
     "--dsa-indexer-head-dim --dsa-indexer-k-norm-epsilon --dsa-indexer-k-norm-fp32 --dsa-indexer-loss-coeff "
     "--dsa-indexer-n-heads --dsa-indexer-rope-interleaved --dsa-indexer-skip-topk-offset --dsa-indexer-topk "
     "--dsa-indexer-topk-freq --dsa-indexer-use-sparse-loss --dsa-kernel-backend --experimental-attention-variant "
     "--heterogeneous-layers-config-encoded-json --heterogeneous-layers-config-path --hybrid-layer-pattern "
     "--hybrid-override-pattern --inference-dynamic-batching-mamba-memory-ratio "
     "--inference-dynamic-batching-prefix-caching-mamba-gb --is-hybrid-model --linear-attention-freq "
     "--linear-conv-kernel-dim --linear-key-head-dim --linear-num-key-heads --linear-num-value-heads "
     "--linear-value-head-dim --mamba-head-dim --mamba-inference-conv-states-dtype "
     "--mamba-inference-ssm-states-dtype --mamba-num-groups --mamba-num-heads --mamba-state-dim "
     "--mamba-training-ssm-states-dtype --no-dsa-indexer-rotate-activation --no-dsa-indexer-scoring-relu"},
    {"text generation, which pretrain_gpt does not do",
     "--decode-only-cuda-graphs --enable-chunked-prefill --flash-decode --inference-batch-times-seqlen-threshold "
     "--inference-coordinator-port --inference-cuda-graph-all-prefills --inference-cuda-graph-max-tokens "
     "--inference-cuda-graph-scope --inference-disable-ep-consensus --inference-disable-triton-nvls-kernels "
     "--inference-dynamic-batching --inference-dynamic-batching-async-sched-mode "
     "--inference-dynamic-batching-block-size --inference-dynamic-batching-buffer-size-gb "
     "--inference-dynamic-batching-cuda-graph-mixed-prefill-count "
     "--inference-dynamic-batching-cuda-graph-sizing-distribution --inference-dynamic-batching-logprobs-mode "
     "--inference-dynamic-batching-max-requests --inference-dynamic-batching-max-tokens "
     "--inference-dynamic-batching-num-cuda-graphs --inference-dynamic-batching-paused-buffer-size-gb "
     "--inference-dynamic-batching-prefix-caching --inference-dynamic-batching-prefix-caching-coordinator-policy "
     "--inference-dynamic-batching-prefix-caching-eviction-policy "
     "--inference-dynamic-batching-prefix-caching-routing-alpha --inference-dynamic-batching-sampling-backend "
     "--inference-dynamic-batching-track-generated-token-events "
     "--inference-dynamic-batching-track-paused-request-events --inference-dynamic-batching-unified-memory-level "
     "--inference-fuse-tp-communication --inference-grouped-gemm-backend --inference-logging-step-interval "
     "--inference-max-requests --inference-max-seq-length --inference-moe-disable-fused-quant-kernels "
     "--inference-moe-token-dispatcher-type --inference-rng-tracker --inference-shards "
     "--inference-text-gen-server-logging --inference-use-synchronous-zmq-collectives --max-tokens-to-oom "
     "--mlp-chunks-for-prefill --nccl-all-reduce-for-prefill --no-inference-disable-ep-consensus "
     "--no-inference-dynamic-batching-prefix-caching --no-inference-text-gen-server-logging "
     "--no-inference-use-synchronous-zmq-collectives --num-speculative-tokens --symmetric-ar-type "
     "--use-legacy-static-engine --use-same-sampling-seed-across-dp-ranks"},
    {"other kinds of models than GPT",
     "--bert-embedder-type --bert-load --bert-no-binary-head --biencoder-projection-dim "
     "--biencoder-shared-query-context-model --block-data-path --classes-fraction --data-per-class-fraction "
     "--decoder-num-layers --dino-bottleneck-size --dino-freeze-last-layer --dino-head-hidden-size "
     "--dino-local-crops-number --dino-local-img-size --dino-norm-last-layer --dino-teacher-temp "
     "--dino-warmup-teacher-temp --dino-warmup-teacher-temp-epochs --embedding-path --evidence-data-path "
     "--freeze-all-layers --head-lr-mult --ict-head-size --ict-load --img-h --img-w --indexer-batch-size "
     "--indexer-log-interval --iter-per-epoch --mask-factor --mask-prob --mask-type --mrope-section --num-channels "
     "--num-classes --onnx-safe --output-bert-embeddings --patch-dim --query-in-block-prob "
     "--relative-attention-max-distance --relative-attention-num-buckets --retriever-report-topk-accuracies "
     "--retriever-score-scaling --short-seq-prob --swin-backbone-type --titles-data-path --use-one-sent-docs "
     "--vision-backbone-type --vision-pretraining --vision-pretraining-type"},
    {"fp8 and fp4",
     "--disable-fp8-wgrad --first-last-layers-bf16 --fp4-format --fp4-param-gather --fp4-quantizer-factory "
     "--fp4-recipe --fp8-amax-compute-algo --fp8-amax-history-len --fp8-format --fp8-interval --fp8-margin "
     "--fp8-output-proj --fp8-param-gather --fp8-quantizer-factory --fp8-recipe --keep-fp8-transpose-cache "
     "--kitchen-attention-backend --no-fp8-wgrad --num-layers-at-end-in-bf16 --num-layers-at-start-in-bf16 "
     "--reuse-grad-buf-for-mxfp8-param-ag --te-precision-config-file --use-kitchen-attention"},
    {"fully sharded data parallelism (FSDP)",
     "--create-all-gather-group --data-parallel-sharding-strategy --disable-strict-fsdp-dtensor-load "
     "--disable-symmetric-registration --enable-full-sharding-in-hsdp --fsdp-db-use-persist-buf-on-alloc-fail "
     "--fsdp-double-buffer --fsdp-manual-registration --megatron-fsdp-enable-fine-grained-param-gather "
     "--megatron-fsdp-grad-comm-dtype --megatron-fsdp-main-grads-dtype --megatron-fsdp-main-params-dtype "
     "--megatron-fsdp-max-pool-double-buffer --megatron-fsdp-version --no-gradient-reduce-div-fusion "
     "--no-strict-fsdp-dtensor-load --outer-dp-sharding-strategy --suggested-communication-unit-size "
     "--torch-fsdp2-no-reshard-after-forward --use-megatron-fsdp --use-nccl-ub --use-torch-fsdp2"},
    {"CUDA graphs of layers or of the optimizer; --cuda-graph-impl full_iteration is there",
     "--cuda-graph-modules --cuda-graph-scope --delay-offload-until-cuda-graph --enable-cuda-graph "
     "--external-cuda-graph --optimizer-cuda-graph"},
    {"tuning of communication",
     "--ddp-param-name-patterns-for-fp32-local-accumulation "
     "--ddp-reduce-scatter-with-fp32-accumulation "
     "--disable-clone-scatter-output-in-embedding --disable-flight-recorder-dump-on-timeout "
     "--disable-flight-recorder-extra-dump-on-exec --disable-flight-recorder-include-only-active "
     "--distribute-saved-activations --fake-process-group "
     "--flight-recorder-dump-path --flight-recorder-include-stack-trace --flight-recorder-trace-buffer-size "
     "--hierarchical-context-parallel-sizes --high-priority-stream-groups --hybrid-context-parallel "
     "--lazy-mpu-init --max-seqlen-per-dp-cp-rank --nccl-communicator-config-path "
     "--no-clone-scatter-output-in-embedding --no-flight-recorder-dump-on-timeout "
     "--no-flight-recorder-extra-dump-on-exec --no-flight-recorder-include-only-active "
     "--no-use-layer-wise-param-layout "
     "--overlap-param-gather-with-optimizer-step --pipeline-model-parallel-comm-backend "
     "--sharp-enabled-group --tensor-parallel-num-weight-shards "
     "--use-ring-exchange-p2p --use-sharp"},
    {"offloading to the host",
     "--activation-offload-fraction --cpu-offloading-num-layers --cpu-offloading-retain-pinned-cpu-buffers "
     "--delta-offload-bytes-across-pp-ranks --fine-grained-activation-offloading "
     "--fine-grained-offloading-max-inflight-offloads --min-offloaded-tensor-size --no-pin-cpu-grads "
     "--no-pin-cpu-params --offload-modules --optimizer-cpu-offload --optimizer-offload-fraction "
     "--overlap-cpu-optimizer-d2h-h2d --use-torch-optimizer-for-cpu-offload"},
    {"optimizers other than adam and sgd",
     "--dump-param-to-param-group-map --lion-beta1 --lion-beta2 --muon-coefficient-type --muon-extra-scale-factor "
     "--muon-fp32-matmul-prec --muon-momentum --muon-nesterov --muon-no-split-qkv --muon-num-ns-steps "
     "--muon-scalar-optimizer --muon-scale-mode --muon-tp-mode"},
    {"muP scaling",
     "--mup-attn-scale-power --mup-base-head-dim --mup-base-hidden-size --mup-embedding-mult --mup-output-mult "
     "--mup-width-mult --use-mup"},
    {"conversion of checkpoints from and to other forms than torch_dist, the only one here; Megatron-LM converts them",
     "--ckpt-convert-format --ckpt-convert-save --ckpt-convert-update-legacy-dist-opt-format"},
    {"checkpoints on the disk of each node; --non-persistent-ckpt-type global keeps them in one folder",
     "--non-persistent-local-ckpt-algo --non-persistent-local-ckpt-dir --replication --replication-factor "
     "--replication-jump"},
    {"parallel sizes from a checkpoint; every layout loads every checkpoint, so give the sizes that this run is to "
     "have",
     "--use-mp-args-from-checkpoint-args"},
    {"this option of checkpoints",
     "--disable-stream-ckpt-dequant --disable-use-tokenizer-model-from-checkpoint-args "
     "--no-stream-ckpt-dequant --no-use-tokenizer-model-from-checkpoint-args "
     "--save-activations-interval --save-dgrads-interval --save-params-interval --save-wgrads-interval"},
    {"this option of data",
     "--dataloader-defer-npy-index-mmap --dataloader-fast-cache-load --dataloader-inter-document-masking "
     "--disable-msc --enable-msc --fim-data --fim-eod-token --fim-fragment-rate --fim-middle-token --fim-no-prefix "
     "--fim-pad-token --fim-prefix-token --fim-rate --fim-split-sample --fim-spm-rate --fim-suffix-token "
     "--object-storage-cache-path --per-dataset-sequences-path --phase-transition-iterations --sample-rate --sft "
     "--sft-tokenizer-prompt-format"},
    {"this option of tokenizers", "--chat-template --tiktoken-special-tokens --tokenizer-metadata"},
    {"fault tolerance and checks across ranks",
     "--adlr-autoresume --adlr-autoresume-interval --exit-signal-handler-for-dataloader "
     "--exit-signal-handler-for-training --fault-injector-delay-start-iteration --fault-injector-fault-delay "
     "--fault-injector-fault-probabilities --fault-injector-fault-types --fault-injector-mtti-seconds "
     "--fault-injector-num-ranks --fault-injector-offset-seconds --fault-injector-ranks --fault-injector-seed "
     "--gpu-sniff-test-interval --inprocess-active-world-size --inprocess-barrier-timeout "
     "--inprocess-completion-timeout --inprocess-empty-cuda-cache --inprocess-granularity --inprocess-hard-timeout "
     "--inprocess-heartbeat-interval --inprocess-heartbeat-timeout --inprocess-last-call-wait "
     "--inprocess-max-iterations --inprocess-monitor-process-interval --inprocess-monitor-thread-interval "
     "--inprocess-progress-watchdog-interval --inprocess-restart --inprocess-soft-timeout "
     "--inprocess-termination-grace-time --run-workload-inspector-server"},
    {"this option of models and kernels",
     "--attention-output-gate --batch-invariant-mode --data-parallel-random-init --enable-experimental "
     "--flash-attention-version --fused-residual-rmsnorm --init-method-xavier-uniform "
     "--init-model-with-meta-device --mlp-chunks-for-training --output-logit-dtype --qk-clip --qk-clip-alpha "
     "--qk-clip-threshold --spec --use-fused-weighted-squared-relu --use-te-activation-func "
     "--use-transformer-engine-op-fuser --yaml-cfg"},
});

// Spellings that other scripts use for flags above; where one of those becomes a Field, so does its alias
// (Field::also).
struct Alias {
  std::string_view alias, flag;
};
constexpr auto kAliasesOfNotYet = std::to_array<Alias>({
    {"--fp8", "--fp8-format"},
    {"--fp8-hybrid", "--fp8-format"},
    {"--cpu-optimizer", "--optimizer-cpu-offload"},
    {"--cpu-optimizer-type", "--optimizer-cpu-offload"},
});

// What Megatron renamed, dropped, or accepts without doing it.
constexpr auto kInstead = std::to_array<Refusal>({
    {"give --micro-batch-size, the sequences of one pass, and --global-batch-size, those of a step", "--batch-size"},
    {"a flag of torchrun, which restarts ranks; start the command in a loop, or by torchrun (docs/launching.md)",
     "--max-restarts --max_restarts"},
    {"give --lr-warmup-fraction or --lr-warmup-iters", "--warmup"},
    {"give --tensor-model-parallel-size", "--model-parallel-size"},
    {"give --recompute-activations", "--checkpoint-activations"},
    {"give --apply-wd-to-qk-layernorm", "--no-weight-decay-cond-type"},
    {"a flag of older versions of Transformer Engine; give --no-tp-comm-overlap-ag",
     "--disable-tp-comm-split-ag --no-tp-comm-split-ag"},
    {"a flag of older versions of Transformer Engine; give --no-tp-comm-overlap-rs",
     "--disable-tp-comm-split-rs --no-tp-comm-split-rs"},
    {"what is gathered and scattered for and by weight gradients always overlaps with a product, with or without "
     "--tp-comm-overlap, and needs no buffers of its own; leave it out",
     "--disable-tp-comm-bulk-dgrad --disable-tp-comm-bulk-wgrad --no-tp-comm-bulk-dgrad --no-tp-comm-bulk-wgrad"},
    {"it is about the buffers of Transformer Engine, which are not needed here; leave it out, and give "
     "--tp-comm-overlap-ag-splits and --tp-comm-overlap-rs-splits",
     "--tp-comm-bootstrap-backend --tp-comm-overlap-cfg"},
});

}  // namespace

RefusedFlags refused_flags() {
  RefusedFlags refused;
  for (const Refusal& group : kNotYet)
    for (const std::string_view flag : words_in(group.flags))
      refused.emplace(flag, fmt::format("a flag of Megatron that megatron.cpp does not have yet: {}", group.reason));
  for (const Alias& other : kAliasesOfNotYet)
    refused.emplace(other.alias,
                    fmt::format("Megatron's flag is {}, {}", other.flag, refused.find(other.flag)->second));
  for (const Refusal& old : kInstead)
    for (const std::string_view flag : words_in(old.flags)) refused.emplace(flag, old.reason);
  return refused;
}

}  // namespace megatron
