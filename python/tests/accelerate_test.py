"""A loop written with Accelerate: the bits of the plain training, with clipped gradients and accumulation."""

import contextlib
import importlib.util
import unittest

import torch
import vedette
from training import GPT, chunk, folder, peak_of, state, text

if importlib.util.find_spec("accelerate") is None:
    missing = "the package accelerate is not installed: scripts/setup.sh --tests installs it"
else:
    missing = None
    import accelerate


@unittest.skipIf(missing, missing)
class Accelerate(unittest.TestCase):
    def train(self, guard=None):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        torch.manual_seed(1)
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        tokens = torch.randint(0, 64, (160, 65), generator=torch.Generator().manual_seed(2))
        model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(tokens, 8))
        if guard:
            guard.watch(model)
            guard.watch(optimizer)
        losses, step, self.phases, self.faults = [], None, [], []
        for batch in loader:
            if step is None:
                step = contextlib.ExitStack()
                step.enter_context(guard.step() if guard else contextlib.nullcontext())
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, -2), batch[:, 1:].flatten())
                losses.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                del loss
            if accelerator.sync_gradients:
                step.close()
                step = None
                self.phases.append(guard.phase if guard else "")
                self.faults.append(guard.counters.faults if guard else 0)
        return losses, state(accelerator.unwrap_model(model), optimizer.optimizer)

    def test_has_equal_bits(self):
        plain = self.train()
        budget = peak_of(GPT, lambda generator: text(generator, batch=8)) // 4
        with folder() as slow, vedette.Guard(budget, slow=f"nvme:{slow}", chunk=chunk) as guard:
            self.assertEqual(self.train(guard), plain)
            self.assertGreater(guard.counters.bytes_in, 0)
            # In the last step no batch is fetched ahead: a step of its own, which has no plan yet.
            self.assertEqual(self.phases[4:-1], ["planned"] * len(self.phases[4:-1]), self.phases)
            print(f"{self.id()}: faults after each step {self.faults}")
            self.assertEqual(self.faults[4], self.faults[-2], self.faults)

    def test_steps_in_backward_where_gradients_are_accumulated(self):
        def train(early):
            accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
            torch.manual_seed(1)
            model = torch.nn.Linear(16, 16)
            model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
            for i in range(8):
                with accelerator.accumulate(model):
                    loss = model(torch.randn(4, 16, generator=torch.Generator().manual_seed(i))).square().mean()
                    if early:
                        vedette.step_in_backward(optimizer, lambda: accelerator.backward(loss))  # noqa: B023
                    else:
                        accelerator.backward(loss)
                        optimizer.step()
                        optimizer.zero_grad()
            return [parameter.tolist() for parameter in model.parameters()]

        self.assertEqual(train(True), train(False))


if __name__ == "__main__":
    unittest.main()
