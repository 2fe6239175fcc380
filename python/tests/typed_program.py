"""A program by the type stubs, for types_test.py: checked, never run. A line that ends in a comment "wrong" is one that they refuse."""

import torch
import vedette


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    said: list[str] = []
    with vedette.Guard("2GiB", slow="nvme:/data", policy="vedette", chunk="2MiB", record="run.vedette", on_message=said.append) as guard:
        guard.watch(model)
        guard.watch(optimizer)
        for _ in range(3):
            with guard.step(), guard.layer("name"):
                loss: torch.Tensor = model(torch.randn(3)).sum()
                vedette.step_in_backward(optimizer, loss.backward)
        with guard.resident(torch.zeros(3)):
            pass
        guard.bring_home()
        phase: str = guard.phase
        counters: vedette.Counters = guard.counters
        return counters.bytes_in + guard.budget + guard.smallest_budget + len(phase)


def sizes(fraction: float) -> None:
    for size in (2**30, "25%", fraction):
        vedette.Guard(size, slow="host").close()
    try:
        vedette.Guard("2GiB", slow="nvme:/data", fast="gpu:0", table_memory="1GiB")
    except vedette.Failure as failure:
        print(failure.cause, failure.errno + 1)


def mistakes(guard: vedette.Guard) -> None:
    guard.watch("model")  # wrong
    guard.stepp()  # wrong
    vedette.Guard(b"2GiB", slow="host")  # wrong
    vedette.Guard("2GiB", slow="host", recompute="perhaps")  # wrong
    cause: int = vedette.Failure("no").cause  # wrong
    print(cause)
