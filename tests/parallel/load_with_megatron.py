#!/usr/bin/env python3
"""Loads checkpoints into Megatron Core's own models and optimizers, as Megatron-LM's load_checkpoint does.

  load_with_megatron.py CASE...

Each CASE is a JSON object:
  folder     the iter_ directory of a run; the model is built from the arguments stored there
  tensor     tensor-parallel size of the load, default 1
  pipeline   pipeline-parallel size of the load, default 1; the rest of four ranks are data-parallel
  optimizer  "plain", "distributed", or "none" for --no-load-optim
  adam       "fused" (default) behaves as Transformer Engine's FusedAdam; "torch" is torch's AdamW
  strict     --dist-ckpt-strictness, default assume_ok_unexpected

Norms and linears ask for an extra state as Transformer Engine's do. Exits with an error unless weights, what the
optimizer steps, moments and the number of steps arrive bit by bit, the states of all generators can be set, and the next
step of the optimizer is that of torch's AdamW. On the CPU; calls that name a CUDA device are sent there.
"""
import json
import os
import random
import shutil
import sys
import tempfile
import types
import warnings

warnings.filterwarnings("ignore")

import numpy
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

NUM_RANKS = 4


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


class FusedAdam(torch.optim.Optimizer):
    """What Transformer Engine's does with its state: each group has an int `step`, a parameter has nothing but moments."""

    def __init__(self, params, lr, weight_decay, betas, eps, adam_w_mode=True, capturable=False):
        assert adam_w_mode and not capturable
        super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        dtypes = {"exp_avg": torch.float32, "exp_avg_sq": torch.float32}
        for state in self.state.values():
            for name, value in state.items():
                state[name] = value.to(dtypes[name])  # KeyError: 'step'

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            assert type(group["step"]) is int, group["step"]
            beta1, beta2 = group["betas"]
            corrections = [1 - beta ** group["step"] if group["bias_correction"] else 1 for beta in (beta1, beta2)]
            for parameter in group["params"]:
                if parameter.grad is None or parameter.numel() == 0:
                    continue
                state = self.state[parameter]
                for name in ("exp_avg", "exp_avg_sq"):
                    if name not in state:
                        state[name] = torch.zeros_like(parameter)
                state["exp_avg"].lerp_(parameter.grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                update = state["exp_avg"] / corrections[0] / ((state["exp_avg_sq"] / corrections[1]).sqrt() + group["eps"])
                parameter.sub_(group["lr"] * (update + group["weight_decay"] * parameter))


class ExtraStates:
    """Gives norms and linears an extra state and remembers which modules got theirs."""

    def __init__(self):
        from megatron.core.tensor_parallel import layers
        from megatron.core.transformer import transformer_block
        from megatron.core.transformer.torch_norm import WrappedTorchNorm
        self.received = set()
        received = self.received
        def set_extra_state(module, state):
            if state is not None and not isinstance(state, torch.Tensor):
                raise RuntimeError("Unsupported checkpoint format.")
            received.add(module)
        for linear in (layers.ColumnParallelLinear, layers.RowParallelLinear):
            linear.set_extra_state = set_extra_state
        def make_norm(*args, **options):
            norm = WrappedTorchNorm(*args, **options)
            norm.__class__ = type("NormWithExtraState", (type(norm),), dict(
                get_extra_state=lambda module: torch.empty(0, dtype=torch.uint8), set_extra_state=set_extra_state))
            return norm
        transformer_block.LayerNormImpl = type("Norm", (), {"__new__": lambda cls, *args, **options: make_norm(
            *args, **options)})

    def check(self, model):
        for name, module in model.named_modules():
            is_linear = type(module).__name__ in ("ColumnParallelLinear", "RowParallelLinear") and "decoder" in name
            if is_linear or type(module).__name__ == "NormWithExtraState":
                assert module in self.received, f"{name} has no extra state"


def use_adam(name):
    import megatron.core.optimizer as optimizers
    from megatron.core.optimizer import distrib_optimizer
    is_fused = name == "fused"
    optimizers.Adam = distrib_optimizer.Adam = FusedAdam if is_fused else torch.optim.AdamW
    optimizers.USING_PYTORCH_OPTIMIZER = not is_fused
    distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_TE_OPTIMIZER = is_fused


def read_all(folder):
    state = {}
    _load_state_dict(state, dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


def make_model_and_optimizer(args, case):
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    tensor, pipeline = case.get("tensor", 1), case.get("pipeline", 1)
    options = dict(activation_func=torch.nn.functional.silu, gated_linear_unit=True) if args.swiglu else {}
    config = TransformerConfig(
        num_layers=args.num_layers, hidden_size=args.hidden_size, num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_query_groups if args.group_query_attention else None,
        ffn_hidden_size=args.ffn_hidden_size, normalization=args.normalization, add_bias_linear=args.add_bias_linear,
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, pipeline_dtype=dtype,
        use_cpu_initialization=True, params_dtype=dtype, bf16=args.bf16, gradient_accumulation_fusion=False, **options)
    model = GPTModel(config, get_gpt_layer_local_spec(normalization=args.normalization), args.padded_vocab_size,
                     args.max_position_embeddings,
                     share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                     position_embedding_type=args.position_embedding_type,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage()).to(dtype)
    is_distributed = case["optimizer"] == "distributed"
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=is_distributed), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=args.lr, min_lr=args.min_lr, weight_decay=args.weight_decay, bf16=args.bf16, clip_grad=0.0,
        params_dtype=dtype, use_distributed_optimizer=is_distributed), [ddp])
    return model, optimizer


