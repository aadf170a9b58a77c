"""Which tasks choose between rules and which judge the choice.

Rules, and the settings that they have, are compared on choosing tasks as often as one likes. A judging set is run once,
with one setting for all tasks, when the choice is made. So its numbers are not those of the best of many tries. Until
then a judging task is only ever trained with weights that are fixed in advance (equal ones, the base alone, a grid), to
see that it can be trained, that its weights matter, and to choose its learning rate.

There are three groups, because there were two rounds:

- ``CHOOSING``: the settings of the first round were chosen on these.
- ``JUDGED``: these judged that choice, once, at commit 162bce0 with the seeds 100 to 109. What was seen there is used
  for the next choice, so from then on they are choosing tasks too: a set that has been looked at cannot judge again.
- ``JUDGING``: written after that run, for the next one, with seeds from 200 on. No learned or measured rule had been
  run on any of them when they were written; fixed weights had, on the seeds 0 to 2.

What the second round judged, at commit bc41224 with the seeds 200 to 209, is halving as it was then: gradient units
with a drift of 4, begun also with a thirtieth and with 30 times of each auxiliary term, of which 3, 2 and 1 go on
after 1/36, 1/9 and 1/3 of the training, without a seat for any. It was chosen on all tasks of the first two groups,
and written here, before any rule but fixed weights was run on the third. Beside it: the same without the drift, units
with the drift alone, and units alone. Scales are tried on kdv (residual), denoise (sparsity) and forecast (last).

One exception in the first round, found to be against the rule afterwards: to see that the engine runs, learned rules
made 18 to 36 steps on charlm, contrastive, klein_gordon and beta_vae with seed 0. Nothing was chosen by it, and no
record was kept.

What kinds of trouble are where:

========================================  =====================  ======================  ===========================
trouble                                   choosing               judged                  judging
========================================  =====================  ======================  ===========================
terms that help, few labels               digits, mnist          fashion, contrastive    (none)
a teacher, partly wrong                   distillation           (none)                  features
a test unlike the labelled images         digits, mnist          fashion                 pseudo, denoise
terms that need each other                (none)                 (none)                  pseudo
a term that does not help                 harmful                useless                 (none)
a term that silences the code             (none)                 beta_vae                denoise
two tasks of equal rank                   multimnist             multifashion            (none)
terms of other scale, or that compete     regression             beta_vae                features, forecast
a differential equation                   burgers                helmholtz,              allen_cahn, kdv
                                                                 klein_gordon
an equation with noisy data               (none)                 (none)                  pendulum, inverse_heat
a prior that is a little wrong            (none)                 (none)                  pendulum
a parameter that one term alone reaches   (none)                 (none)                  inverse_heat
a term that only regularises              (none)                 charlm, beta_vae        inverse_heat, forecast
a metric that no term has                 (none)                 beta_vae                forecast
========================================  =====================  ======================  ===========================

A kind that only judges shows how the choice carries over to what nobody had in mind.

The recipes ``camvid`` and ``nyu`` count as choosing tasks too: the rules were seen on them before. They are trained by
the study and not here, being too large to stack.
"""

from __future__ import annotations

CHOOSING = ("digits", "distillation", "harmful", "mnist", "burgers", "multimnist", "regression")
JUDGED = ("fashion", "multifashion", "useless", "beta_vae", "contrastive", "helmholtz", "klein_gordon", "charlm")
JUDGING = ("allen_cahn", "kdv", "pendulum", "inverse_heat", "features", "pseudo", "denoise", "forecast")

#: Trained by the study, beside the choosing tasks.
RECIPES = ("camvid", "nyu")

#: Choosing tasks use seeds below it, judging tasks the seeds from it on. The judged ones were run with 100 to 109.
FIRST_JUDGING_SEED = 200

#: Run again with SGD: two of each group.
WITH_SGD = ("digits", "mnist", "fashion", "contrastive", "pseudo", "denoise")
