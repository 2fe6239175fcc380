"""Training under a guard at a quarter of its memory gives the losses, parameters and optimizer state of a plain run, bit by bit, by a
plan and without a fault.
"""

import collections
import concurrent.futures
import contextlib
import functools
import os
import subprocess
import sys
import unittest

import torch
import vedette
from training import GPT, ResNet, Run, chunk, folder, images, patience, peak_of, text
from wrapped import trainings

adam = {"foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True), "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4)}


class Lookahead(torch.optim.Optimizer):
    """Every k steps the weights follow slow ones (Zhang et al., NeurIPS 2019)."""

    def __init__(self, optimizer, k):
        self.optimizer, self.k, self.count = optimizer, k, 0
        self.param_groups, self.state, self.defaults = optimizer.param_groups, collections.defaultdict(dict), optimizer.defaults
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}

    @torch.no_grad()
    def step(self, closure=None):
        self.optimizer.step(closure)
        self.count += 1
        for parameter in (parameter for group in self.param_groups for parameter in group["params"]):
            slow = self.state[parameter].setdefault("slow", parameter.clone())
            if self.count % self.k == 0:
                slow.lerp_(parameter, 0.5)
                parameter.copy_(slow)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


class Lamb(torch.optim.Optimizer):
    """A trust ratio for each parameter (You et al., ICLR 2020), of a gradient that is divided by the norm of all, if asked."""

    def __init__(self, parameters, lr=0.01, of_all=False):
        super().__init__(parameters, dict(lr=lr))
        self.of_all = of_all

    @torch.no_grad()
    def step(self, closure=None):
        parameters = [parameter for group in self.param_groups for parameter in group["params"] if parameter.grad is not None]
        norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm() if self.of_all else 1.0
        for parameter in parameters:
            moment = self.state[parameter].setdefault("moment", torch.zeros_like(parameter))
            moment.lerp_(parameter.grad / norm, 0.1)
            parameter.sub_(moment * (self.defaults["lr"] * parameter.norm().clamp(0.1) / moment.norm().clamp(1e-6)))


class AdamOfItsOwn(torch.optim.Adam):
    def step(self, closure=None):
        nn_clip = torch.nn.utils.clip_grad_norm_
        nn_clip([parameter for group in self.param_groups for parameter in group["params"]], 0.1)
        return super().step(closure)


steps = 10


@functools.cache
def plain_run(make, batch, optimizer, how):
    """Its losses and what it ends with: once for all tests that guard the same training."""
    run = Run(make, batch, optimizer).steps(steps, **dict(how))
    return run.losses, run.state()


