"""Weightings: what a trial trains under, one class for each way to choose the weights."""

from trainonce.study.weightings.base import Weighting as Weighting
from trainonce.study.weightings.base import digest as digest
from trainonce.study.weightings.base import key_of as key_of
from trainonce.study.weightings.base import labels as labels
from trainonce.study.weightings.base import without_defaults as without_defaults
from trainonce.study.weightings.controls import Final as Final
from trainonce.study.weightings.controls import Replay as Replay
from trainonce.study.weightings.controls import donor as donor
from trainonce.study.weightings.controls import obstacle as obstacle
from trainonce.study.weightings.fixed import Fixed as Fixed
from trainonce.study.weightings.fixed import grid as grid
from trainonce.study.weightings.halved import Halved as Halved
from trainonce.study.weightings.learned import Learned as Learned
