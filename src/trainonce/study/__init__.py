"""Compare ways to choose loss weights on your own task: plans, seeds, a store that survives interruptions, a summary.

>>> import torch
>>> from trainonce.study import Study, task
>>> @task(terms=["fit", "small"], metric="error", direction="minimize", margin=0.1)
... def line(trial, *, steps=20):
...     x = torch.linspace(-1, 1, 16)[:, None]
...     model, criterion = torch.nn.Linear(1, 1), trial.criterion()
...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
...     trial.attach(optimizer)
...     for _ in range(steps):
...         fit = ((model(x) - 2 * x) ** 2).mean()
...         optimizer.zero_grad()
...         criterion(fit=fit, small=(model.weight**2).sum()).backward()
...         _ = optimizer.step()
...     return {"validation/error": fit.item(), "test/error": fit.item()}
>>> import tempfile
>>> study = Study(line, tempfile.mkdtemp(), seeds=2).add("yoto").add("grid(0.1,1)")
>>> summary = study.run(workers=0, device="cpu", show=False)
>>> [row.plan for row in summary.rows]
['yoto', 'grid(0.1,1)']
"""

from typing import TYPE_CHECKING

from trainonce import lazy as _lazy
from trainonce.errors import InputError as InputError
from trainonce.errors import user_errors as user_errors
from trainonce.study.task import Preset as Preset
from trainonce.study.task import Task as Task
from trainonce.study.task import task as task  # at once: imported later, its module would hide it

if TYPE_CHECKING:
    from trainonce.study.kept import KeptTrial as KeptTrial
    from trainonce.study.record import Record as Record
    from trainonce.study.store import DamagedStore as DamagedStore
    from trainonce.study.study import Study as Study
    from trainonce.study.summary import Summary as Summary
    from trainonce.study.trial import Trial as Trial
else:
    __getattr__, __dir__ = _lazy.exports(
        __name__,
        {
            "DamagedStore": "store",
            "KeptTrial": "kept",
            "Record": "record",
            "Study": "study",
            "Summary": "summary",
            "Trial": "trial",
        },
    )

__all__ = [
    "DamagedStore",
    "InputError",
    "KeptTrial",
    "Preset",
    "Record",
    "Study",
    "Summary",
    "Task",
    "Trial",
    "task",
    "user_errors",
]
