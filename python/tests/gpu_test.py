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


def convolve(device):
    """Also images and filters of one pixel, whose layout is whatever a kernel says."""
    import itertools

    import torch

    torch.manual_seed(3)
    seen = []
    for images, channels, filters, size, pixels in itertools.product((1, 2), (1, 3, 16), (1, 4, 16), (1, 3), (1, 2)):
        layer = torch.nn.Conv2d(channels, filters, size, padding=size // 2)
        start = torch.randn(images, channels, pixels, pixels)
        layer.to(device)
        for _ in range(3):  # the first call of a shape learns its results
            x = start.detach().clone().to(device).requires_grad_()
            y = layer(x)
            y.square().sum().backward()
            seen += [t.detach().cpu().numpy().tobytes() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)]
    return seen


def differentiate_forward(device):
    import torch

    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    x, tangent = torch.randn(16, 32), torch.randn(16, 32)
    model, x, tangent = model.to(device), x.to(device), tangent.to(device)

    def loss(x):
        return model(x).square().mean()

    results = []
    for _ in range(2):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.unpack_dual(loss(torch.autograd.forward_ad.make_dual(x, tangent)))
            results += [dual.primal, dual.tangent]
        results += [torch.func.jvp(loss, (x,), (tangent,))[1], torch.func.grad(loss)(x)]
        results += [torch.func.vmap(loss)(x), torch.func.jacfwd(lambda x: model(x).sum(0))(x[:2])]
    return [result.detach().cpu().numpy().tobytes() for result in results]


def copy_in_backward(device):
    """With Python's lock, on autograd's thread: numbers on the host are let go of while the device has yet to use them."""
    import torch

    class Copies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            for i in range(20):
                rows = torch.arange(i, i + 10)
                gradient = gradient.index_put((rows % gradient.shape[0],), gradient[rows % gradient.shape[0]] + i)
                del rows
                torch.ones(100 + i).untyped_storage().to(device=device)
            return gradient

    x = torch.ones(64, 64, device=device, requires_grad=True)
    for _ in range(5):
        Copies.apply(x).sum().backward()
    return x.grad.cpu().numpy().tobytes()


def device():
    """The device alone has the processor's bits."""
    for program in (convolve, differentiate_forward, copy_in_backward):
        assert program("cuda") == program("cpu"), program


def train_in_half():
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


def wrapped():
    """Trainings whose tensors stand inside of others have the plain run's bits at half of their memory."""
    import vedette
    from wrapped import trainings

    def train(kind, guard=None, steps=8):
        training = kind("cuda", guard.watch if guard else lambda tensor, name: None)
        numbers = []
        for i in range(steps):
            with guard.step() if guard else contextlib.nullcontext():
                numbers.append(training.step(i).tolist())
        return numbers

    for kind in [kind for kind in trainings if kind.on_simulated_gpu]:
        plain = train(kind)
        with vedette.Guard("256MiB", fast="gpu:0", slow="host", policy="on-demand") as guard:
            train(kind, guard, 3)
            peak = guard.counters.peak_bytes
        with vedette.Guard(peak // 2, fast="gpu:0", slow="host") as guard:
            assert train(kind, guard) == plain, kind.__name__
            print(f"{kind.__name__}: {guard.phase}, {peak // 2 >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB", flush=True)
            assert guard.counters.bytes_in > 0 and guard.counters.resident_max_bytes <= guard.budget


class OnASimulatedGpu(unittest.TestCase):
    def run_there(self, what):
        tree = pathlib.Path(__file__).resolve().parents[2]
        build = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
        if not (build / "tests/simulated_gpu/lib/preload").exists():
            self.skipTest("the simulated GPU of libtorch's device is not built: CUDA's headers are missing")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment |= {"VEDETTE_BUILD": str(build), "OMP_WAIT_POLICY": "passive"}
        done = subprocess.run([tree / "scripts/with_simulated_gpu", sys.executable, __file__, what.__name__], env=environment,
                              capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-3000:])
        print(done.stdout)
        self.assertTrue(done.stdout.endswith("the same bits\n"))

    def test_has_equal_bits(self):
        self.run_there(train_in_half)

    def test_the_device_alone_has_the_processors_bits(self):
        self.run_there(device)

    def test_trains_what_stands_inside_of_other_tensors(self):
        self.run_there(wrapped)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("the same bits")