class EqualBits(unittest.TestCase):
    share = 0.25
    guarded = {}  # how the guarded run steps, where the plain one does not

    def compare(self, make, batch, optimizer=None, born_under_the_guard=True, **how):
        losses, wanted = plain_run(make, batch, optimizer, tuple(how.items()))
        budget = int(peak_of(make, batch, optimizer, **how, **self.guarded) * self.share)
        with folder() as slow, vedette.Guard(budget, slow=f"nvme:{slow}", chunk=chunk) as guard:
            run = Run(make, batch, optimizer, lambda: guard, born_under_the_guard)
            run.steps(steps, **how, **self.guarded)
            counters = guard.counters
            self.assertEqual(run.losses, losses)
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
            vedette.step_in_backward(Counting(layer.parameters(), lr=0.1), loss.backward, per_parameter=True)

    def test_gives_the_steps_bits_or_refuses(self):
        """Whatever the optimizer: 13 steps within backward are those afterwards, or the first is refused and changes nothing."""
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
        optimizers = {
            "Lookahead, k = 3": (lambda p: Lookahead(sgd(p), 3), {}, "a Lookahead wraps another optimizer"),
            "Lookahead, k = 6": (lambda p: Lookahead(sgd(p), 6), {}, "a Lookahead wraps another optimizer"),
            "Lookahead by word": (lambda p: Lookahead(sgd(p), 3), {"per_parameter": True}, "a Lookahead wraps another optimizer"),
            "LAMB": (Lamb, {}, "a Lamb may look at more than one parameter's gradient"),
            "LAMB by word": (Lamb, {"per_parameter": True}, None),
            "the norm of all": (lambda p: Lamb(p, of_all=True), {}, "a Lamb may look at more than one"),
            "a subclass": (AdamOfItsOwn, {}, "an? AdamOfItsOwn may look at more than one"),
            "a subclass that changes nothing": (type("Same", (torch.optim.Adam,), {}), {}, "a Same may look at more than one"),
            "a step of the instance": (lambda p: setattr(one := sgd(p), "step", torch.optim.SGD.step.__get__(one)) or one, {},
                                       "may look at more than one"),
            "a scheduler": (lambda p: torch.optim.lr_scheduler.ConstantLR(sgd(p)).optimizer, {}, None),
            **{name: (lambda p, name=name: getattr(torch.optim, name)(p, lr=0.01), {}, None)
               for name in ("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")},
        }

        def train(make, words=None):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
            optimizer = make(model.parameters())
            before = [parameter.tolist() for parameter in model.parameters()]
            for i in range(13):
                loss = model(torch.randn(16, 32, generator=torch.Generator().manual_seed(i))).square().mean()
                try:
                    if words is not None:
                        vedette.step_in_backward(optimizer, loss.backward, **words)
                        continue
                except vedette.Failure as refused:
                    self.assertEqual([parameter.tolist() for parameter in model.parameters()], before)
                    return str(refused)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return [parameter.tolist() for parameter in model.parameters()]

        for name, (make, words, refusal) in optimizers.items():
            with self.subTest(name):
                within = train(make, words)
                if refusal is None:
                    self.assertEqual(within, train(make))
                else:
                    self.assertRegex(within, "^step_in_backward: .*" + refusal)

    def test_gives_the_bits_of_optimizers_that_share_among_ranks_or_refuses(self):
        """Each rank reduces its gradients to nothing itself: all have the same batches."""
        script = (
            "import sys, torch, vedette, torch.distributed as ranks\n"
            "from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer\n"
            "from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager\n"
            "ranks.init_process_group('gloo', store=ranks.FileStore(sys.argv[1], 2), rank=int(sys.argv[2]), world_size=2)\n"
            "def train(make, early):\n"
            "    torch.manual_seed(1)\n"
            "    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))\n"
            "    optimizer = make(model.parameters())\n"
            "    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)\n"
            "    for i in range(13):\n"
            "        loss = model(torch.randn(16, 32, generator=torch.Generator().manual_seed(i))).square().mean()\n"
            "        if early: vedette.step_in_backward(optimizer, loss.backward)\n"
            "        else: loss.backward(); optimizer.step(); optimizer.zero_grad()\n"
            "        scheduler.step()\n"
            "    return [p.tolist() for p in model.parameters()]\n"
            "zero = lambda p: ZeroRedundancyOptimizer(p, torch.optim.Adam, lr=0.01)\n"
            "assert train(zero, True) == train(zero, False)\n"
            "local = lambda p: PostLocalSGDOptimizer(torch.optim.SGD(p, lr=0.1), PeriodicModelAverager(2, 0))\n"
            "try: train(local, True)\n"
            "except vedette.Failure as refused: print(refused)\n")
        with folder() as place:
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
            pair = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", script, f"{place}/store", str(rank)], env=environment,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
            for rank in pair:
                told, errors = rank.communicate(timeout=patience)
                self.assertRegex(told, "a PostLocalSGDOptimizer wraps another optimizer", errors)

    def test_refuses_a_gradient_in_two_parts(self):
        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def two_passes():
            layer(torch.ones(2, 4)).sum().backward()
            layer(torch.ones(2, 4)).sum().backward()

        with self.assertRaisesRegex(vedette.Failure, "came in two parts"):
            vedette.step_in_backward(optimizer, two_passes)
        self.assertEqual([len(group["params"]) for group in optimizer.param_groups], [2])


class PlacedByName(unittest.TestCase):
    def test_moments_in_far_memory_have_equal_bits(self):
        for optimizer in ("foreach", "fused"):
            with self.subTest(optimizer):
                losses, wanted = plain_run(GPT, text, adam[optimizer], ())
                budget = peak_of(GPT, text, adam[optimizer]) // 2
                said = []
                with vedette.Guard(budget, slow="host@cxl-2025", chunk=chunk, on_message=said.append) as guard:
                    guard.place("*.exp_avg*", "slow", rule=True)
                    guard.place("no such name", "fast")
                    run = Run(GPT, text, adam[optimizer], lambda: guard).steps(steps)
                    counters = guard.counters
                    print(f"{self.id()}: {counters.bytes_in_place >> 10} KiB used in place, faults {run.faults}")
                    self.assertEqual((run.losses, run.state()), (losses, wanted))
                    self.assertLessEqual(counters.resident_max_bytes, budget)
                    self.assertGreater(counters.bytes_in_place, 0)
                    self.assertEqual(sum(run.faults[5:]), 0)
                    self.assertEqual(sum(sentence.startswith('place("no such name"): no tensor') for sentence in said), 1)
                    self.assertFalse([sentence for sentence in said if "without the rules" in sentence])


