"""A guard around Hugging Face's Trainer:

    from vedette.integrations.transformers import VedetteCallback
    trainer = Trainer(..., callbacks=[VedetteCallback("2GiB", slow="nvme:/data")])

A step of the guard is a step of the optimizer, all of its accumulation included. Evaluation and saving run between steps.
"""

import functools

from transformers import TrainerCallback

import vedette
from vedette.integrations import figures_of


class VedetteCallback(TrainerCallback):
    """Arguments are those of vedette.Guard. `guard` is the open guard while the Trainer trains, and None otherwise.

    With `bring_home=True` the model and the optimizer leave the arena when training ends; otherwise they stay where they are, and
    valid. Raises what vedette.Guard raises, out of Trainer.train().
    """

    def __init__(self, fast_memory=None, *, bring_home=False, **options):
        self._open = functools.partial(vedette.Guard, fast_memory, **options)  # trainers pickle it for the processes that they spawn
        self._brings_home = bring_home
        self.guard = None
        self.counters = None  # of the last training, when it has ended
        self._step = None

    def close(self):
        """Ends the guard, after a training that was interrupted; twice is no error."""
        self._end_step()
        if self.guard is not None:
            self.counters = self.guard.counters
            self.guard.close()
            self.guard = None

    def _end_step(self):
        if self._step is not None:
            step, self._step = self._step, None
            step.__exit__(None, None, None)

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.close()
        self.guard = self._open()
        self.guard.watch(model)
        if optimizer is not None:
            self.guard.watch(optimizer)

    def on_step_begin(self, args, state, control, **kwargs):
        self._end_step()
        step = self.guard.step()
        step.__enter__()
        self._step = step

    def on_step_end(self, args, state, control, **kwargs):
        self._end_step()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.guard is None or logs is None:
            return
        figures = figures_of(self.guard)
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    def on_train_end(self, args, state, control, **kwargs):
        self._end_step()
        if self._brings_home:
            self.guard.bring_home()
        self.close()
