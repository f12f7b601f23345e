# `make run`: from a fresh clone to a trained model on this machine's CPU.  `make test`: the whole suite.
PYTHON ?= python3
BIN := .venv/bin
# Asked for by its exact version first: where a CPU build lies at hand, pip takes it, and the range in pyproject.toml is
# then satisfied. Left to the range alone, pip may bring gigabytes of CUDA.
TORCH ?= torch==2.13.0
# Compiling every module of torch and ray takes longer than training's first step; what is imported is compiled then,
# and kept, also where the environment says otherwise: else every process of Ray would compile torch anew.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check

.PHONY: run test test-xla quick bench lint clean

run: .venv/.train
	$(BIN)/raytrain-eks submit jobs/quickstart.yaml --on local --follow

# The slow part starts Ray and groups of ranks, which want both cores for themselves. Both parts are run, whatever the
# first one finds.
test: .venv/.dev
	@quick=0; slow=0; \
	$(BIN)/python -m pytest -m "not slow" -n 2 || quick=$$?; \
	$(BIN)/python -m pytest -m slow || slow=$$?; \
	test $$quick = 0 -a $$slow = 0

# torch_xla needs a torch of its own, so its tests have an environment of their own, on top of the project's.
test-xla: .venv-xla/.made
	TEST_XLA=1 .venv-xla/bin/python -m pytest tests/xla

quick: .venv/.dev
	$(BIN)/python -m pytest -m "not slow" -n 2

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.dev .venv-codeflare/.tried
	$(BIN)/python benchmarks/run.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.train: pyproject.toml | .venv/bin/python
	$(INSTALL) $(TORCH)
	$(INSTALL) -e '.[train]'
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(INSTALL) $(TORCH)
	$(INSTALL) -e '.[train,dev]'
	# JupyterHub brings it for formats of jsonschema that nothing here asks for. `import ray` imports jsonschema, which
	# compiles 38 grammars of it: 1.5 s of each process of Ray.
	$(BIN)/pip uninstall --quiet --yes rfc3987-syntax
	touch $@ .venv/.train

.venv-xla/.made: tests/xla/environment.py | .venv/.dev
	$(PYTHON) tests/xla/environment.py .venv-xla .venv
	touch $@

# What rendering is measured beside. It pins a Ray of its own; where it does not install, its row is left out.
.venv-codeflare/.tried:
	$(PYTHON) -m venv .venv-codeflare
	-.venv-codeflare/bin/pip install --quiet --disable-pip-version-check codeflare-sdk
	touch $@

clean:
	rm -rf .venv .venv-xla .venv-codeflare build *.egg-info
