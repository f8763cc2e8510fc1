#!/usr/bin/env python3
"""Loads a checkpoint of a distributed optimizer into Megatron Core's own model and DistributedOptimizer.

  load_with_megatron.py CHECKPOINT

CHECKPOINT is the iter_ directory of a run in bf16 or fp32 with: hidden size 32, 4 heads, 16 positions, 61 tokens padded to 64,
tied embeddings, --use-distributed-optimizer. Exits with an error unless weights, what the optimizer steps (in bf16 the
master weights), both moments and the number of steps arrive bit by bit. On the CPU; calls that name a CUDA device are sent there.
"""
import os
import shutil
import sys
import tempfile
import types
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict


def send_cuda_to_cpu():
    for name in ("tensor", "zeros", "empty", "ones", "full", "empty_like", "zeros_like"):
        def on_cpu(*args, _real=getattr(torch, name), **options):
            if "cuda" in str(options.get("device")):
                options["device"] = "cpu"
            return _real(*args, **options)
        setattr(torch, name, on_cpu)
    torch.cuda.current_device = lambda: "cpu"
    for name in ("synchronize", "empty_cache", "manual_seed", "set_device", "set_rng_state"):
        setattr(torch.cuda, name, lambda *args, **options: None)
    torch.cuda.get_rng_state = lambda *args, **options: torch.zeros(16, dtype=torch.uint8)
    torch.cuda.get_device_properties = lambda *args: types.SimpleNamespace(major=9, minor=0, name="", total_memory=0)
    torch.cuda.get_device_capability = lambda *args: (9, 0)
    real_type = torch.Tensor.type
    def cuda_type(self, *args, **options):
        if args or options:
            return real_type(self, *args, **options)
        return real_type(self).replace("torch.", "torch.cuda.", 1)
    torch.Tensor.type = torch.nn.Parameter.type = cuda_type
    torch.Tensor.cuda = lambda self, *args, **options: self


def read_all(folder):
    state = {}
    _load_state_dict(state, dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


def make_model_and_optimizer(num_layers, bf16):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    dtype = torch.bfloat16 if bf16 else torch.float32
    config = TransformerConfig(num_layers=num_layers, hidden_size=32, num_attention_heads=4, use_cpu_initialization=True,
                               params_dtype=dtype, bf16=bf16, gradient_accumulation_fusion=False)
    model = GPTModel(config, get_gpt_layer_local_spec(), 64, 16, share_embeddings_and_output_weights=True,
                     position_embedding_type="learned_absolute").to(dtype)
    ddp = DistributedDataParallel(
        config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=0.0, weight_decay=0.01, bf16=bf16,
                        params_dtype=dtype, use_distributed_optimizer=True), [ddp])
    return model, optimizer


def tensors_of(state):
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
    for value in nested_values(state):
        if isinstance(value, ShardedTensorFactory):
            yield from tensors_of(value.build())
        elif isinstance(value, ShardedTensor):
            yield value


def main(folder):
    send_cuda_to_cpu()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    import megatron.core
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)

    stored = read_all(folder)
    common = stored["common_state/shard_0_1"][0]
    copy = os.path.join(tempfile.mkdtemp(), "iter")
    shutil.copytree(folder, copy)
    torch.save(common, os.path.join(copy, "common.pt"))  # where Megatron Core up to 0.16 looks for it

    model, optimizer = make_model_and_optimizer(common["args"].num_layers, common["args"].bf16)
    metadata = dict(common["content_metadata"],
                    dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))

    def state_of(is_loading):
        state = {"model": model.sharded_state_dict(metadata=metadata)}
        state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=is_loading, metadata=metadata)
        return state

    for parameter in model.parameters():  # other state than the stored one; torch's AdamW has none before its first step
        parameter.main_grad.fill_(0.5)
    optimizer.step()
    # Up to 0.16 the state of torch's AdamW, which stands in for the fused one, has a step that the form on disk has not.
    base = type(getattr(optimizer, "chained_optimizers", [optimizer])[0])
    set_state = base._set_main_param_and_optimizer_states
    base._set_main_param_and_optimizer_states = lambda self, parameter, tensors: set_state(
        self, parameter, {"step": torch.tensor(float(num_steps)), **tensors})
    num_steps = common["optimizer"]["optimizer"]["param_groups"][0]["step"]
    loaded = dist_checkpointing.load(state_of(True), copy, strict="log_all")  # layers ask for an extra state of fp8
    model.load_state_dict(loaded["model"], strict=False)
    optimizer.load_state_dict(loaded["optimizer"])

    num_equal = {"weights": 0, "optimizer": 0}
    for tensor in tensors_of(state_of(False)):
        if tensor.data is None:
            continue
        where = tuple(slice(begin, begin + size) for begin, size in
                      zip(tensor.global_offset, (1,) * tensor.prepend_axis_num + tuple(tensor.local_shape)))
        expected = stored[tensor.key][where].reshape(tensor.data.shape)
        assert torch.equal(tensor.data, expected), tensor.key
        num_equal["optimizer" if tensor.key.startswith("optimizer.") else "weights"] += 1
    assert num_equal["optimizer"] == 3 * num_equal["weights"] > 0, num_equal
    groups = optimizer.param_groups
    stored_groups = common["optimizer"]["optimizer"]["param_groups"]
    assert sorted(g["wd_mult"] for g in groups) == sorted(g["wd_mult"] for g in stored_groups), groups
    assert {float(g["step"]) for g in groups} == {float(stored_groups[0]["step"])}, groups
    print(f"Megatron Core {megatron.core.__version__}, {next(model.parameters()).dtype}: {num_equal['weights']} weights and "
          f"{num_equal['optimizer']} tensors of the optimizer are equal")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
