"""vedette.estimate: a step as a trace, by the operators that torch dispatches, and the answers of `vedette fits`."""

import functools
import json
import os
import subprocess
import tempfile
import unittest

import torch
import vedette
from torch import nn
from torch._subclasses import FakeTensorMode
from training import GPT, ResNet, Run, folder, images, peak_of, text
from vedette._estimate import _tool


def mlp():
    return nn.Sequential(nn.Flatten(), *[nn.Linear(784, 784) for _ in range(4)], nn.Linear(784, 10))


def vgg():
    widths = (1, 16, 32, 64)
    parts = [layer for inward, outward in zip(widths, widths[1:])
             for layer in (nn.Conv2d(inward, outward, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64 * 9, 128), nn.ReLU(), nn.Linear(128, 10))


class Rows(nn.Module):
    """A recurrent network over the rows of images."""

    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.recurrent, self.head = kind(28, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.recurrent(x.squeeze(1))[0][:, -1])


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5000, 16) for _ in range(4))
        self.top = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.top(torch.cat([table(x[:, i]) for i, table in enumerate(self.tables)], 1))


def clicks(generator, batch=256):
    return torch.randint(0, 5000, (batch, 4), generator=generator), torch.randint(0, 10, (batch,), generator=generator)


models = {"mlp": (mlp, images), "resnet": (ResNet, images), "gpt": (GPT, text)}
# Convolutions, attention, recurrence and tables, by both optimizers.
adamw, sgd = functools.partial(torch.optim.AdamW, lr=1e-3), functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)
six = {"mlp": (mlp, images, adamw), "resnet": (ResNet, images, sgd), "vgg": (vgg, images, sgd), "gpt": (GPT, text, adamw),
       "gru": (Rows, images, adamw), "recommender": (Recommender, clicks, sgd)}
least_recorded = 1024  # bytes: smaller tensors are none of the guard's


def plain_step(run):
    def step():
        run.loss().backward()
        run.optimizer.step()
        run.optimizer.zero_grad()

    return step


def recorded(make, batch, optimizer):
    """A step as a guard recorded it, and what `vedette fits` says of it."""
    with folder() as place:
        recording, step = os.path.join(place, "run.vedette"), os.path.join(place, "step.json")
        with vedette.Guard("1GiB", slow="host", chunk="64KiB", record=recording, verbose=False, on_message=lambda sentence: None) as guard:
            Run(make, batch, optimizer, lambda: guard).steps(4)
        subprocess.run([_tool(), "export", recording, "--to", "trace", "-o", step], check=True)
        done = subprocess.run([_tool(), "fits", recording, "--card", "h100", "--json"], capture_output=True, text=True, check=True)
        with open(step) as file:
            return json.load(file), json.loads(done.stdout)


def lasting(trace, *kinds):
    return sorted(each["bytes"] for each in trace["tensors"] if each["kind"] in kinds and each["persistent"] and each["bytes"] >= least_recorded)


def traced(step, **options):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "step.json")
        answer = vedette.estimate(step, trace=path, **options)
        with open(path) as file:
            return answer, json.load(file)


