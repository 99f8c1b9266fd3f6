"""nano: the small built-in model of dssr, its weights, its configurations and the factory that makes it."""

from dssr_nano.networks import CONFIGS, WEIGHTS, weights

__all__ = ["CONFIGS", "WEIGHTS", "weights"]
