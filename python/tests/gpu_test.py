"""A guard of GPU memory in Python, on the simulated GPU of tests/simulated_gpu: the bits of the plain run, by a plan."""

import contextlib
import os
import pathlib
import subprocess
import sys
import unittest


def train(guard=None):
    import torch

    torch.manual_seed(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    losses = []
    for step in range(8):
        with guard.step() if guard else contextlib.nullcontext():
            x = torch.randn(512, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x
    return losses, [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]


def train_table(guard=None):
    import torch

    torch.manual_seed(2)
    table = torch.nn.Embedding(1 << 16, 64, sparse=True).to("cuda")  # 16 MiB
    optimizer = torch.optim.SGD(table.parameters(), lr=0.5)
    if guard:
        guard.watch(table)
    losses = []
    for step in range(6):
        with guard.step() if guard else contextlib.nullcontext():
            rows = torch.randint(0, 1 << 16, (256,), generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (table(rows) - 1).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, rows
    return losses, table.weight.detach().cpu().numpy().tobytes()


def main():
    import torch
    import vedette

    assert torch.cuda.is_available()
    plain = train()
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(guard) == plain
        peak = guard.counters.peak_bytes
    with vedette.Guard(peak // 2, fast="gpu:0", slow="host", on_message=print) as guard:
        assert train(guard) == plain
        assert guard.phase == "planned", guard.phase
        assert guard.counters.bytes_in > 0
        print(f"{guard.mechanism}: {guard.budget >> 10} of {peak >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB")
    plain = train_table()
    try:
        vedette.Guard("16MiB", fast="gpu:0", slow="host", table_memory="16MiB")
        raise AssertionError("a table's memory leaves nothing of the budget")
    except vedette.Failure as failure:
        assert "table_memory" in str(failure), failure
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", table_memory="4MiB", on_message=print) as guard:
        assert train_table(guard) == plain
        assert torch.cuda.memory_allocated() < 16 << 20, "a table of 16 MiB has 4 MiB of the GPU"
    print("the same bits")


class OnASimulatedGpu(unittest.TestCase):
    def test_has_equal_bits(self):
        tree = pathlib.Path(__file__).resolve().parents[2]
        build = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
        if not (build / "tests/simulated_gpu/lib/preload").exists():
            self.skipTest("the simulated GPU of libtorch's device is not built: CUDA's headers are missing")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment |= {"VEDETTE_BUILD": str(build), "OMP_WAIT_POLICY": "passive"}
        done = subprocess.run([tree / "scripts/with_simulated_gpu", sys.executable, __file__], env=environment, capture_output=True, text=True,
                              timeout=250)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-3000:])
        print(done.stdout)
        self.assertTrue(done.stdout.endswith("the same bits\n"))


if __name__ == "__main__":
    main()
