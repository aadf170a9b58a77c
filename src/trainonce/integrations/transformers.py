"""Hugging Face Trainer: train a model that calls its criterion in forward, and pause and resume trials."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainonce import attachment as core
from trainonce import extras, parameters
from trainonce.errors import InputError
from trainonce.integrations._evaluation import EvaluationTerms
from trainonce.integrations._trial import Follower
from trainonce.integrations.accelerate import keep_out_of_clipping, refuse_unsupported, unwrap
from trainonce.text import quoted
from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trainonce.attachment import Attachment, Sync
    from trainonce.history import History
    from trainonce.study import Trial

__all__ = ["Trainer", "TrialCallback"]


def _package() -> Any:
    package = extras.require("transformers", "Transformers", "hf")
    if not hasattr(package.Trainer, "_clip_grad_norm"):  # or clipping would take what rules train along
        raise ImportError(
            "This needs a Trainer that clips in a method of its own, as that of transformers 5.22 does; found "
            f'{package.__version__}: pip install -U "trainonce[hf]"'
        )
    return package


class Trainer(_package().Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` for a model that holds a criterion and calls it in ``forward``.

    It attaches the criterion to its optimizer before the scheduler is made, keeps what the rule trains out of weight
    decay and ``max_grad_norm`` and equal on every process, and logs every ``logging_steps``. The criterion is saved and
    restored with the model. An evaluation logs the mean of each term. A criterion that you have attached to an
    optimizer passed in ``optimizers`` stays attached to it. For a Trainer of your own name this one first: ``class
    Mine(Trainer, Seq2SeqTrainer)``.

    :param history: As in :func:`trainonce.attach`.
    :param sync: As in :func:`trainonce.attach`.

    Everything else is as in ``transformers.Trainer``.
    """

    def __init__(
        self, *args: Any, history: History | str | os.PathLike[str] | None = None, sync: Sync = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._history = history
        self._sync = sync
        self._attachment: Attachment | None = None
        self._evaluated: EvaluationTerms | None = None
        refuse_unsupported(self.accelerator, _criterion_of(self))
        if self.label_smoother is not None:
            raise ValueError(
                "label_smoothing_factor has the Trainer compute a loss of its own, so the model's criterion would "
                "never be called. Set it to 0 and smooth the labels in the term itself."
            )
        # A forward that takes **kwargs would have to divide every term by num_items_in_batch; terms are means over
        # different things, so the Trainer divides by the number of accumulated batches as it does for other models.
        if not hasattr(self.model, "accepts_loss_kwargs"):
            self.model_accepts_loss_kwargs = False

    def train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().train(*args, **kwargs)
        finally:  # so that another Trainer can go on with this model
            if self._attachment is not None:
                self._attachment.remove()
                self._attachment = None

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if not self.control.should_training_stop:  # a trial may be where it pauses, with no step to make
            super()._run_epoch(*args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        parameters.keep_out(self.model)  # DDP comes next; so the criterion may be called in compute_loss too
        return super().create_optimizer(*args, **kwargs)

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:
        self._attach()  # here: FSDP2 has made its new parameters, and the scheduler has not counted the groups
        return super().create_scheduler(*args, **kwargs)

    def _attach(self) -> None:
        criterion, optimizer = _criterion_of(self), unwrap(self.optimizer)
        attachment = criterion.attachment
        if attachment is None or not attachment.has_optimizer or attachment.optimizer is not optimizer:
            self._attachment = core.attach(optimizer, criterion, history=self._history, sync=self._sync)
        keep_out_of_clipping(self.accelerator, criterion)

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        return super()._clip_grad_norm(_ModelAlone(model))

    def _get_grad_norm(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return super()._get_grad_norm(_ModelAlone(model), *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:  # the training's own log, not one of evaluation
            logs |= _numbers(_criterion_of(self).log_dict())
        super().log(logs, *args, **kwargs)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        given = (dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        with EvaluationTerms(_criterion_of(self)) as found:
            self._evaluated = found
            try:
                output = super().evaluation_loop(*given)
            finally:
                self._evaluated = None
        output.metrics.update(found.means(metric_key_prefix))
        return output

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        predicted = super().prediction_step(*args, **kwargs)
        if self._evaluated is not None:  # on every process, whether it called the criterion or not
            self._evaluated.end_batch(self.args.eval_batch_size, self.args.device, self.accelerator.gather_for_metrics)
        return predicted


class TrialCallback(_package().TrainerCallback):  # type: ignore[misc]
    """Lets a trial that a :class:`Trainer` trains pause, survive a kill and go on, as one with ``trial.loop`` does.

    Pass its ``checkpoint`` to ``train``::

        callback = TrialCallback(trial)
        trainer = Trainer(model, arguments, optimizers=(optimizer, None), callbacks=[callback], ...)
        trainer.train(resume_from_checkpoint=callback.checkpoint)

    The Trainer stops early where the plan pauses; its length, and so that of schedules, stays the full one.
    """

    def __init__(self, trial: Trial) -> None:
        self._follower = Follower(trial)
        self._is_due = False
        self._take: Callable[[Path, Path], object] = shutil.move  # or a copy, where the Trainer saves for the user, too

    @property
    def checkpoint(self) -> str | None:
        """The path for ``resume_from_checkpoint`` of ``train``; None where the trial begins."""
        return self._follower.checkpoint

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if args.save_only_model or args.save_strategy == "best":  # not all is saved, or not when it is asked for
            if self._follower.trial.until < 1:
                raise InputError(
                    "The plan pauses its trainings, and with save_only_model or save_strategy='best' the Trainer does "
                    "not save what going on takes. Leave them out of the TrainingArguments."
                )
            return
        call = "trainer.train(resume_from_checkpoint=callback.checkpoint)"
        if self._follower.begin(state.max_steps, state.global_step == self._follower.start, call):
            control.should_training_stop = True

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._follower.loop is not None and self._follower.loop.is_over:
            raise RuntimeError(
                "The trial was trained as far as it should be, and this Trainer makes one step more: use that of "
                "trainonce.integrations.transformers, also as a base class."
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if not float(state.epoch).is_integer():  # else at the end of the epoch, after its evaluation
            self._end_step(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if float(state.epoch).is_integer():
            self._end_step(args, state, control)

    def _end_step(self, args: Any, state: Any, control: Any) -> None:
        loop = self._follower.loop
        if loop is None or loop.is_over:
            return
        self._is_due = self._follower.end_step()
        if self._is_due:
            self._take = shutil.copytree if control.should_save or _saved(args, state).exists() else shutil.move
            control.should_save = True
        if loop.paused:
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if self._is_due:
            self._is_due = False
            self._follower.keep(lambda path: self._take(_saved(args, state), path))


def _saved(args: Any, state: Any) -> Path:
    """Return where the Trainer saves at the step it is at."""
    return Path(args.output_dir, f"checkpoint-{state.global_step}")


class _ModelAlone:
    """Shows clipping a model's parameters without those of rules."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def parameters(self) -> Iterator[nn.Parameter]:
        return iter(parameters.model_parameters(self._model))


def _numbers(scalars: dict[str, Tensor]) -> dict[str, float]:
    """Read back from the device at once, not one by one."""
    return dict(zip(scalars, torch.stack(list(scalars.values())).tolist(), strict=True))


def _criterion_of(trainer: Any) -> LossWeighting:
    """Return the criterion inside the model, or raise one sentence about where it should be."""
    found = {name: m for name, m in trainer.model.named_modules() if isinstance(m, LossWeighting)}
    inside = {id(criterion) for criterion in found.values()}
    outside = [k for k, v in vars(trainer).items() if isinstance(v, LossWeighting) and id(v) not in inside]
    if outside:
        raise ValueError(
            f"The criterion {outside[0]!r} lies on the Trainer, which trains and saves the model alone. Make it a "
            "submodule of the model and call it in the model's forward."
        )
    if not found:
        raise ValueError(
            f"{type(trainer.model).__name__} holds no criterion, and the Trainer trains and saves the model alone. "
            "Make it a submodule of the model (a list does not count), such as self.criterion = "
            "trainonce.CompositeLoss([...]), and call it in the model's forward."
        )
    if len(found) > 1:
        raise ValueError(
            f"The model holds {len(found)} criteria ({quoted(found)}); this Trainer attaches one. Give one of them all "
            "the terms."
        )
    return next(iter(found.values()))
