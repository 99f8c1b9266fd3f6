"""The scripted model and the parts that others build on: claims, formats, the forgetful writer."""

from dssr.models.scripted.formats import FORMATS, Format, render
from dssr.models.scripted.model import ScriptedModel
from dssr.models.scripted.parse import parse, understand
from dssr.models.scripted.writer import rewrite

__all__ = ["FORMATS", "Format", "ScriptedModel", "parse", "render", "rewrite", "understand"]
