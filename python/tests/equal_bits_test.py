"""Training under a guard at a quarter of its memory gives the losses, parameters and optimizer state of a plain run, bit by bit, by a
plan and without a fault.
"""

import contextlib
import unittest

import torch
import vedette
from training import GPT, ResNet, Run, chunk, folder, images, peak_of, text
from wrapped import trainings

adam = {"foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True), "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4)}


class EqualBits(unittest.TestCase):
    steps = 10
    share = 0.25
    guarded = {}  # how the guarded run steps, where the plain one does not

    def compare(self, make, batch, optimizer=None, born_under_the_guard=True, **how):
        plain = Run(make, batch, optimizer).steps(self.steps, **how)
        wanted = plain.state()
        budget = int(peak_of(make, batch, optimizer, **how, **self.guarded) * self.share)
        with folder() as slow, vedette.Guard(budget, slow=f"nvme:{slow}", chunk=chunk) as guard:
            run = Run(make, batch, optimizer, lambda: guard, born_under_the_guard)
            run.steps(self.steps, **how, **self.guarded)
            counters = guard.counters
            self.assertEqual(run.losses, plain.losses)
            self.assertEqual(run.state(), wanted)
            self.assertGreater(len(wanted), 0)
            self.assertLessEqual(counters.resident_max_bytes, budget)
            self.assertGreater(counters.bytes_in, 0, "a budget this small must have moved something")
            self.assertEqual(guard.phase, "planned")
            print(f"{self.id()}: budget {budget >> 10} KiB, in {counters.bytes_in >> 20} MiB, faults of the steps {run.faults}")
            self.assertEqual(sum(run.faults[5:]), 0, f"faults after the profile: {run.faults}")

    def test_resnet(self):
        self.compare(ResNet, images)

    def test_resnet_made_before_the_guard(self):
        self.compare(ResNet, images, born_under_the_guard=False)

    def test_gpt_with_dropout(self):
        self.compare(GPT, text)

    def test_gpt_with_clipped_gradients(self):
        self.compare(GPT, text, clip=0.1)

    def test_gpt_with_a_fused_optimizer(self):
        self.compare(GPT, text, adam["fused"])

    def test_gpt_with_a_foreach_optimizer(self):
        self.compare(GPT, text, adam["foreach"])

    def test_resnet_with_sgd_and_accumulation(self):
        self.compare(ResNet, images, adam["sgd"], accumulate=2)


class StepInBackward(EqualBits):
    """The guarded run steps in backward, the plain one afterwards; and without a guard."""

    guarded = {"in_backward": True}
    test_gpt_with_clipped_gradients = None  # it looks at all gradients

    def test_is_the_plain_step(self):
        for make, batch in ((ResNet, images), (GPT, text)):
            after = Run(make, batch, adam["fused"]).steps(4)
            within = Run(make, batch, adam["fused"]).steps(4, in_backward=True)
            self.assertEqual(within.losses, after.losses)
            self.assertEqual(within.state(), after.state())

    def test_steps_what_only_an_earlier_pass_reached(self):
        def train(in_backward):
            torch.manual_seed(1)
            one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
            other(torch.ones(2, 4)).sum().backward()
            loss = one(torch.ones(2, 4)).square().sum()
            if in_backward:
                vedette.step_in_backward(optimizer, loss.backward)
            else:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return [p.tolist() for p in (*one.parameters(), *other.parameters())]

        self.assertEqual(train(True), train(False))

    def test_refuses_what_it_would_train_differently(self):
        layer = torch.nn.Linear(4, 4)
        loss = layer(torch.ones(2, 4)).sum()
        with self.assertRaisesRegex(vedette.Failure, "LBFGS looks at all gradients"):
            vedette.step_in_backward(torch.optim.LBFGS(layer.parameters()), loss.backward)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        handle = optimizer.register_step_post_hook(lambda *_: None)
        with self.assertRaisesRegex(vedette.Failure, "has hooks around its step"):
            vedette.step_in_backward(optimizer, loss.backward)
        handle.remove()

        class Counting(torch.optim.SGD):  # keeps a number for a whole group, as schedule-free optimizers do
            def step(self, closure=None):
                super().step(closure)
                for group in self.param_groups:
                    group["k"] = group.get("k", 0) + 1

        with self.assertRaisesRegex(vedette.Failure, "changes 'k' of a whole group"):
            vedette.step_in_backward(Counting(layer.parameters(), lr=0.1), loss.backward)

    def test_refuses_a_gradient_in_two_parts(self):
        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def two_passes():
            layer(torch.ones(2, 4)).sum().backward()
            layer(torch.ones(2, 4)).sum().backward()

        with self.assertRaisesRegex(vedette.Failure, "came in two parts"):
            vedette.step_in_backward(optimizer, two_passes)
        self.assertEqual([len(group["params"]) for group in optimizer.param_groups], [2])


class Wrapped(unittest.TestCase):
    """What a training uses stands inside of other tensors (wrapped.py), and its operators are announced all the same."""

    def train(self, kind, guard=None, steps=10):
        training = kind("cpu", guard.watch if guard else lambda tensor, name: None)
        numbers, faults = [], []
        for i in range(steps):
            before = guard.counters.faults if guard else 0
            with guard.step() if guard else contextlib.nullcontext():
                numbers.append(training.step(i).tolist())
            faults.append(guard.counters.faults - before if guard else 0)
        return numbers, faults

    def test_has_equal_bits_and_no_faults(self):
        for kind in trainings:
            with self.subTest(kind.__name__):
                plain, _ = self.train(kind)
                with vedette.Guard("1GiB", slow="host", chunk=chunk, policy="on-demand") as guard:
                    self.train(kind, guard, 3)
                    peak = guard.counters.peak_bytes
                with folder() as slow, vedette.Guard(peak // 2, slow=f"nvme:{slow}", chunk=chunk) as guard:
                    numbers, faults = self.train(kind, guard)
                    print(f"{kind.__name__}: {guard.phase}, {peak // 2 >> 10} KiB, in {guard.counters.bytes_in >> 20} MiB, faults {faults}")
                    self.assertEqual(numbers, plain)
                    self.assertGreater(guard.counters.bytes_in, 0)
                    self.assertLessEqual(guard.counters.resident_max_bytes, guard.budget)
                    self.assertEqual(sum(faults[5:]), 0)


if __name__ == "__main__":
    unittest.main()
