"""Weightings: what a trial trains under, one class for each way to choose the weights."""

from trainonce.study.weightings.learned import HISTORY as HISTORY
from trainonce.study.weightings.learned import Final as Final
from trainonce.study.weightings.learned import Fixed as Fixed
from trainonce.study.weightings.learned import Learned as Learned
from trainonce.study.weightings.learned import Replay as Replay
from trainonce.study.weightings.learned import Weighting as Weighting
from trainonce.study.weightings.learned import digest as digest
from trainonce.study.weightings.learned import donor as donor
from trainonce.study.weightings.learned import key_of as key_of
