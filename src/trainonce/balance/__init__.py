"""Gradient balance: every term's gradient about as strong as the base's."""

from trainonce.balance.rule import BalancedLoss as BalancedLoss
