"""A GPT of more than 60 million parameters at a quarter of its memory: the bits of the plain run, planned, without faults."""

import unittest

import torch
import vedette
from training import GPT, Run, folder, text


def make():
    return GPT(layers=8, heads=12, width=768, context=128, symbols=8192, dropout=0.1)


def batch(generator):
    return text(generator, batch=4, length=128, symbols=8192)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)


class LargeGpt(unittest.TestCase):
    def test_has_equal_bits_at_a_quarter(self):
        steps = 6
        plain = Run(make, batch, adamw).steps(steps)
        self.assertGreater(sum(p.numel() for p in plain.model.parameters()), 60_000_000)
        losses, wanted = plain.losses, plain.state()
        del plain
        with vedette.Guard("4GiB", slow="host", policy="on-demand") as guard:
            run = Run(make, batch, adamw, lambda: guard).steps(2)
            budget = guard.counters.peak_bytes // 4
            del run
        for guarded in ({}, {"in_backward": True}):
            with folder() as slow, vedette.Guard(budget, slow=f"nvme:{slow}") as guard:
                run = Run(make, batch, adamw, lambda: guard).steps(steps, **guarded)
                counters = guard.counters
                self.assertEqual(run.losses, losses)
                self.assertEqual(run.state(), wanted)
                self.assertLessEqual(counters.resident_max_bytes, budget)
                self.assertGreater(counters.bytes_in, budget)
                self.assertEqual(guard.phase, "planned")
                print(f"{guarded}: budget {budget >> 20} MiB, in {counters.bytes_in >> 20} MiB, faults of the steps {run.faults}")
                self.assertEqual(sum(run.faults[4:]), 0, run.faults)
                del run


if __name__ == "__main__":
    unittest.main()
