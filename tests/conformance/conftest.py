"""Tiny real models for the model suite."""

from tests.tiny import tiny, tiny_adapters

__all__ = ["tiny", "tiny_adapters"]
