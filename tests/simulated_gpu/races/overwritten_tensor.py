"""Saved tensors leave to the host and come back on a transfer stream, into memory of that stream's. A tensor whose last reference is gone gives
its memory to the next one that comes back, while backward may still read it (trl#7195: targets became garbage).
--repaired: the allocator is told that backward's stream uses the tensor, too."""
import sys
import time

import torch

main, transfer = torch.cuda.current_stream(), torch.cuda.Stream()
torch.manual_seed(1)


def leave(tensor):
    transfer.wait_stream(main)
    with torch.cuda.stream(transfer):
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
    tensor.record_stream(transfer)
    return host


def come_back(host):
    with torch.cuda.stream(transfer):
        tensor = torch.empty(host.shape, dtype=host.dtype, device="cuda")
        tensor.copy_(host, non_blocking=True)  # unordered: then
    main.wait_stream(transfer)
    if "--repaired" in sys.argv:
        tensor.record_stream(main)
    return tensor


labels = torch.randint(0, 8, (16, 9), device="cuda")
layers = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())], torch.nn.Linear(64, 64)).cuda()
values = torch.randn(16, 64, device="cuda")
with torch.autograd.graph.saved_tensors_hooks(leave, come_back):
    logits = layers(values).reshape(16, 8, 8)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
loss.backward()  # unordered: first
torch.cuda.synchronize()
time.sleep(0.5)  # autograd's thread lets go of the graph, for which it needs Python
