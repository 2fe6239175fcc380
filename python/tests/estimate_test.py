"""vedette.estimate: a step as a trace, by the operators that torch dispatches, and the answers of `vedette fits`."""

import json
import os
import subprocess
import tempfile
import unittest

import torch
import vedette
from torch._subclasses import FakeTensorMode
from training import GPT, ResNet, Run, folder, images, peak_of, text
from vedette._estimate import _tool


def mlp():
    return torch.nn.Sequential(torch.nn.Flatten(), *[torch.nn.Linear(784, 784) for _ in range(4)], torch.nn.Linear(784, 10))


models = {"mlp": (mlp, images), "resnet": (ResNet, images), "gpt": (GPT, text)}


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

    def test_answers_for_a_size_and_a_card(self):
        run = Run(*models["gpt"])
        answer = vedette.estimate(run.one_step, card="l40s", memory="20MiB", host="64GiB")
        self.assertIn(20 << 20, [row["memory_bytes"] for row in answer["rows"]])
        self.assertTrue(answer["fits"])

    def test_refuses_what_it_cannot_answer_with_a_sentence(self):
        layer = torch.nn.Linear(256, 256)
        step = lambda: layer(torch.ones(256, 256)).sum().backward()  # noqa: E731
        for options, sentence in ((dict(card="h1000"), "there is no card 'h1000'"), (dict(memory=1), "needs"),
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