class TwoGuards(unittest.TestCase):
    """A student learns from a teacher that is trained, too: two guards share one budget."""

    def train(self, guards, steps=10):
        torch.manual_seed(4)
        teacher, student = (torch.nn.Sequential(*[layer for _ in range(5) for layer in (torch.nn.Linear(width, width), torch.nn.Tanh())])
                            for width in (192, 192))
        optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (teacher, student)]
        for guard, model, optimizer in zip(guards, (teacher, student), optimizers):
            guard.watch(model)
            guard.watch(optimizer)
        losses = []
        for i in range(steps):
            x = torch.randn(64, 192)
            with guards[0].step() if guards else contextlib.nullcontext():
                loss = (teacher(x) - x).square().mean()
                loss.backward()
                optimizers[0].step()
                optimizers[0].zero_grad()
                losses.append(loss.item())
            with guards[1].step() if guards else contextlib.nullcontext():
                with torch.no_grad():
                    wanted = teacher(x)
                loss = (student(x) - wanted).square().mean()
                loss.backward()
                optimizers[1].step()
                optimizers[1].zero_grad()
                losses.append(loss.item())
        return losses

    def test_have_equal_bits(self):
        plain = self.train([])
        with folder() as slow, vedette.Guard("1MiB", slow=f"nvme:{slow}", chunk=chunk) as one, vedette.Guard("512KiB") as other:
            self.assertEqual(one.budget, other.budget)
            self.assertLessEqual(one.budget, 3 << 19)
            self.assertEqual(self.train([one, other]), plain)
            self.assertEqual(one.phase, "planned")
            self.assertGreater(one.counters.bytes_in, 0)
            self.assertLessEqual(one.counters.resident_max_bytes, 3 << 19)
        self.assertIsNone(vedette.current_guard())


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

    def test_has_equal_bits_where_tensors_are_recomputed(self):
        for kind in trainings[:7]:  # the transforms: they have tensors of zeros without memory
            with self.subTest(kind.__name__):
                plain, _ = self.train(kind)
                with folder() as slow, vedette.Guard("1MiB", slow=f"nvme:{slow}", chunk=chunk, recompute="always") as guard:
                    self.assertEqual(self.train(kind, guard, 6)[0], plain[:6])


class Recomputed(unittest.TestCase):
    """An operator that runs again computes as it did, whatever the program has changed meanwhile."""

    def compare(self, budget, step, steps=8):
        def train(guard=None):
            torch.manual_seed(1)
            context, losses = {"watch": guard.watch if guard else lambda tensors: None}, []
            for number in range(steps):
                with guard.step() if guard else contextlib.nullcontext():
                    losses.append(step(number, context))
            return losses

        plain = train()
        with vedette.Guard(budget, slow="host", chunk=1 << 16, recompute="always") as guard:
            self.assertEqual(train(guard), plain)
            self.assertGreater(guard.counters.bytes_recomputed, 0)

    def test_with_the_settings_of_its_first_run(self):
        x, weight = torch.randn(2, 32, 40, 40), torch.randn(32, 32, 3, 3)

        def step(number, context):
            scaled, filters = x * 1.5, weight * 1.0
            with torch.backends.mkldnn.flags(enabled=number % 2 == 1):
                y = torch.nn.functional.conv2d(scaled, filters, padding=1)
            z = torch.tanh(scaled)
            for _ in range(8):
                z = torch.tanh(z + scaled)
            return (y * z).sum().item(), y.double().sum().item()

        self.compare("24MiB", step)

    def test_where_the_same_operator_ran_under_autocast(self):
        left, right = torch.full((4, 192, 192), 0.01), torch.full((4, 192, 192), 0.02)

        def step(number, context):
            if number >= 6:
                torch.sigmoid(left)  # another sequence of operators, all of which are known
            a, b = left * 2, right * 3
            with torch.autocast("cpu", dtype=torch.bfloat16):
                half = torch.bmm(a, b)
            whole = torch.bmm(a, b)
            z = whole
            for _ in range(6):
                z = torch.tanh(z + whole)
            return (z.sum() + half.float().sum()).item()

        self.compare("24MiB", step, steps=14)

    def compare_a_write(self, write):
        def step(number, context):
            y, other = torch.full((512, 256), 0.1 * number + 0.1) * 1.5, torch.full((512, 256), 0.5) * 0.5
            before = torch.sin(y)
            write(y)
            z, others = torch.tanh(y), [other]
            for _ in range(6):
                z = torch.tanh(z + 0.25)
                others.append(torch.tanh(others[-1] + other))
            return (y * z + before + sum(others)).double().sum().item()

        self.compare("8MiB", step, steps=10)

    def test_with_what_numpy_writes_after_the_operator(self):
        def write(y):
            y.numpy()[:] += 1.0

        self.compare_a_write(write)

    def test_with_what_another_thread_writes_after_the_operator(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            self.compare_a_write(lambda y: pool.submit(y.add_, 1.0).result())

    def test_not_from_what_another_library_has(self):
        def step(number, context):
            if number == 0:
                layer = context["layer"] = torch.nn.Linear(256, 256)
                layer.register_buffer("scale", torch.ones(512, 256))
                context["watch"](layer)
                context["numbers"] = layer.scale.numpy()
            layer = context["layer"]
            y = layer(torch.full((512, 256), 0.1 * number + 0.1))
            for _ in range(6):
                y = torch.tanh(y * layer.scale)
            context["numbers"] *= 0.9
            loss = y.square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.sub_(parameter.grad * 0.1)
                    parameter.grad = None
            return loss.item()

        self.compare("8MiB", step)


if __name__ == "__main__":
    unittest.main()
