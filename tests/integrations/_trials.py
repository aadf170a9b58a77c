"""Tasks that a Trainer trains, with dropout, a schedule, clipping and a shuffled loader, for trials that pause."""

from __future__ import annotations

import os

import lightning as L
import torch
import transformers
from _lightning import quiet
from _problem import TERMS, terms
from _transformers import collate
from accelerate.state import AcceleratorState
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

from trainonce.integrations import lightning
from trainonce.integrations import transformers as hf
from trainonce.study import task

SIZE = 44


class Points(Dataset):
    """Points, with noise that is drawn when they are read if ``noise`` is above 0."""

    def __init__(self, noise=0.0):
        x = torch.cos(torch.arange(4.0 * SIZE) * 0.7).reshape(SIZE, 4)
        self.x, self.y, self.noise = x, x.sum(1, keepdim=True).sin(), noise

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        x = self.x[index]
        return (x + self.noise * torch.randn(4) if self.noise else x), self.y[index]


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2))


def metrics(net):
    """All parameters."""
    values = torch.cat([p.detach().flatten() for p in net.parameters()]).tolist()
    return {"validation/error": values[0], "test/error": values[-1]} | {f"p{i}": v for i, v in enumerate(values)}


def act(trial, at, done):
    """Send this process a signal at a step, once."""
    mark = trial.dir.parent / f"{trial.dir.name}-signalled"
    if at and done == at[0] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), at[1])


class Module(L.LightningModule):
    def __init__(self, criterion, attach, per_epoch, total, at, trial):
        super().__init__()
        self.net, self.criterion, self.attach = network(), criterion, attach
        self.per_epoch, self.total, self.at, self.trial = per_epoch, total, at, trial

    def training_step(self, batch, index):
        return self.criterion(terms(self.net(batch[0]), batch[1]))

    def on_train_batch_start(self, batch, index):
        act(self.trial, self.at, self.global_step)

    def validation_step(self, batch, index):
        self.log("error", terms(self.net(batch[0]), batch[1])["fit"] + torch.rand(()))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        self.attach(optimizer)
        if self.per_epoch:
            return [optimizer], [lr_scheduler.StepLR(optimizer, 1, gamma=0.7)]
        assert self.trainer.estimated_stepping_batches == self.total
        return [optimizer], [{"scheduler": lr_scheduler.CosineAnnealingLR(optimizer, self.total), "interval": "step"}]


class Report(L.Callback):
    def __init__(self, trial):
        self.trial = trial

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.trial.report(trainer.global_step, error=trainer.callback_metrics["error"])


@task(terms=TERMS, metric="error", direction="minimize", preload=["lightning", "trainonce.integrations.transformers"])
def with_lightning(
    trial,
    *,
    steps=12,
    epochs=0,
    accumulate=1,
    validate=0.0,
    per_epoch=False,
    noise=0.0,
    workers=0,
    plain=False,
    callback=True,
    forget=False,
    min_epochs=0,
    at=(),
):
    """Points in shuffled batches of 8, six to an epoch, by Lightning."""
    loader = DataLoader(Points(noise), 8, shuffle=True, num_workers=workers)
    total = -(-len(loader) // accumulate) * epochs or steps
    module = Module(trial.criterion(), trial.attach, per_epoch, total, at, trial)
    goes_on = lightning.TrialCallback(trial)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=-1 if epochs else steps,
        max_epochs=epochs or None,
        min_epochs=min_epochs or None,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=1.0,
        val_check_interval=validate or 1.0,
        limit_val_batches=1.0 if validate else 0,
        callbacks=[lightning.LossWeights(), *([goes_on] if callback else []), Report(trial)],
        default_root_dir=trial.dir,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with quiet():
        path = None if forget else goes_on.checkpoint
        trainer.fit(module, loader if plain else trial.batches(loader), DataLoader(Points(), 8), ckpt_path=path)
    return metrics(module.net)


class Model(nn.Module):
    def __init__(self, criterion):
        super().__init__()
        self.net, self.criterion = network(), criterion

    def forward(self, x, y):
        found = terms(self.net(x), y)
        return {"loss": self.criterion(found), "fit": found["fit"]}


class Act(transformers.TrainerCallback):
    def __init__(self, trial, at):
        self.trial, self.at = trial, at

    def on_step_begin(self, args, state, control, **_):
        act(self.trial, self.at, state.global_step)


class ReportTrainer(hf.Trainer):
    trial = None

    def evaluate(self, *args, **kwargs):
        torch.rand(())  # as a metric that draws would
        found = super().evaluate(*args, **kwargs)
        self.trial.report(self.state.global_step, error=found["eval_loss"])
        return found


@task(terms=TERMS, metric="error", direction="minimize", preload=["lightning", "trainonce.integrations.transformers"])
def with_trainer(
    trial,
    *,
    steps=12,
    epochs=0,
    accumulate=1,
    validate="no",
    noise=0.0,
    workers=0,
    callback=True,
    forget=False,
    save="no",
    only_model=False,
    at=(),
):
    """Points in shuffled batches of 8, six to an epoch, by the Hugging Face Trainer."""
    AcceleratorState._reset_state(reset_partial_state=True)
    model = Model(trial.criterion())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    trial.attach(optimizer)
    goes_on = hf.TrialCallback(trial)
    arguments = transformers.TrainingArguments(
        str(trial.dir),
        seed=trial.seed,
        max_steps=-1 if epochs else steps,
        num_train_epochs=epochs or 3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=accumulate,
        dataloader_num_workers=workers,
        eval_strategy=validate,
        eval_steps=2 if validate == "steps" else None,
        save_strategy=save,
        save_steps=3,
        save_only_model=only_model,
        lr_scheduler_type="cosine",
        label_names=["y"],
        logging_strategy="no",
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = ReportTrainer(
        model,
        arguments,
        train_dataset=Points(noise),
        eval_dataset=Points(),
        data_collator=collate,
        optimizers=(optimizer, None),
        callbacks=[*([goes_on] if callback else []), Act(trial, at)],
    )
    trainer.trial = trial
    trainer.train(resume_from_checkpoint=None if forget else goes_on.checkpoint)
    return metrics(model.net)
