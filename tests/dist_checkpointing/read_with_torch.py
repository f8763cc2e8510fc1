#!/usr/bin/env python3
"""Reads a checkpoint with torch.distributed.checkpoint, and with Megatron Core where it is installed.

  read_with_torch.py CHECKPOINT EXPECTED.safetensors

Exits with an error unless tensors are those of EXPECTED, bit by bit, and the common state is what
reference_test.cpp wrote.
"""
import argparse
import io
import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

COMMON = "common_state/shard_0_1"


def compare(tensors, expected, reader):
    assert set(tensors) == set(expected), f"{reader}: {set(tensors) ^ set(expected)}"
    for key, tensor in tensors.items():
        assert tensor.dtype == expected[key].dtype and tensor.shape == expected[key].shape, f"{reader}: {key}"
        same = torch.equal(tensor.flatten().view(torch.uint8), expected[key].flatten().view(torch.uint8))
        assert same, f"{reader}: {key} has other values"
    print(f"{reader}: {len(tensors)} tensors are equal")


def check_common(state, reader):
    assert state["iteration"] == 10 and state["checkpoint_version"] == 3.0, reader
    args = state["args"]
    assert isinstance(args, argparse.Namespace) and vars(args) == {
        "num_layers": 2, "lr": 0.1, "tokenizer_type": "NullTokenizer", "bf16": True, "spec": None,
        "data_path": ["0.5", "a"], "params_dtype": torch.bfloat16}, reader
    group = state["optimizer"]["optimizer"]["param_groups"][0]
    assert group == {"lr": 0.25, "betas": (0.9, 0.95), "step": 2**40}, reader
    assert torch.equal(state["random"], torch.arange(16, dtype=torch.uint8)), reader
    print(f"{reader}: the common state is equal")


def read_with_torch(folder, expected):
    state = {}
    _load_state_dict(state, dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    compare(tensors, expected, "torch " + torch.__version__)
    check_common(state[COMMON][0], "torch")


def read_safely(folder):
    """Megatron reads the common state with torch's restricted unpickler, which must know every class in it."""
    metadata = dcp.FileSystemReader(folder).read_metadata()
    info = metadata.storage_data[MetadataIndex(COMMON)]
    with open(os.path.join(folder, info.relative_path), "rb") as file:
        file.seek(info.offset)
        blob = io.BytesIO(file.read(info.length))
    with torch.serialization.safe_globals([argparse.Namespace]):
        check_common(torch.load(blob, weights_only=True)[0], "torch, weights only")


def read_with_megatron(folder, expected):
    try:
        import megatron.core
        from megatron.core import dist_checkpointing
        from megatron.core.dist_checkpointing.mapping import ShardedTensor
    except ImportError as error:
        print(f"Megatron Core is not installed: {error}")
        return
    reader = "Megatron Core " + megatron.core.__version__
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    assert dist_checkpointing.check_is_distributed_checkpoint(folder)
    expected = {key: value for key, value in expected.items() if value.numel()}  # it never asks for empty tensors
    wanted = {key: ShardedTensor.from_rank_offsets(key, torch.empty_like(value)) for key, value in expected.items()}
    loaded = dist_checkpointing.load({"tensors": wanted}, folder)
    compare(loaded["tensors"], expected, reader)
    check_common(dist_checkpointing.load_common_state_dict(folder), reader)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    expected_tensors = load_file(sys.argv[2])
    read_with_torch(sys.argv[1], expected_tensors)
    read_safely(sys.argv[1])
    read_with_megatron(sys.argv[1], expected_tensors)
