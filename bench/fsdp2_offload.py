#!/usr/bin/env python3
"""The decoder of gpu_table trained with FSDP2's CPU offload on one GPU: gpu_table starts this for its cell `fsdp2_offload`.

    bench/fsdp2_offload.py --result cell.json --layers 24 --heads 16 --width 2048 --context 2048 --batch 8

Parameters, gradients and the optimizer's state lie in pinned host memory. Each block's parameters are on the GPU while it computes, and the
processor's fused AdamW updates them. The group has one rank. The result has gpu_table's form; its numbers are not the plain cell's, since
bf16 is FSDP2's own (bf16 parameters on the GPU, float32 reductions), not autocast.
"""
import argparse
import json
import struct
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "heads", "width", "context", "batch", "steps", "warm-up"):
        parser.add_argument(f"--{name}", type=int, default=4)
    parser.add_argument("--small", action="store_true", help="float32, attention written out, 97 symbols: for the simulated GPU")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--result", required=True)
    return parser.parse_known_args()[0]  # gpu_table's words for its own cells say nothing here


def make_decoder(options, symbols):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            width = options.width
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x):
            count, length, width = x.shape
            q, k, v = self.attention(x).view(count, length, 3, options.heads, width // options.heads).permute(2, 0, 3, 1, 4).unbind()
            if options.small:
                future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = (q @ k.transpose(-2, -1)) / (width // options.heads) ** 0.5
                mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
            else:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.projection(mixed.transpose(1, 2).reshape(count, length, width))

        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(symbols, options.width), nn.Embedding(options.context, options.width)
            self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
            self.norm, self.head = nn.LayerNorm(options.width), nn.Linear(options.width, symbols, bias=False)

        def forward(self, tokens):
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Decoder()


def shard(model, small):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy() if small else MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how = {"mesh": init_device_mesh("cuda", (1,)), "mp_policy": policy, "offload_policy": CPUOffloadPolicy(pin_memory=True)}
    for block in model.blocks:
        fully_shard(block, **how)
    return fully_shard(model, **how)


def main():
    options = arguments()
    try:
        import torch
    except ImportError as missing:
        sys.exit(f"{sys.executable} has no torch ({missing}); name one that has by VEDETTE_PYTHON")
    from torch.nn import functional

    torch.use_deterministic_algorithms(options.deterministic)
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
    symbols = 97 if options.small else 50257
    torch.manual_seed(1)
    model = shard(make_decoder(options, symbols), options.small)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    text, count = torch.randint(symbols, (1 << 16,)), options.batch * options.context
    losses, step_ms = [], []
    for step in range(options.warm_up + options.steps):
        began = time.perf_counter()
        first = step * count % (len(text) - count - 1)
        tokens, targets = (text[at:at + count].view(options.batch, options.context).to("cuda") for at in (first, first + 1))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(struct.unpack("I", struct.pack("f", loss.item()))[0])
        del loss, tokens, targets
        if step >= options.warm_up:
            step_ms.append((time.perf_counter() - began) * 1e3)
    told = {"way": "fsdp2_offload", "budget": 0, "step_ms": step_ms, "peak_bytes": torch.cuda.max_memory_allocated(), "losses": losses, "joules": None}
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(told, file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
