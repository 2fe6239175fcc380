"""Operators that touch few rows of a large tensor that persists: look-ups, changes, slices. Each is a step of its own, beside weights that
each step changes. For CPU and GPU memory, plain and guarded: the bytes that a step moves."""

import contextlib

import torch

rows, width, looked_up = 2048, 512, 64  # 4 MiB, rows of 2 KiB


def index_select(memory, x, numbers):
    x.copy_(memory.index_select(0, numbers))


def indexing(memory, x, numbers):
    x.copy_(memory[numbers])


def embedding(memory, x, numbers):
    x.copy_(torch.nn.functional.embedding(numbers, memory))


def gather(memory, x, numbers):
    x.copy_(memory.gather(0, numbers.unsqueeze(1).expand(-1, width)))


def gather_in_rows(memory, x, numbers):
    x.copy_(memory[100 : 100 + looked_up].gather(1, (numbers % width).unsqueeze(1)).expand(-1, width))


def index_copy_(memory, x, numbers):
    memory.index_copy_(0, distinct(numbers), x)


def index_put_(memory, x, numbers):
    memory[distinct(numbers)] = x


def index_add_(memory, x, numbers):
    memory.index_add_(0, distinct(numbers), x)


def index_fill_(memory, x, numbers):
    memory.index_fill_(0, numbers, 1.5)


def scatter_(memory, x, numbers):
    memory.scatter_(0, distinct(numbers).unsqueeze(1).expand(-1, width), x)


def scatter_add_(memory, x, numbers):
    memory.scatter_add_(0, distinct(numbers).unsqueeze(1).expand(-1, width), x)


def slice_that_is_read(memory, x, numbers):
    x.copy_(memory[1000 : 1000 + looked_up] * 0.5)


def slice_that_is_written(memory, x, numbers):
    memory[1200 : 1200 + looked_up] = x


def slice_that_is_changed(memory, x, numbers):
    memory[1400 : 1400 + looked_up].add_(x)


def row_that_is_written(memory, x, numbers):
    memory[7].copy_(x[0])


def slice_in_a_list(memory, x, numbers):
    x.copy_(torch.cat([memory[10 : 10 + looked_up // 2], x[: looked_up // 2]]))


def columns_of_a_block(memory, x, numbers):
    x.copy_(memory.view(8, 256, width)[2, :looked_up, :] + 1)


programs = (index_select, indexing, embedding, gather, gather_in_rows, index_copy_, index_put_, index_add_, index_fill_, scatter_, scatter_add_,
            slice_that_is_read, slice_that_is_written, slice_that_is_changed, row_that_is_written, slice_in_a_list, columns_of_a_block)


def distinct(numbers):  # two that are equal leave the order of writes open
    return (numbers // looked_up * looked_up + torch.arange(looked_up, device=numbers.device)) % rows


def run(program, device, guard=None, steps=10):
    """All bytes at the end, and of the last steps the bytes in, out and used in place, a step."""
    draws = torch.Generator().manual_seed(3)
    filled = torch.Generator().manual_seed(5)
    step = guard.step if guard else contextlib.nullcontext
    with step():
        memory = torch.rand(rows, width, generator=filled).to(device)
        x = torch.rand(looked_up, width, generator=filled).to(device)
        weights = [torch.rand(512, width, generator=filled).to(device) for _ in range(2)]  # 1 MiB each
    moved = []
    for number in range(steps):
        before = guard.counters if guard else None
        numbers = torch.randint(rows, (looked_up,), generator=draws).to(device)
        with step():
            program(memory, x, numbers)
            for weight in weights:
                weight.mul_(1.001)
        if guard is None or number < steps - 5:
            continue
        now = guard.counters
        moved.append([getattr(now, what) - getattr(before, what) for what in ("bytes_in", "bytes_out", "bytes_in_place")])
    bits = [each.cpu().clone() for each in (memory, x, *weights)]
    return bits, [sum(what) // len(moved) for what in zip(*moved)] if moved else None


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


whole, weights = rows * width * 4, 2 << 20
