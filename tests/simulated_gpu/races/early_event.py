"""A layer's weights give their memory to the next layer's behind an event of forward's end, while the backward of a checkpoint
still computes with them (OneTrainer#1306). --repaired: the event is recorded behind backward."""
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

main, transfer = torch.cuda.current_stream(), torch.cuda.Stream()
repaired = "--repaired" in sys.argv
next_weights = torch.ones(64, 64).pin_memory()
weights = torch.randn(64, 64, device="cuda", requires_grad=True)
values = torch.randn(8, 64, device="cuda", requires_grad=True)
used = torch.cuda.Event()

loss = checkpoint(lambda x: torch.tanh(x @ weights), values, use_reentrant=True).sum()
used.record(main)
loss.backward()  # unordered: first
if repaired:
    used.record(main)
transfer.wait_event(used)
with torch.cuda.stream(transfer):
    weights.data.copy_(next_weights, non_blocking=True)  # unordered: then
torch.cuda.synchronize()
time.sleep(0.5)  # autograd's thread lets go of the graph, for which it needs Python
