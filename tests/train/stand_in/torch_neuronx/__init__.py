"""Stands in for native TorchNeuron: the device's name and its process group backend, on the host. Only for tests."""

import types

import torch
import torch.distributed as dist

torch.utils.rename_privateuse1_backend("neuron")
torch._register_device_module("neuron", types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0))
dist.Backend.register_backend(
    "neuron", lambda store, rank, size, timeout: dist.ProcessGroupGloo(store, rank, size, timeout), devices=["neuron"]
)
