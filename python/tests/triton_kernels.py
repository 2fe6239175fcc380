"""Kernels of a program's own for triton_test.py, and what calls them."""

import torch
import triton
import triton.language as tl


@triton.jit
def silu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value * tl.sigmoid(value), mask=i < n)


@triton.jit
def silu_backward(x, y, gradient, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sigmoid(tl.load(x + i, mask=i < n))
    tl.store(out + i, tl.load(gradient + i, mask=i < n) * (part + tl.load(y + i, mask=i < n) * (1 - part)), mask=i < n)


block = 4096


class SiluFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        silu[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), B=block)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        out, gradient = torch.empty_like(x), gradient.contiguous()
        silu_backward[(triton.cdiv(x.numel(), block),)](x, y, gradient, out, x.numel(), B=block)
        return out


class Silu(torch.nn.Module):
    def forward(self, x):
        return SiluFunction.apply(x)


@triton.jit
def adam(weight, gradient, first, second, rate, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(gradient + i, mask=i < n)
    m = tl.load(first + i, mask=i < n) * 0.9 + g * 0.1
    v = tl.load(second + i, mask=i < n) * 0.999 + g * g * 0.001
    tl.store(first + i, m, mask=i < n)
    tl.store(second + i, v, mask=i < n)
    tl.store(weight + i, tl.load(weight + i, mask=i < n) - rate * m / (tl.sqrt(v) + 1e-8), mask=i < n)


class Adam(torch.optim.Optimizer):
    """All that a launch needs was last used a step ago, but for the gradient."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["first"], state["second"] = torch.zeros_like(weight), torch.zeros_like(weight)
                grid = (triton.cdiv(weight.numel(), block),)
                adam[grid](weight, weight.grad, state["first"], state["second"], group["lr"], weight.numel(), B=block)
