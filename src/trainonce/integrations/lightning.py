"""Lightning: callbacks that attach a module's criterion, log it and save it, and that pause and resume trials."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from trainonce import extras, health
from trainonce.attachment import attach
from trainonce.errors import InputError
from trainonce.integrations import _finding, _schedulers
from trainonce.integrations._trial import Follower
from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from lightning.pytorch import LightningModule, Trainer
    from torch.optim import Optimizer

    from trainonce.attachment import Attachment, Sync
    from trainonce.history import History
    from trainonce.study import Trial

__all__ = ["LossWeights", "TrialCallback"]


def _package() -> Any:
    """Import Lightning under the name that the script uses: it has two, and their classes do not mix."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    return extras.require(names[0], "Lightning", "lightning")


class LossWeights(_package().Callback):  # type: ignore[misc]
    """Attaches the criterion of a LightningModule to its optimizer, logs it and saves it.

    It finds the criterion, attaches it before any scheduler is built, keeps what the rule trains out of gradient
    clipping, has the criterion in evaluation mode while the trainer evaluates, logs, and saves a criterion that the
    module itself would not save. A module that calls :func:`trainonce.attach` in ``configure_optimizers`` keeps its
    attachment.

    :param criterion: The criterion, or its name in the module, such as ``"generator_loss"`` or ``"losses[0]"``. By
        default the only one that the module holds.
    :param optimizer: Which one, if there are several: the name of a part of the module, such as ``"generator"``. The
        criterion is attached to the optimizer that holds its parameters.
    :param history: As in :func:`trainonce.attach`.
    :param sync: As in :func:`trainonce.attach`.
    :param log_every: Optimizer steps between two logs; by default the trainer's ``log_every_n_steps``.
    :param prefix: Stands before the names in the logs; needed where two criteria are logged.

    ``Trainer(callbacks=[LossWeights()])`` is enough.
    """

    def __init__(
        self,
        criterion: str | LossWeighting | None = None,
        *,
        optimizer: str | None = None,
        history: History | str | os.PathLike[str] | None = None,
        sync: Sync = True,
        log_every: int | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__()
        if log_every is not None and log_every < 1:
            raise ValueError(f"log_every is a number of steps and must be at least 1; got {log_every}.")
        self.history = history
        self.sync = sync
        self.log_every = log_every
        self.prefix = prefix
        self._wanted = criterion
        self._part = optimizer
        self._criterion: LossWeighting | None = None
        self._outside: str | None = None  # the criterion's name, if torch does not know it as part of the module
        self._mode: bool | None = None  # the criterion's, before the evaluation under way
        self._began: Attachment | None = None  # in this fit, by us or by the module
        self._is_ours = False
        self._step = 0

    @property
    def state_key(self) -> str:
        wanted = self._wanted.terms if isinstance(self._wanted, LossWeighting) else self._wanted
        key: str = self._generate_state_key(criterion=wanted)
        return key

    # Where the criterion is

    def _bring(self, trainer: Trainer, pl_module: LightningModule) -> LossWeighting | None:
        """Return the criterion, where the module's tensors are: Lightning moves and converts the module's own parts."""
        if self._criterion is None:
            self._criterion, self._outside = _finding.find(pl_module, self._wanted)
        if self._criterion is not None and self._outside is not None:
            trainer.precision_plugin.convert_module(self._criterion)
            self._criterion.to(trainer.strategy.root_device)
        return self._criterion

    def _enter_evaluation(self, trainer: Trainer, pl_module: LightningModule) -> None:
        criterion = self._bring(trainer, pl_module)
        if criterion is not None and self._mode is None:
            self._mode = criterion.training
            criterion.eval()

    def _leave_evaluation(self, *_: object) -> None:
        if self._criterion is not None and self._mode is not None:
            self._criterion.train(self._mode)
        self._mode = None

    on_validation_start = on_test_start = on_predict_start = _enter_evaluation
    on_validation_end = on_test_end = on_predict_end = _leave_evaluation

    # The optimizer

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._criterion = self._outside = None  # the module may make it later, in its own setup
        if stage == "fit":
            _replace(pl_module, "configure_optimizers", self._configure, pl_module)

    def _configure(self, pl_module: LightningModule, configure_optimizers: Callable[[], Any]) -> Any:
        """Call the module's ``configure_optimizers``, and attach before a scheduler is built on the optimizer.

        Schedulers are built inside that method, so it is too late once it has returned and too early before.
        """
        criterion = self._bring(pl_module.trainer, pl_module)
        if criterion is None:
            raise ValueError(
                f"LossWeights found no criterion in {type(pl_module).__name__}. Make one in its __init__, such as "
                "self.criterion = trainonce.CompositeLoss([...]), or pass yours as criterion=."
            )
        _check_strategy(pl_module.trainer.strategy, criterion)
        self._detach()
        earlier, trains = criterion.attachment, criterion.trainable is not None

        def attach_first(optimizer: Optimizer) -> None:
            if trains and not _is_attached(criterion) and self._is_chosen(pl_module, optimizer):
                self._attach(criterion, optimizer)

        with _schedulers.before_each(attach_first):
            configured = configure_optimizers()
        parts = list(_leaves(configured))
        optimizers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        if optimizers and not _is_attached(criterion):
            optimizer = self._choose(pl_module, optimizers)
            if trains:
                _schedulers.refuse_foreign([part for part in parts if hasattr(part, "step")], optimizer)
            self._attach(criterion, optimizer)
        if not _is_attached(criterion):
            raise ValueError("configure_optimizers returned no optimizer, so there is none to attach the criterion to.")
        if criterion.attachment is not earlier:
            self._began = criterion.attachment
        return configured

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _put_back(pl_module, "configure_optimizers")
        criterion = self._criterion
        assert criterion is not None
        assert criterion.attachment is not None
        optimizers = [getattr(optimizer, "optimizer", optimizer) for optimizer in trainer.optimizers]
        if self._is_ours:
            self._choose(pl_module, optimizers)
        if not any(optimizer is criterion.attachment.optimizer for optimizer in optimizers):
            raise RuntimeError(
                "The criterion is attached to an optimizer that this trainer does not step. Call "
                "criterion.attachment.remove() before fit, and leave attaching to LossWeights."
            )
        self._check_checkpoints(trainer)
        if criterion.trainable is None:
            return
        # Lightning clips all parameters of an optimizer by one norm. Both methods: one is the user's to override and
        # may clip by itself, the other is called by the user in manual optimization.
        for name in ("configure_gradient_clipping", "clip_gradients"):
            _replace(pl_module, name, _clip_without_own, criterion)

    def _attach(self, criterion: LossWeighting, optimizer: Optimizer) -> None:
        self._began = attach(optimizer, criterion, history=self.history, sync=self.sync)
        self._is_ours = True

    def _is_chosen(self, pl_module: LightningModule, optimizer: Optimizer) -> bool:
        if self._part is None:
            return True
        named = pl_module.named_parameters()
        part = {id(p) for name, p in named if name == self._part or name.startswith(f"{self._part}.")}
        return any(id(p) in part for group in optimizer.param_groups for p in group["params"])

    def _choose(self, pl_module: LightningModule, optimizers: list[Optimizer]) -> Optimizer:
        chosen = [optimizer for optimizer in optimizers if self._is_chosen(pl_module, optimizer)]
        if len(chosen) == 1:
            return chosen[0]
        if self._part is None:
            raise ValueError(
                f"{type(pl_module).__name__} has {len(optimizers)} optimizers, and the criterion is attached to one. "
                "Name a part of the module that it trains, for example LossWeights(optimizer='generator')."
            )
        raise ValueError(
            f"optimizer={self._part!r} must name a part of {type(pl_module).__name__} that one optimizer trains; "
            f"{len(chosen)} of {len(optimizers)} hold parameters of that name."
        )

    def _detach(self) -> None:
        """Give the criterion back: what began in ``configure_optimizers`` ends with the fit, and the next one can."""
        if self._began is not None and self._began.criterion.attachment is self._began:
            self._began.remove()
        self._began, self._is_ours = None, False

    # Around the fit

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._end(pl_module)
        if self._criterion is not None and self._outside is not None:
            self._criterion.to(pl_module.device)  # where Lightning leaves the module

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end(pl_module)

    def _end(self, pl_module: LightningModule) -> None:
        for name in ("configure_optimizers", "configure_gradient_clipping", "clip_gradients"):
            _put_back(pl_module, name)
        self._leave_evaluation()
        self._detach()

    # Logs

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        stepped, self._step = trainer.global_step != self._step, trainer.global_step
        at = trainer.fit_loop.epoch_loop._batches_that_stepped  # the step that Lightning logs the module's values at
        every = self.log_every or trainer.log_every_n_steps
        if stepped and every and (at + 1) % every == 0:
            self._log(trainer, at)

    def _log(self, trainer: Trainer, step: int) -> None:
        assert self._criterion is not None
        # On every process: reading what is sharded takes them all.
        scalars = {f"{self.prefix}{name}": value for name, value in self._criterion.log_dict().items()}
        trainer.callback_metrics.update(scalars)  # for EarlyStopping and the like
        if trainer.loggers and trainer.is_global_zero:
            numbers = torch.stack(list(scalars.values())).tolist()  # one read from the device for all
            for logger in trainer.loggers:
                logger.log_metrics(dict(zip(scalars, numbers, strict=True)), step=step)

    # Checkpoints: a criterion that is part of the module is in the module's state_dict

    def state_dict(self) -> dict[str, Any]:
        if self._criterion is None or self._outside is None:
            return {}
        return dict(self._criterion.state_dict())

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        criterion = self._bring(trainer, pl_module)
        saved = checkpoint["callbacks"].get(self.state_key)
        if criterion is not None and saved:
            criterion.load_state_dict(saved)
        elif criterion is not None and self._outside is not None:
            where = f"{type(criterion).__name__} {self._outside!r}"
            health.warn(criterion, health.NoSavedState, where=where)

    def _check_checkpoints(self, trainer: Trainer) -> None:
        if self._outside is None:
            return
        if any(getattr(callback, "save_weights_only", False) for callback in trainer.checkpoint_callbacks):
            raise ValueError(
                f"The criterion {self._outside!r} is not registered as a part of the module, so a checkpoint with "
                "save_weights_only=True would lose it. Make it an attribute of its own, or use nn.ModuleList."
            )


class TrialCallback(_package().Callback):  # type: ignore[misc]
    """Lets a trial that a Lightning Trainer trains pause, survive a kill and go on, as one with ``trial.loop`` does.

    Pass its ``checkpoint`` to ``fit``, and the loader by ``trial.batches``, which goes on within an epoch::

        callback = TrialCallback(trial)
        trainer = Trainer(max_steps=steps, callbacks=[LossWeights(), callback])
        trainer.fit(module, trial.batches(loader), ckpt_path=callback.checkpoint)

    The Trainer stops early where the plan pauses; its length, and so that of schedules, stays the full one.
    """

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._follower = Follower(trial)
        self._step = 0
        self._waits_for = ""  # what belongs to a step that was made

    @property
    def checkpoint(self) -> str | None:
        """The path from which ``fit`` goes on, for its ``ckpt_path``; None where the trial begins."""
        return self._follower.checkpoint

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Last, so that a checkpoint holds what the other callbacks did at its step.
        trainer.callbacks = sorted(trainer.callbacks, key=lambda callback: callback is self)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        fit = trainer.fit_loop
        loaders = fit._combined_loader.flattened
        if fit._combined_loader_states_to_load:  # Lightning does so within an epoch, if nobody asked for its length
            fit._combined_loader._load_state_dicts(fit._combined_loader_states_to_load)
            fit._combined_loader_states_to_load = []
            iter(fit._data_fetcher)
        if self._follower.trial.until < 1 and not all(hasattr(loader, "load_state_dict") for loader in loaders):
            raise InputError(
                "The plan pauses its trainings, and after a pause Lightning would begin the epoch's loader anew. Give "
                "fit, or return from train_dataloader, trial.batches(loader), which goes on where it was."
            )
        self._step = trainer.global_step
        goes_on = trainer.ckpt_path is not None and str(trainer.ckpt_path) == self.checkpoint
        call = "trainer.fit(..., ckpt_path=callback.checkpoint)"
        if self._follower.begin(trainer.estimated_stepping_batches, goes_on, call):
            self._stop(trainer)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        stepped, self._step = trainer.global_step != self._step, trainer.global_step
        if self._follower.loop is None:
            return
        trainer._signal_connector.received_sigterm = False  # Lightning would leave before the step is whole
        if stepped:
            self._waits_for = self._what_follows(trainer)
            if not self._waits_for:
                self._end_step(trainer)

    def _what_follows(self, trainer: Trainer) -> str:
        """Return what comes between this step and the next: a fit that is resumed before it would leave it out."""
        if trainer.is_last_batch and trainer.max_steps == -1:
            return "epoch"
        epoch = trainer.fit_loop.epoch_loop
        return "validation" if epoch._should_check_val_fx(trainer.fit_loop._data_fetcher) else ""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._waits_for == "validation":
            self._end_step(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._waits_for == "epoch":
            self._end_step(trainer)

    def _end_step(self, trainer: Trainer) -> None:
        loop = self._follower.loop
        assert loop is not None
        self._waits_for = ""
        if self._follower.end_step():
            self._follower.keep(trainer.save_checkpoint)
        if loop.paused:
            self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None  # they would keep it from stopping
        trainer.should_stop = True


# Replacing the module's methods for the time of a fit


class _Replacement(functools.partial[Any]):
    """Stands in for a method, which is its last argument. A partial follows the module into a deepcopy."""


def _replace(pl_module: LightningModule, name: str, by: Callable[..., Any], *args: object) -> None:
    setattr(pl_module, name, _Replacement(by, *args, getattr(pl_module, name)))


def _put_back(pl_module: LightningModule, name: str) -> None:
    """Undo all replacements of a method, also those of other callbacks: a fit ends for all of them at once."""
    while isinstance(found := vars(pl_module).get(name), _Replacement):
        delattr(pl_module, name)
        if getattr(pl_module, name) != found.args[-1]:  # it was an attribute of the instance before
            setattr(pl_module, name, found.args[-1])


# Attaching


def _is_attached(criterion: LossWeighting) -> bool:
    """Whether to an optimizer that still exists."""
    return criterion.attachment is not None and criterion.attachment.has_optimizer


def _leaves(configured: Any) -> Iterator[Any]:
    """Yield what ``configure_optimizers`` returned, out of its lists and dicts."""
    if isinstance(configured, (list, tuple, dict)):
        for part in configured.values() if isinstance(configured, dict) else configured:
            yield from _leaves(part)
    elif configured is not None:
        yield configured


# Why no rule can follow the steps of each.
_CANNOT = {
    "DeepSpeedStrategy": "DeepSpeed steps the optimizer itself",
    "FSDPStrategy": "FSDP flattens parameters, those of a rule together with the model's",
}


def _check_strategy(strategy: object, criterion: LossWeighting) -> None:
    for kind in type(strategy).__mro__:
        if criterion.follows_steps and kind.__name__ in _CANNOT:
            raise RuntimeError(
                f"LossWeights does not work with {kind.__name__}: {_CANNOT[kind.__name__]}. Use strategy='ddp'."
            )


def _clip_without_own(criterion: LossWeighting, clip: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Clip as the module does, while what the rule trains seems to have no gradient.

    A module that skips a bad batch here takes all gradients away; then that of the rule does not come back either.
    """
    own = getattr(criterion, criterion.trainable or "")
    gradient, own.grad = own.grad, None
    were_there = _has_gradients(criterion)
    try:
        return clip(*args, **kwargs)
    finally:
        if not were_there or _has_gradients(criterion):
            own.grad = gradient


def _has_gradients(criterion: LossWeighting) -> bool:
    """Whether anything else in the criterion's optimizer has a gradient."""
    if not _is_attached(criterion):
        return False
    assert criterion.attachment is not None
    groups = criterion.attachment.optimizer.param_groups
    return any(p.grad is not None for group in groups for p in group["params"])
