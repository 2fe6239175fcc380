"""`guard.fast_memory = size` while a training runs: the plain run's bits, and the memory that was asked for."""

import random
import threading
import time
import unittest

import torch
import vedette
from training import GPT, ResNet, Run, chunk, folder, images, peak_of, text


def resident():
    """Anonymous memory of this process, in bytes, as the kernel counts it."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


class Changes(unittest.TestCase):
    steps = 60

    def trained(self, make, batch, guard=None, beside=None):
        run = Run(make, batch, guard=guard)
        over = threading.Event()
        thread = threading.Thread(target=beside, args=(run.guard, over)) if beside else None
        if thread:
            thread.start()
        run.steps(self.steps)
        over.set()
        if thread:
            thread.join()
        found = run.losses, run.state()
        if run.guard:
            run.guard.close()
        return found

    def compare(self, make, batch):
        said, seen, peak = [], [], peak_of(make, batch)

        def guard():
            return vedette.Guard(peak, slow="host", chunk=chunk, on_message=said.append)

        def change(guard, over):
            chosen = random.Random(5)
            while not over.is_set():
                size = chosen.randrange(peak // 5, peak)
                guard.fast_memory = size
                seen.append((size, guard.fast_memory, guard.counters.resident_bytes))
                time.sleep(0.02)

        plain = self.trained(make, batch)
        changed = self.trained(make, batch, guard, change)
        self.assertEqual(plain, changed)
        self.assertGreater(len(seen), 10)
        met = [(size, now) for size, now, _ in seen if now <= size]
        self.assertGreater(len(met), len(seen) * 3 // 4, said[-3:])

    def test_at_random_keep_the_bits_of_a_resnet(self):
        self.compare(ResNet, images)

    def test_at_random_keep_the_bits_of_a_gpt(self):
        self.compare(GPT, text)


class Sizes(unittest.TestCase):
    def test_are_written_as_those_of_the_constructor(self):
        with vedette.Guard("64MiB", slow="host") as guard:
            guard.fast_memory = "32MiB"
            self.assertEqual(guard.fast_memory, 32 << 20)
            self.assertEqual(guard.budget, 32 << 20)
            guard.fast_memory = 128 << 20
            self.assertEqual(guard.fast_memory, 128 << 20)
            with self.assertRaisesRegex(vedette.Failure, "is too small: at least 8 chunks, 16.0 MiB"):
                guard.fast_memory = "1MiB"
            with self.assertRaisesRegex(vedette.Failure, "is more than the machine has"):
                guard.fast_memory = 1 << 50
            with self.assertRaisesRegex(ValueError, "^fast_memory: 'big' is no size"):
                guard.fast_memory = "big"
            with self.assertRaisesRegex(TypeError, "^fast_memory: None is no size"):
                guard.fast_memory = None
            self.assertEqual(guard.fast_memory, 128 << 20, "as before")
        with self.assertRaisesRegex(vedette.Failure, "closed"):
            guard.fast_memory = "32MiB"

    def test_are_resident_bytes(self):
        with folder() as directory, vedette.Guard("512MiB", slow=f"nvme:{directory}", on_message=lambda line: None) as guard:
            before = resident()
            tensor = torch.ones(64 << 20)  # 256 MiB
            guard.fast_memory = "64MiB"
            self.assertLess(resident(), before + (128 << 20))
            self.assertEqual(int(tensor.sum()), 64 << 20)


if __name__ == "__main__":
    unittest.main()
