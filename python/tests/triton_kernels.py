"""Kernels of a program's own for triton_test.py, and what calls them."""

import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


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


@triton.autotune([triton.Config({"B": 4096}), triton.Config({"B": 16384})], key=["n"])
@triton.jit
def timed_twice(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def twice(x, out):
    timed_twice[lambda chosen: (triton.cdiv(x.numel(), chosen["B"]),)](x, out, x.numel())


@triton.jit
def weighted_sum(tensors, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(tensors[0] + i, mask=i < n) + 2 * tl.load(tensors[1] + i, mask=i < n), mask=i < n)


@triton.jit
def twice_by_descriptors(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    out.store([row, column], 2 * x.load([row, column]))


class Linked(torch.autograd.Function):
    """2 x and x + 2 y, whose kernels are given a TensorDescriptor each for x and for the result, and a tuple."""

    @staticmethod
    def forward(ctx, x):
        double, out = torch.empty_like(x), torch.empty_like(x)
        block = [32, 128]
        descriptors = [TensorDescriptor.from_tensor(each, block) for each in (x, double)]
        twice_by_descriptors[(x.shape[0] // block[0], x.shape[1] // block[1])](*descriptors, *block)
        weighted_sum[(1,)]((x, double), out, x.numel(), B=triton.next_power_of_2(x.numel()))
        return out

    @staticmethod
    def backward(ctx, gradient):
        return 5 * gradient


class LinkedLayer(torch.nn.Module):
    def forward(self, x):
        return Linked.apply(x)


# --- an operator of the program's own, whose kernel runs on another stream, where no hook sees its launch


@torch.library.custom_op("vedette_test::silu_aside", mutates_args=())
def silu_aside(x: torch.Tensor) -> torch.Tensor:
    out, stream = torch.empty_like(x), aside()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launch_unseen(silu, triton.cdiv(x.numel(), block), x, out, x.numel())
    torch.cuda.current_stream().wait_stream(stream)
    return out


@torch.library.custom_op("vedette_test::silu_aside_backward", mutates_args=())
def silu_aside_backward(x: torch.Tensor, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    launch_unseen(silu_backward, triton.cdiv(x.numel(), block), x, y, gradient, out, x.numel())
    return out


silu_aside.register_autograd(lambda ctx, gradient: silu_aside_backward(*ctx.saved_tensors, gradient.contiguous()),
                             setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output))


@functools.cache
def aside():
    return torch.cuda.Stream()


def launch_unseen(kernel, programs, *arguments):
    type(kernel).run.__wrapped__(kernel, *arguments, grid=(programs,), warmup=False, B=block)


class SiluAside(torch.nn.Module):
    def forward(self, x):
        return silu_aside(x)


# --- an operator whose kernel has a tensor that the operator was not called with

_beside = []


@torch.library.custom_op("vedette_test::plus_what_lies_beside", mutates_args=())
def plus_what_lies_beside(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    weighted_sum[(1,)]((x, _beside[-1]), out, x.numel(), B=triton.next_power_of_2(x.numel()))
    return out


plus_what_lies_beside.register_autograd(lambda ctx, gradient: gradient)


class Plus(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("numbers", torch.linspace(-1, 1, 64 * 128).view(64, 128))
        self.may_move = False

    def forward(self, x):
        if not self.may_move:
            self.numbers.mul_(1)  # no operator has it from then on
        self.may_move = True
        _beside.append(self.numbers)
        out = plus_what_lies_beside(x)
        _beside.pop()
        return silu_aside(out)
