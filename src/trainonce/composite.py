"""CompositeLoss: the paper's rule, a softmax of exponents that are trained together with the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import torch
from torch import Tensor, nn

from trainonce import functional
from trainonce.terms import values_by_term
from trainonce.text import is_number, is_positive, quoted
from trainonce.weighting import LossWeighting, NonFinite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trainonce.terms import Batch

__all__ = ["DECAY", "INIT", "PRINTED", "TRAVEL", "CompositeLoss"]

#: The defaults, ours and not the paper's: the one place of this choice.
INIT: Final = 1.0
DECAY: Final = 4.0
TRAVEL: Final = 0.15

MODEL: Final = "model"

#: What the paper says of its two systems; the exponents have the learning rate of the model.
PRINTED: Final[dict[str, dict[str, float]]] = {
    "unidepth": {"init": 0.1, "decay": 20.0},
    "ciss": {"init": math.exp(-4), "decay": 200.0},
}


class CompositeLoss(LossWeighting):
    r"""The rule of "You Only Train Once": weights that are learned in the one training.

    .. math:: L_e = \sum_{i=0}^{K} \lambda_i l_i, \qquad \lambda = \mathrm{softmax}(0, \mu_1, \dots, \mu_K)

    :math:`l_0` is the base term, :math:`l_1 \dots l_K` are the auxiliary ones, :math:`\mu` the learned exponents.
    :func:`trainonce.attach` puts them into the optimizer. By default they move at a pace of their own, ``travel``; with
    ``lr`` the model's optimizer moves them. After each step that is not skipped, outside of momentum and Adam's
    scaling,

    .. math:: \mu \leftarrow \mu - \alpha_t \rho \nabla R(\mu_{t-1})

    where :math:`\alpha_t` is the exponents' current rate and :math:`\nabla R` is
    :func:`trainonce.functional.regularizer_grad`. With ``lr="model"`` and :class:`trainonce.SGDW` this is the paper's
    Algorithm 1.

    :param terms: The names of the losses. The first is the base, the term that says what is wanted: its exponent is the
        constant 0.
    :param init: The paper's :math:`\epsilon`: :math:`e^{\mu_i}` at the start, that is, each auxiliary coefficient
        relative to the base's. One positive number, or a dict with one for each auxiliary term.
    :param decay: The strength :math:`\rho \ge 0` of the hyperparameter decay; it may be set during training.
    :param regularizer: Which of ``"negentropy"`` and ``"softplus"`` :math:`R` sums. The paper prints both; softplus
        alone is the reading whose balance is near the weights it reports.
    :param lr: The exponents' learning rate :math:`\alpha` in the model's optimizer, instead of a pace of their own:
        a number, or ``"model"`` for the model's rate, as in the paper. Schedulers act on it.
    :param travel: About how far the exponents can move for every factor e in the steps, by default 0.15: in Adam's
        direction, at the rate :math:`\alpha_t` = ``travel / (t + 10)``, whatever the model's optimizer, rate and
        schedule are (:mod:`trainonce.pace`).
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

    .. note:: The defaults are ours, chosen on 23 small tasks. The paper starts from 0.1 and :math:`e^{-4}`, has decays
        of 2, 20 and 200, and moves the exponents by the model's optimizer, at the model's rate: :meth:`as_printed`.

    .. note:: :math:`\rho` enters once. Algorithm 1 multiplies by :math:`\rho` a gradient that already contains it by
        the paper's definition of :math:`L_r`; read literally it would be squared, and we found no course
        of the losses with which that ends at a reported number.

    .. note:: A term that is absent from a batch is passed as ``None``. Its exponent gets no gradient, the weights of
        the others stay as they are, and the losses of the others are compared with the mean of those that are present.
        The paper does not treat this case.
    """

    exponents: nn.Parameter
    version: ClassVar[int] = 2  # 1: without lr and travel, the model's rate
    compares_raw = True
    _zero: Tensor | None = None

    def __init__(
        self,
        terms: Iterable[str],
        *,
        init: float | Mapping[str, float] = INIT,
        decay: float = DECAY,
        regularizer: Collection[str] = functional.REGULARIZER_PARTS,
        lr: float | Tensor | Literal["model"] | None = None,
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
            raise ValueError(
                "lr is a rate in the model's optimizer and travel a pace of their own: give one of them; "
                f"got lr={lr!r} and travel={travel!r}."
            )
        if isinstance(lr, str) and lr != MODEL:
            raise ValueError(f"lr must be a number of at least 0, or {MODEL!r} for the model's rate; got {lr!r}.")
        if lr is not None and not isinstance(lr, (Tensor, str)):
            _check_strength("lr", lr)
        if travel is not None:
            _check_strength("travel", travel)
        pace = None if lr is not None else TRAVEL if travel is None else travel
        self.decay = decay
        self.regularizer = _parts(regularizer)
        logs = [math.log(ratio) for ratio in start]
        own_rate = None if isinstance(lr, str) else lr
        self.add_trainable("exponents", logs, per="auxiliary", lr=own_rate, pace=pace)

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
        rate = {} if options.get("travel") is not None else {"lr": MODEL}
        given = {key: value for key, value in options.items() if key != "lr" or value is not None}
        return cls(terms, **{**PRINTED[system], **rate, **given})

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
