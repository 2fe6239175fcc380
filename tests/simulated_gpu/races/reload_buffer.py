"""State comes back layer by layer through one buffer, which the next layer's state overwrites while this one's is still read
(DeepSpeed#8186). --repaired: a copy into the buffer waits for its last reader."""
import sys

import torch

main, transfer = torch.cuda.current_stream(), torch.cuda.Stream()
hosts = [torch.full((64, 64), float(layer), pin_memory=True) for layer in range(3)]
weights = [torch.zeros(64, 64, device="cuda") for _ in hosts]
buffer = torch.zeros(64, 64, device="cuda")
transfer.wait_stream(main)
for host, weight in zip(hosts, weights):
    if "--repaired" in sys.argv:
        transfer.wait_stream(main)
    with torch.cuda.stream(transfer):
        buffer.copy_(host, non_blocking=True)  # unordered: then
    main.wait_stream(transfer)
    weight.add_(buffer)  # unordered: first
torch.cuda.synchronize()
