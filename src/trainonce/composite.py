"""CompositeLoss: the paper's rule, a softmax of exponents that the model's own optimizer trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import torch
from torch import Tensor, nn

from trainonce import functional
from trainonce.terms import values_by_term
from trainonce.text import is_number, is_positive, quoted
from trainonce.weighting import LossWeighting, NonFinite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trainonce.terms import Batch

__all__ = ["DECAY", "INIT", "PRINTED", "CompositeLoss"]

#: The defaults, ours and not the paper's: the one place of this choice.
INIT: Final = 1.0
DECAY: Final = 2.0

#: What the paper says of its two systems; the exponents have the learning rate of the model.
PRINTED: Final[dict[str, dict[str, float]]] = {
    "unidepth": {"init": 0.1, "decay": 20.0},
    "ciss": {"init": math.exp(-4), "decay": 200.0},
}


class CompositeLoss(LossWeighting):
    r"""The rule of "You Only Train Once": weights that the model's own optimizer learns.

    .. math:: L_e = \sum_{i=0}^{K} \lambda_i l_i, \qquad \lambda = \mathrm{softmax}(0, \mu_1, \dots, \mu_K)

    :math:`l_0` is the base term, :math:`l_1 \dots l_K` are the auxiliary ones, :math:`\mu` the learned exponents.
    :func:`trainonce.attach` puts them into the optimizer. After each step that is not skipped, outside of momentum and
    Adam's scaling,

    .. math:: \mu \leftarrow \mu - \alpha_t \rho \nabla R(\mu_{t-1})

    where :math:`\alpha_t` is the exponents' current learning rate, so schedulers work, and :math:`\nabla R` is
    :func:`trainonce.functional.regularizer_grad`. With :class:`trainonce.SGDW` this is the paper's Algorithm 1.

    :param terms: The names of the losses. The first is the base, the term that says what is wanted: its exponent is the
        constant 0.
    :param init: The paper's :math:`\epsilon`: :math:`e^{\mu_i}` at the start, that is, each auxiliary coefficient
        relative to the base's. One positive number, or a dict with one for each auxiliary term.
    :param decay: The strength :math:`\rho \ge 0` of the hyperparameter decay; it may be set during training.
    :param regularizer: Which of ``"negentropy"`` and ``"softplus"`` :math:`R` sums. The paper prints both; softplus
        alone is the reading whose balance is near the weights it reports.
    :param lr: The exponents' learning rate :math:`\alpha` in the model's optimizer; by default the model's.
    :param travel: Instead of that a pace of their own, whatever the model's optimizer, rate and schedule are: Adam's
        direction, at the rate ``travel / (step + 10)``. So they can move by about this much for every factor e in the
        steps (:mod:`trainonce.pace`).
    :param scale: Multiplies the returned loss, and so the model's gradients, but not the exponents' gradients. Set it
        to the sum of the weights you had: weights that summed to 11 now sum to 1, and without ``scale=11`` the steps of
        plain SGD would be 11 times smaller.
    :param nonfinite: As in :class:`trainonce.LossWeighting`.

    >>> import torch
    >>> criterion = CompositeLoss(["ce", "invariance"], init=0.1)
    >>> ce, invariance = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    >>> round(criterion(ce=ce, invariance=invariance).item(), 4)
    1.9091
    >>> print(criterion)
    CompositeLoss(
      term        coefficient  ratio  exponent
      ce               0.9091      1           (base)
      invariance      0.09091    0.1    -2.303
    )

    .. note:: The defaults are ours: the paper starts from 0.1 and :math:`e^{-4}` and has decays of 2, 20 and 200, which
        :meth:`as_printed` gives.

    .. note:: :math:`\rho` enters once. Algorithm 1 multiplies by :math:`\rho` a gradient that already contains it by
        the paper's definition of :math:`L_r`; read literally it would be squared, which no number in the paper fits.

    .. note:: A term that is absent from a batch is passed as ``None``. Its exponent gets no gradient, the weights of
        the others stay as they are, and the losses of the others are compared with the mean of those that are present.
        The paper does not treat this case.
    """

    exponents: nn.Parameter
    compares_raw = True
    _zero: Tensor | None = None

    def __init__(
        self,
        terms: Iterable[str],
        *,
        init: float | Mapping[str, float] = INIT,
        decay: float = DECAY,
        regularizer: Collection[str] = functional.REGULARIZER_PARTS,
        lr: float | Tensor | None = None,
        travel: float | None = None,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        if isinstance(terms, Mapping):
            raise TypeError(
                "CompositeLoss takes the names of the losses; got a dict. Give the ratios to start from as "
                "CompositeLoss(terms, init={...}), or hold weights with FixedLoss."
            )
        super().__init__(terms, scale=scale, nonfinite=nonfinite)
        rule = "a positive number, the starting ratio of a term's coefficient to the base's"
        start = values_by_term("init", self.terms[1:], init, is_positive, rule)
        if lr is not None and travel is not None:
            raise ValueError("Give lr, a rate in the model's optimizer, or travel, a pace of their own, and not both.")
        for name, value in (("lr", lr), ("travel", travel)):
            if value is not None and not isinstance(value, Tensor):
                _check_strength(name, value)
        self.decay = decay
        self.regularizer = _parts(regularizer)
        logs = [math.log(ratio) for ratio in start]
        self.add_trainable("exponents", logs, per="auxiliary", lr=lr, pace=travel)

    @classmethod
    def as_printed(cls, terms: Iterable[str], system: str, **options: Any) -> Self:
        """Make the rule with the paper's own numbers for one of its systems.

        ``"unidepth"``: :math:`\\epsilon = 0.1`, :math:`\\rho = 20`. ``"ciss"``: :math:`\\epsilon = e^{-4}`,
        :math:`\\rho = 200`. Both have negentropy and softplus, and the model's learning rate.

        :param options: What else the constructor takes; what is given here goes before the paper's numbers.

        >>> CompositeLoss.as_printed(["ce", "invariance"], "ciss").decay
        200.0
        """
        if system not in PRINTED:
            raise ValueError(f"The paper has the systems {quoted(PRINTED)}; got {system!r}.")
        return cls(terms, **{**PRINTED[system], **options})

    @property
    def decay(self) -> float:
        """The strength of the hyperparameter decay."""
        return self._decay

    @decay.setter
    def decay(self, value: float) -> None:
        _check_strength("decay", value)
        self._decay = float(value)

    def weigh(self) -> Tensor:
        mu = self.live("exponents")
        return functional.weights_with(self._base_zero(mu), mu)

    def _base_zero(self, like: Tensor) -> Tensor:
        """Return the base term's exponent: the same zero every time, for as long as device and dtype stay."""
        zero = self._zero
        if zero is None or zero.dtype != like.dtype or zero.device != like.device:
            zero = like.detach().new_zeros(1)
            if not torch.compiler.is_compiling():
                self._zero = zero
        return zero

    def combine(self, batch: Batch) -> Tensor:
        if batch.present is None:
            return super().combine(batch)
        return functional.sum_of_present(self.weigh(), batch.losses, batch.present.indices)

    def pull(self) -> Tensor | None:
        if not self._decay:
            return None
        mu = self._whole("exponents")
        return functional.regularizer_grad_with(self._base_zero(mu), mu, self.regularizer)


def _check_strength(name: str, value: object) -> None:
    if not is_number(value) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} must be a number of at least 0; got {value!r}.")


def _parts(regularizer: Collection[str]) -> tuple[str, ...]:
    if isinstance(regularizer, str):
        regularizer = (regularizer,)
    functional.check_parts(regularizer)
    return tuple(part for part in functional.REGULARIZER_PARTS if part in regularizer)
