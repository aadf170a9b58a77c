"""Which tasks choose between rules and which judge the choice. Written before any rule was run on either.

Rules, and the settings that they have, are compared on the choosing half as often as one likes. The judging half is
run once, with one setting for all tasks, when the choice is made. So its numbers are not those of the best of many
tries. Until then a judging task is only ever trained with weights that are fixed in advance (equal ones, the base
alone, or one weighting known from the literature), to see that it can be trained and to choose its learning rate.

One exception, found to be against this rule afterwards: to see that the engine runs, learned rules made 18 to 36 steps
on charlm, contrastive, klein_gordon and beta_vae with seed 0. Nothing was chosen by it, and no record was kept.

How they were divided: each kind of trouble is on both sides, by another data set or equation where there is one.

==========================================  =============================  ==========================================
trouble                                     choosing                       judging
==========================================  =============================  ==========================================
auxiliary terms that help, few labels       digits, mnist, distillation    fashion, contrastive
a term that does not help                   harmful                        useless
two tasks of equal rank                     multimnist                     multifashion
terms of other scale, or that compete       regression                     beta_vae
a differential equation                     burgers                        helmholtz, klein_gordon
a term that only regularises                (none)                         charlm, beta_vae
==========================================  =============================  ==========================================

A kind that only judges (a language model, an autoencoder, four terms at once) shows how the choice carries over to what
nobody had in mind.

The recipes ``camvid`` and ``nyu`` count as choosing tasks too: the rules were seen on them before. They are trained by
the study and not here, being too large to stack.
"""

from __future__ import annotations

CHOOSING = ("digits", "distillation", "harmful", "mnist", "burgers", "multimnist", "regression")
JUDGING = ("fashion", "multifashion", "useless", "beta_vae", "contrastive", "helmholtz", "klein_gordon", "charlm")

#: Trained by the study, beside the choosing half.
RECIPES = ("camvid", "nyu")

#: Choosing tasks use seeds below it, judging tasks the seeds from it on.
FIRST_JUDGING_SEED = 100

#: Run again with SGD: two of each half.
WITH_SGD = ("digits", "mnist", "fashion", "contrastive")
