"""The scripted model and the parts that others build on: claims, formats, the forgetful writer.

It is a player of cooking games and of no other: beside `dssr.worlds` itself, only this folder may import
`dssr.worlds.cooking`.
"""

from dssr.models.scripted.formats import FORMATS, Format, parse, render, understand
from dssr.models.scripted.model import ScriptedModel
from dssr.models.scripted.writer import rewrite

__all__ = ["FORMATS", "Format", "ScriptedModel", "parse", "render", "rewrite", "understand"]
