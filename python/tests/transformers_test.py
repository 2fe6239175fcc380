"""VedetteCallback in Hugging Face's Trainer: the bits of the plain training, at a quarter of its memory."""

import gc
import importlib.util
import pickle
import tempfile
import unittest

import torch
import vedette
from training import bits, chunk, folder

if importlib.util.find_spec("transformers") is None:
    missing = "the package transformers is not installed: scripts/setup.sh --tests installs it"
else:
    missing = None
    import transformers
    from vedette.integrations.transformers import VedetteCallback


if not missing:
    transformers.logging.set_verbosity_error()


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count=48, length=64):
        self.tokens = torch.randint(0, 256, (count, length), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


@unittest.skipIf(missing, missing)
class Trainer(unittest.TestCase):
    def train(self, callbacks=(), **arguments):
        with tempfile.TemporaryDirectory() as place:
            transformers.set_seed(1)
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=3, n_head=4))
            samples = Tokens()
            settings = transformers.TrainingArguments(
                output_dir=place, max_steps=10, per_device_train_batch_size=4, logging_steps=1, save_strategy="no", report_to=[],
                use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False, seed=1, **arguments)
            trainer = transformers.Trainer(model=model, args=settings, train_dataset=samples, eval_dataset=samples,
                                           callbacks=list(callbacks))
            trainer.train()
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            states = [bits(tensor) for values in trainer.optimizer.state.values() for tensor in values.values()]
            return losses, [bits(parameter) for parameter in model.parameters()], states

    def compare(self, **arguments):
        plain = self.train(**arguments)
        ample = VedetteCallback("1GiB", slow="host", policy="on-demand", chunk=chunk)
        self.train([ample], **arguments)
        gc.collect()  # what it trained would keep memory of the next guard's budget
        with folder() as slow:
            callback = VedetteCallback(ample.counters.peak_bytes // 4, slow=f"nvme:{slow}", chunk=chunk)
            phases, faults = [], []

            class Watcher(transformers.TrainerCallback):
                def on_step_end(self, args, state, control, **kwargs):
                    phases.append(callback.guard.phase)
                    faults.append(callback.guard.counters.faults)

            guarded = self.train([callback, Watcher()], **arguments)
        self.assertEqual(guarded, plain)
        self.assertGreater(len(guarded[2]), 0)
        self.assertIsNone(callback.guard)
        self.assertGreater(callback.counters.bytes_in, 0)
        self.assertEqual(phases[-1], "planned")
        of_steps = [b - a for a, b in zip(faults, faults[1:])]
        print(f"{self.id()}: budget {ample.counters.peak_bytes >> 12} KiB, faults of the steps {of_steps}")
        self.assertEqual(sum(of_steps[5:]), 0)

    def test_as_it_is_by_default(self):  # a fused AdamW, clipped gradients
        self.compare()

    def test_with_accumulation_and_evaluation(self):
        self.compare(gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4)

    def test_goes_to_processes_that_are_spawned(self):
        there = pickle.loads(pickle.dumps(VedetteCallback("8MiB", slow="host", chunk=chunk)))
        self.assertEqual(self.train([there]), self.train())

    def test_a_training_that_fails_leaves_the_next_one_free(self):
        class Fails(transformers.TrainerCallback):
            def on_step_begin(self, args, state, control, **kwargs):
                if state.global_step == 2:
                    raise KeyError("interrupted")

        callback = VedetteCallback("8MiB", slow="host", chunk=chunk)
        with self.assertRaises(KeyError):
            self.train([callback, Fails()])
        self.assertFalse(callback.guard.is_closed)
        plain = self.train()
        self.assertEqual(self.train([callback]), plain)
        self.assertIsNone(callback.guard)


if __name__ == "__main__":
    unittest.main()
