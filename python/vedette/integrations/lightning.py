"""A guard around Lightning's Trainer:

    from vedette.integrations.lightning import VedetteCallback
    trainer = lightning.Trainer(..., callbacks=[VedetteCallback("2GiB", slow="nvme:/data")])

A step of the guard is a step of the optimizer, all of its accumulation included. Validation and checkpoints run between steps, but for
those that the Trainer runs in the middle of an accumulation.
"""

import functools

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError as missing:  # the older package of the same name
    if missing.name != "lightning":
        raise
    from pytorch_lightning.callbacks import Callback

import vedette
from vedette.integrations import figures_of


class VedetteCallback(Callback):
    """Arguments are those of vedette.Guard. `guard` is the open guard while the Trainer trains, and None otherwise.

    With `bring_home=True` the model and the optimizers leave the arena when training ends; otherwise they stay where they are, and
    valid. Raises what vedette.Guard raises, out of Trainer.fit().
    """

    def __init__(self, fast_memory=None, *, bring_home=False, **options):
        super().__init__()
        self._open = functools.partial(vedette.Guard, fast_memory, **options)  # trainers pickle it for the processes that they spawn
        self._brings_home = bring_home
        self.guard = None
        self.counters = None  # of the last training, when it has ended
        self._step = None
        self._optimizer_steps = 0  # of the trainer when the step began

    def close(self):
        """Ends the guard; twice is no error."""
        self._end_step()
        if self.guard is not None:
            self.counters = self.guard.counters
            self.guard.close()
            self.guard = None

    def _end_step(self):
        if self._step is not None:
            step, self._step = self._step, None
            step.__exit__(None, None, None)

    def on_train_start(self, trainer, pl_module):
        self.close()
        self.guard = self._open()
        self.guard.watch(pl_module)
        for optimizer in trainer.optimizers:
            self.guard.watch(optimizer)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self._step is None:
            step = self.guard.step()
            step.__enter__()
            self._step = step
            self._optimizer_steps = trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step != self._optimizer_steps:
            self._end_step()
            if getattr(trainer._logger_connector, "should_update_logs", True):  # the Trainer logs after this batch
                pl_module.log_dict(figures_of(self.guard), on_step=True, on_epoch=False)

    def on_train_epoch_end(self, trainer, pl_module):
        self._end_step()

    def on_train_end(self, trainer, pl_module):
        self._end_step()
        if self._brings_home:
            self.guard.bring_home()
        self.close()

    def on_exception(self, trainer, pl_module, exception):
        self.close()
