"""Each loop of loops.py has the plain run's bits in half and in a third of its memory, and where all that can be is recomputed: on the
CPU, and on the simulated GPU."""

import os
import unittest

import loops
import on_simulated_gpu
import torch
import vedette

torch.set_num_threads(1)


def numbers_of(things):
    for thing in things:
        if isinstance(thing, torch.optim.Optimizer):
            yield from (value for state in thing.state.values() for value in state.values() if torch.is_tensor(value))
        else:
            yield from thing.state_dict().values() if isinstance(thing, torch.nn.Module) else [thing]


def run(make, device, guard=None):
    """Its losses, and the bytes of what it ends with."""
    place = loops.Place(device, guard)
    step, things, *between = make(place)
    losses = []
    for number in range(loops.steps):
        try:
            with place.step():
                losses += step(number)
        except ArithmeticError as gives_up:
            losses.append(str(gives_up))
        for act in between:
            losses += act(number)
    return losses, [tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in numbers_of(things)
                    if torch.is_tensor(tensor)]


def compare(make, device, **options):
    plain = run(make, device)
    words = dict(slow="host", on_message=lambda sentence: None, **options)
    with vedette.Guard("400MiB", **words) as guard:
        run(make, device, guard)
        peak = guard.counters.peak_bytes
    for share, recompute in ((0.5, None), (0.3, None), (0.5, "always")):
        with vedette.Guard(max(int(peak * share), 2 << 20), recompute=recompute, **words) as guard:
            assert run(make, device, guard) == plain, (make.__name__, share, recompute)
            assert guard.counters.bytes_in > 0, "nothing has moved"


class OnTheCpu(unittest.TestCase):
    def test_has_equal_bits(self):
        for make in loops.all_loops:
            child = os.fork()  # a guard's tensors may outlive it, and count against the next budget
            if child == 0:
                compare(make, "cpu", chunk="16KiB")
                os._exit(0)
            with self.subTest(loop=make.__name__):
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


def on_the_device(make):
    def body():
        compare(make, "cuda", fast="gpu:0")

    body.__name__ = f"on_the_device_{make.__name__}"
    return body


bodies = {make.__name__: on_the_device(make) for make in loops.all_loops}
globals().update({body.__name__: body for body in bodies.values()})


class OnTheSimulatedGpu(on_simulated_gpu.Processes):
    functions = tuple(bodies.values())
    timeout = 3000

    def test_has_equal_bits(self):
        for name, body in bodies.items():
            with self.subTest(loop=name):
                self.run_there(body)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