def give_gradients(model, value):
    for parameter in model.parameters():
        parameter.main_grad.fill_(value)


def tensors_of(state):
    """All sharded tensors but the gaps between the parameters of a bucket, which hold anything."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
    if isinstance(state, ShardedTensorFactory):
        yield from tensors_of(state.build())
    elif isinstance(state, ShardedTensor):
        yield state
    elif isinstance(state, dict):
        if "padding" in state and state["padding"].unwrap():
            return
        for value in state.values():
            yield from tensors_of(value)
    elif isinstance(state, list):
        for value in state:
            yield from tensors_of(value)


def inner_optimizers(optimizer):
    return [one.optimizer for one in getattr(optimizer, "chained_optimizers", [optimizer])]


def expected_steps(optimizer, gradient):
    """What torch's AdamW makes of each parameter that is stepped."""
    expected = []
    for inner in inner_optimizers(optimizer):
        for group in inner.param_groups:
            for parameter in group["params"]:
                own = parameter.detach().clone().requires_grad_()
                own.grad = torch.full_like(own, gradient)
                adam = torch.optim.AdamW([own], lr=group["lr"], betas=group["betas"], eps=group["eps"],
                                         weight_decay=group["weight_decay"])
                state = inner.state[parameter]
                adam.state[own] = {"step": torch.tensor(float(group.get("step", state.get("step", 0)))),
                                   **{name: state[name].clone() for name in ("exp_avg", "exp_avg_sq")}}
                adam.step()
                expected.append((parameter, own.detach()))
    return expected


