"""A compiled GPT with dropout and embeddings under a guard of half of its GPU memory, as in triton_test.py: 24 kernels of inductor's,
among them random numbers, reductions in loops, and gradients of embeddings. The interpreter takes 4 s for a step."""

import contextlib

import on_simulated_gpu
import torch
import triton_test
from torch import nn
from training import GPT

symbols, length = 32, 32


class OnDevice(nn.Module):
    """GPT makes its positions on the processor."""

    def __init__(self):
        super().__init__()
        self.gpt = GPT(layers=2, heads=2, width=64, context=length, symbols=symbols, dropout=0.1)

    def forward(self, text):
        x = self.gpt.token(text) + self.gpt.position.weight[:text.shape[1]]
        for block in self.gpt.blocks:
            x = block(x, self.gpt.future[:text.shape[1], :text.shape[1]])
        return self.gpt.head(self.gpt.norm(x))


def train(_, guard=None):
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = OnDevice().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    forward = torch.compile(model)
    losses = []
    torch.manual_seed(3)
    for step in range(triton_test.steps):
        with guard.step() if guard else contextlib.nullcontext():
            text = torch.randint(0, symbols, (4, length + 1), generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = nn.functional.cross_entropy(forward(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, text
    return losses, [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]


def a_gpt():
    triton_test.start()
    triton_test.compare(None, train=train)


class WithTriton(triton_test.Processes):
    functions = (a_gpt,)

    def test_a_compiled_gpt_has_equal_bits(self):
        self.run_there(a_gpt)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