class Estimate(unittest.TestCase):
    def test_has_the_peak_of_a_guard_that_ran_the_step(self):
        for name, (make, batch) in models.items():
            with self.subTest(name):
                run = Run(make, batch)
                answer, _ = traced(run.one_step)
                self.assertAlmostEqual(answer["peak_bytes"] / peak_of(make, batch), 1, delta=0.05)  # scratch of operators
                self.assertGreater(answer["rows"][0]["moving_alone"][0], 0.99)

    def test_is_the_same_for_tensors_without_data(self):
        """All but times: operators, their operands, lives, kinds and shapes."""
        def facts(trace):
            return ([(op["name"], op["phase"], op["reads"], op["writes"], op["frees"]) for op in trace["ops"]],
                    [(each["bytes"], each["kind"], each["persistent"], each.get("shape")) for each in trace["tensors"]])

        def step_of():
            torch.manual_seed(0)
            model, x = mlp(), torch.ones(32, 784)
            optimizer = torch.optim.Adam(model.parameters(), foreach=False)

            def step():
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

            return step

        _, real = traced(step_of(), card="h100")
        with FakeTensorMode():
            answer, fake = traced(step_of(), card="h100")
        self.assertEqual(facts(fake), facts(real))
        self.assertEqual(len(answer["ideal_ns"]), 2)
        kinds = {kind: sum(each["kind"] == kind for each in fake["tensors"]) for kind in ("weight", "gradient", "optimizer")}
        self.assertEqual(kinds["weight"], 10)
        self.assertEqual(kinds["gradient"], 10)
        self.assertEqual(kinds["optimizer"], 30)  # two moments, and a count of steps

    def test_without_data_has_the_tensors_and_the_peak_of_the_recorded_step(self):
        for name, (make, batch, optimizer) in six.items():
            with self.subTest(name):
                real, found = recorded(make, batch, optimizer)
                with FakeTensorMode():
                    answer, fake = traced(plain_step(Run(make, batch, optimizer)), card="h100")
                for kinds in (("weight", "constant"), ("optimizer",)):  # a guard that watches the model takes its buffers for weights
                    self.assertEqual(lasting(fake, *kinds), lasting(real, *kinds), kinds)
                self.assertAlmostEqual(answer["peak_bytes"] / found["peak_bytes"], 1, delta=0.05)  # scratch of operators
                self.assertNotIn("not_known", answer)

    def test_is_what_an_execution_trace_of_pytorch_tells(self):
        """torch.profiler's own observer saw the step, nothing of vedette did."""
        for name, (make, batch) in models.items():
            with self.subTest(name), folder() as place:
                step, path = plain_step(Run(make, batch)), os.path.join(place, "execution.json")
                answer = vedette.estimate(step, card="h100")
                observer = torch.profiler.ExecutionTraceObserver().register_callback(path)
                observer.start()
                step()
                step()
                observer.stop()
                observer.unregister_callback()
                done = subprocess.run([_tool(), "fits", path, "--card", "h100", "--json"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("tells neither times nor lives", done.stderr)
                found = json.loads(done.stdout)
                # a gradient lives until zero_grad, and by the trace until its last use
                self.assertAlmostEqual(found["peak_bytes"] / answer["peak_bytes"], 1, delta=0.06)
                self.assertAlmostEqual(found["least_bytes"] / answer["least_bytes"], 1, delta=0.02)

    def test_says_that_the_scratch_of_an_lstm_is_not_known_without_data(self):
        make, batch = functools.partial(Rows, nn.LSTM), images
        with FakeTensorMode():
            answer, _ = traced(plain_step(Run(make, batch)), card="h100")
        self.assertEqual(answer["not_known"], ["aten::mkldnn_rnn_layer"])
        answer, _ = traced(plain_step(Run(make, batch)))
        self.assertNotIn("not_known", answer)
        self.assertAlmostEqual(answer["peak_bytes"] / peak_of(make, batch), 1, delta=0.15)  # oneDNN's scratch inside the operator

    def test_answers_for_a_size_and_a_card(self):
        run = Run(*models["gpt"])
        small = vedette.estimate(run.one_step, card="l40s", memory="20MiB", host="64GiB")
        self.assertIn(20 << 20, [row["memory_bytes"] for row in small["rows"]])
        self.assertGreater(small["peak_bytes"], 20 << 20)
        self.assertFalse(small["fits"])
        self.assertTrue(vedette.estimate(run.one_step, card="l40s", memory="4GiB")["fits"])

    def test_refuses_what_it_cannot_answer_with_a_sentence(self):
        layer = torch.nn.Linear(256, 256)
        step = lambda: layer(torch.ones(256, 256)).sum().backward()  # noqa: E731
        for options, sentence in ((dict(card="h1000"), "there is no card 'h1000'"), (dict(memory=1), "takes .* of fast memory at least, and there are 1 bytes"),
                                  (dict(disk="fast"), "is no speed; write 2GB/s")):
            with self.subTest(**options), self.assertRaisesRegex(vedette.Failure, sentence):
                vedette.estimate(step, **options)
        with self.assertRaisesRegex(TypeError, "card: 5 is no word"):
            vedette.estimate(step, card=5)
        with self.assertRaisesRegex(vedette.Failure, "the step ran no operator"):
            vedette.estimate(lambda: None)
        with torch.device("meta"):
            meta = torch.nn.Linear(256, 256)
            with self.assertRaisesRegex(vedette.Failure, "no operator has a time: name a card"):
                vedette.estimate(lambda: meta(torch.ones(2, 256)).sum().backward())
            with self.assertRaisesRegex(vedette.Failure, "needs numbers that tensors without data do not have"):
                vedette.estimate(lambda: meta(torch.ones(2, 256)).sum().item(), card="h100")

    def test_is_the_recorded_runs_answer(self):
        make, batch = models["gpt"]
        with folder() as place:
            recording = os.path.join(place, "run.vedette")
            with vedette.Guard("1GiB", slow="host", chunk="64KiB", record=recording, verbose=False,
                               on_message=lambda sentence: None) as guard:
                Run(make, batch, None, lambda: guard).steps(5)
            done = subprocess.run([_tool(), "fits", recording, "--card", "h100", "--json"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        recorded, estimated = json.loads(done.stdout), vedette.estimate(Run(make, batch).one_step, card="h100")
        self.assertAlmostEqual(estimated["peak_bytes"] / recorded["peak_bytes"], 1, delta=0.03)
        self.assertAlmostEqual(estimated["least_bytes"] / recorded["least_bytes"], 1, delta=0.1)


if __name__ == "__main__":
    unittest.main()
