# shellcheck shell=bash disable=SC2034
# Flags of models and of precisions, for scripts that source this file.

# fp32 states with the distributed optimizer: 6 + 12 / DP bytes a parameter. 10 bytes: bf16 weights, gradients and moments,
# and what bf16 weights lack of fp32 ones; names of cases say 12 B, as stored results do, which it is with fp32 gradients. 8 bytes:
# without that, weights rounded stochastically.
readonly ten_bytes=(--use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16
  --main-grads-dtype bf16)
readonly eight_bytes=("${ten_bytes[@]}" --main-params-dtype bf16)
readonly overlapped=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)

llama3() { # LAYERS SEQUENCE
  echo --num-layers "$1" --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
    --num-query-groups 8 --seq-length "$2" --position-embedding-type rope --rotary-base 500000 --normalization RMSNorm \
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --tokenizer-type NullTokenizer --vocab-size 128255 --bf16
}

gpt2() { # LAYERS HIDDEN HEADS
  echo --num-layers "$1" --hidden-size "$2" --num-attention-heads "$3" --seq-length 1024 --tokenizer-type NullTokenizer \
    --vocab-size 50256 --bf16
}

qwen2() { # LAYERS HIDDEN FFN HEADS GROUPS VOCABULARY
  echo --num-layers "$1" --hidden-size "$2" --ffn-hidden-size "$3" --num-attention-heads "$4" --group-query-attention \
    --num-query-groups "$5" --seq-length 1024 --position-embedding-type rope --rotary-base 1000000 --normalization RMSNorm \
    --swiglu --disable-bias-linear --add-qkv-bias --tokenizer-type NullTokenizer --vocab-size "$6" --bf16
}

# Layers whose feed-forward is a mixture of experts, with tokens spread evenly, as the measured rows of Megatron Core have it.
experts() { # LAYERS HIDDEN FFN EXPERTS TOP_K HEADS GROUPS VOCABULARY
  echo --num-layers "$1" --hidden-size "$2" --ffn-hidden-size "$3" --num-experts "$4" --moe-router-topk "$5" \
    --num-attention-heads "$6" --group-query-attention --num-query-groups "$7" --seq-length 4096 --position-embedding-type rope \
    --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights \
    --moe-router-force-load-balancing --tokenizer-type NullTokenizer --vocab-size "$8" --bf16
}
mixtral() { # LAYERS EXPERTS
  experts "$1" 4096 14336 "$2" 2 32 8 31999
}
qwen3_moe() { # LAYERS EXPERTS
  echo "$(experts "$1" 2048 768 "$2" 8 32 4 151935)" --kv-channels 128 --qk-layernorm
}