def check_rng_state(state, args):
    """Sets all generators, as Megatron-LM does, and compares them with those of Megatron's seeds."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
    (own,) = state
    random.setstate(own["random_rng_state"])
    numpy.random.set_state(own["np_rng_state"])
    torch.set_rng_state(own["torch_rng_state"])
    seed = args.seed + 100 * parallel_state.get_pipeline_model_parallel_rank()
    assert random.getstate() == random.Random(seed).getstate()
    seeded = numpy.random.RandomState(seed).get_state()
    assert all(numpy.array_equal(one, other) for one, other in zip(numpy.random.get_state(), seeded))
    assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(seed).get_state())
    tensor_rank = parallel_state.get_tensor_model_parallel_rank()
    seeds = {"data-parallel-rng": seed, "model-parallel-rng": seed + 2718 + tensor_rank,
             "expert-parallel-rng": seed + 1024 + tensor_rank}
    tracker = own["rng_tracker_states"]
    assert tracker.keys() == seeds.keys()
    for name, cuda in [("data-parallel-rng", own["cuda_rng_state"]), *tracker.items()]:
        assert cuda.dtype == torch.uint8 and cuda.numel() == 16
        assert cuda.view(torch.int64).tolist() == [seeds[name], args.iteration << 32]
    get_cuda_rng_tracker().set_states(tracker)


def check_values(state, stored):
    num_equal = {"weights": 0, "optimizer": 0, "elements of the optimizer": 0}
    for tensor in tensors_of(state):
        if tensor.data is None:
            continue
        where = tuple(slice(begin, begin + size) for begin, size in
                      zip(tensor.global_offset, (1,) * tensor.prepend_axis_num + tuple(tensor.local_shape)))
        expected = stored[tensor.key][where].reshape(tensor.data.shape)
        assert torch.equal(tensor.data, expected), tensor.key
        if "optimizer." not in tensor.key:
            num_equal["weights"] += 1
            continue
        num_equal["optimizer"] += 1
        num_equal["elements of the optimizer"] += tensor.data.numel()
    return num_equal


def check_step(optimizer, model, gradient=0.25):
    give_gradients(model, gradient)
    expected = expected_steps(optimizer, gradient)
    assert optimizer.step()[0]
    for parameter, value in expected:
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-6, atol=1e-7)


def load_case(case, folder, extra_states):
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    parallel_state.initialize_model_parallel(case.get("tensor", 1), case.get("pipeline", 1))
    model_parallel_cuda_manual_seed(1)
    use_adam(case.get("adam", "fused"))
    common = dist_checkpointing.load_common_state_dict(folder)
    args, metadata = common["args"], dist_checkpointing.load_content_metadata(preloaded_state_dict=common)
    metadata["dp_cp_group"] = parallel_state.get_data_parallel_group(with_context_parallel=True)
    model, optimizer = make_model_and_optimizer(args, case)
    with_optimizer = case["optimizer"] != "none"
    ranks = [(parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_world_size()),
             (parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size())]
    is_same_layout = [size for rank, size in ranks] == [args.pipeline_model_parallel_size, args.tensor_model_parallel_size]

    def state_of(is_loading):
        state = {"model": model.sharded_state_dict(metadata=metadata)}
        if with_optimizer:
            state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=is_loading, metadata=metadata)
        return state

    give_gradients(model, 0.5)  # other state than the stored one
    optimizer.step()
    request = state_of(True)
    if is_same_layout:
        request["rng_state"] = ShardedObject("rng_state", [{}], tuple(size for rank, size in ranks),
                                             tuple(rank for rank, size in ranks),
                                             replica_id=parallel_state.get_data_parallel_rank(with_context_parallel=True))
    loaded = dist_checkpointing.load(request, folder, strict=case.get("strict", "assume_ok_unexpected"))
    model.load_state_dict(loaded["model"], strict=True)
    extra_states.check(model)
    if with_optimizer:
        optimizer.load_state_dict(loaded["optimizer"])
    else:
        optimizer.reload_model_params()
    if is_same_layout:
        check_rng_state(loaded["rng_state"], args)

    num_equal = check_values(state_of(False), read_all(folder))
    if with_optimizer:
        num_states = 3 if case["optimizer"] == "distributed" or args.bf16 else 2  # main parameters
        if metadata.get("distrib_optim_sharding_type") == "dp_reshardable":  # parts of parameters in buckets
            own = sum(parameter.numel() for inner in inner_optimizers(optimizer) for group in inner.param_groups
                      for parameter in group["params"])
            assert num_equal["elements of the optimizer"] == num_states * own > 0, (num_equal, own)
        else:
            assert num_equal["optimizer"] == num_states * num_equal["weights"] > 0, num_equal
        if case.get("adam", "fused") == "fused":
            assert {group["step"] for group in optimizer.param_groups} == {args.iteration}, optimizer.param_groups
        check_step(optimizer, model)
    parallel_state.destroy_model_parallel()
    return f"{num_equal['weights']} weights and {num_equal['optimizer']} tensors of the optimizer are equal"


def main(rank, cases, scratch):
    torch.set_num_threads(1)
    send_cuda_to_cpu()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(NUM_RANKS))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=NUM_RANKS,
                                         store=torch.distributed.FileStore(os.path.join(scratch, "store"), NUM_RANKS))
    import megatron.core
    extra_states = ExtraStates()
    for number, text in enumerate(cases):
        case, copy = json.loads(text), os.path.join(scratch, str(number))
        if rank == 0:
            shutil.copytree(case["folder"], copy)
            # Megatron Core up to 0.16 looks for the common state in a file of its own.
            torch.save(read_all(copy)["common_state/shard_0_1"][0], os.path.join(copy, "common.pt"))
        torch.distributed.barrier()
        try:
            report = load_case(case, copy, extra_states)
        except Exception as error:
            raise RuntimeError(f"rank {rank}: {text}") from error
        if rank == 0:
            print(f"Megatron Core {megatron.core.__version__}, {text}: {report}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (sys.argv[1:], directory), NUM_RANKS)
