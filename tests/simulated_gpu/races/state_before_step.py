"""The optimizer's state is copied to the host on a transfer stream before the step has written it (DeepSpeed#8186).
--repaired: the transfer stream waits for the step."""
import sys

import torch

transfer = torch.cuda.Stream()
layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(layer.parameters(), foreach=False)
layer(torch.randn(8, 64, device="cuda")).sum().backward()
hosts = {parameter: torch.empty(parameter.shape, pin_memory=True) for parameter in layer.parameters()}


def save_state():
    if "--repaired" in sys.argv:
        transfer.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(transfer):
        for parameter, host in hosts.items():
            host.copy_(optimizer.state[parameter]["exp_avg"], non_blocking=True)  # unordered: then


optimizer.step()  # unordered: first
save_state()
torch.cuda.synchronize()
