"""Builds the engine's compiled part, `dssr/models/engine/kernels.cpp`; all else is in pyproject.toml."""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = "src/dssr/models/engine/kernels.cpp"
FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions"]
LEVELS = {"base": []}
"""By name: what the processor must have. Which is taken is decided where it runs (`dssr/models/engine/native.py`)."""
if platform.machine().lower() in ("x86_64", "amd64"):
    LEVELS |= {"v3": ["-march=x86-64-v3"], "v4": ["-march=x86-64-v4"]}


class Build(build_ext):
    """For libraries that are no Python modules, and are not named like ones."""

    def get_ext_filename(self, fullname: str) -> str:
        *folder, name = fullname.split(".")
        return str(Path(*folder, f"kernels.{name}.so"))


setup(
    ext_modules=[
        Extension(f"dssr.models.engine.{name}", [SOURCE], extra_compile_args=[*FLAGS, *level], language="c++")
        for name, level in LEVELS.items()
    ],
    cmdclass={"build_ext": Build},
)
