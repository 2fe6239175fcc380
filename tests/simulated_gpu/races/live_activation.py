"""In mid-backward state comes back into memory of an activation that backward is about to read (DeepSpeed#8186: NaN).
--repaired: it comes back when backward has read it."""
import sys
import time

import torch

main, transfer = torch.cuda.current_stream(), torch.cuda.Stream()
repaired = "--repaired" in sys.argv
state = torch.ones(64, 64).pin_memory()
first, second = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()


def reload_state():
    if repaired:
        transfer.wait_stream(main)
    with torch.cuda.stream(transfer):
        activation.data.copy_(state, non_blocking=True)  # unordered: first


activation = torch.relu(first(torch.randn(64, 64, device="cuda")))
loss = second(activation).sum()
transfer.wait_stream(main)
if not repaired:
    activation.register_hook(lambda gradient: reload_state())
loss.backward()  # unordered: then
if repaired:
    reload_state()
torch.cuda.synchronize()
time.sleep(0.5)  # autograd's thread lets go of the graph, for which it needs Python
