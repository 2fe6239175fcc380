"""VedetteCallback in Lightning's Trainer: the bits of the plain training, at a quarter of its memory."""

import gc
import importlib.util
import logging
import unittest
import warnings

import torch
import vedette
from training import GPT, bits, chunk, folder

if importlib.util.find_spec("lightning") is None:
    missing = "the package lightning is not installed: scripts/setup.sh --tests installs it"
else:
    missing = None
    import lightning
    from vedette.integrations.lightning import VedetteCallback

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


def module_of(gpt):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.gpt, self.losses = gpt, []

        def training_step(self, batch, index):
            loss = torch.nn.functional.cross_entropy(self.gpt(batch[0]).flatten(0, -2), batch[1].flatten())
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            self.gpt(batch[0])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Module()


@unittest.skipIf(missing, missing)
class Trainer(unittest.TestCase):
    def train(self, callbacks=(), fails_at=None, **arguments):
        torch.manual_seed(1)
        module = module_of(GPT())
        tokens = torch.randint(0, 64, (96, 65), generator=torch.Generator().manual_seed(2))
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens[:, :-1], tokens[:, 1:]), 12)
        trainer = lightning.Trainer(accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks), **arguments)
        trainer.fit(module, data, data)
        optimizer = trainer.optimizers[0]
        return (module.losses, [bits(parameter) for parameter in module.parameters()],
                [bits(tensor) for values in optimizer.state.values() for tensor in values.values()])

    def compare(self, **arguments):
        plain = self.train(**arguments)
        ample = VedetteCallback("1GiB", slow="host", policy="on-demand", chunk=chunk, bring_home=True)
        self.train([ample], **arguments)
        gc.collect()  # what it trained would keep memory of the next guard's budget
        phases, faults = [], []

        class Watcher(lightning.Callback):
            def on_train_batch_end(self, *_):
                phases.append(callback.guard.phase)
                faults.append(callback.guard.counters.faults)

        with folder() as slow:
            callback = VedetteCallback(ample.counters.peak_bytes // 4, slow=f"nvme:{slow}", chunk=chunk)
            guarded = self.train([callback, Watcher()], **arguments)
        self.assertEqual(guarded, plain)
        self.assertGreater(len(guarded[2]), 0)
        self.assertIsNone(callback.guard)
        self.assertGreater(callback.counters.bytes_in, 0)
        self.assertEqual(phases[-1], "planned")
        of_batches = [b - a for a, b in zip(faults, faults[1:])]
        print(f"{self.id()}: faults of the batches {of_batches}")
        self.assertEqual(sum(of_batches[-6:]), 0)

    def test_as_it_is_by_default(self):
        self.compare()

    def test_with_accumulation_and_clipped_gradients(self):
        self.compare(accumulate_grad_batches=2, gradient_clip_val=0.5)

    def test_a_training_that_fails_closes_the_guard(self):
        class Fails(lightning.Callback):
            def on_train_batch_start(self, trainer, module, batch, index):
                if index == 2:
                    raise KeyError("interrupted")

        callback = VedetteCallback("8MiB", slow="host", chunk=chunk)
        with self.assertRaises(KeyError):
            self.train([callback, Fails()])
        self.assertIsNone(callback.guard)
        vedette.Guard("8MiB", slow="host", chunk=chunk).close()


if __name__ == "__main__":
    unittest.main()
