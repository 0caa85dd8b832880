# make demo   set up, then the whole study at small scale, on this machine
# make test   set up, then the tests          make lint   style and types
# make test-cluster   the long tests, and those on a Slurm of their own (root, Debian packages of .ci/run)
# make test-nightly   what takes hours more, of which the others have samples: every kill, every command of every page
# make test-versions   the tests of make test on other Pythons with the newest packages: PYTHONS="python3.13"
# make paper-simulated   the paper's campaign, simulated with the scaling model, to all figures, in minutes
# make docs   the documentation as a site, in site/
# make setup  only the environment, .venv     make clean  remove results, never data or .venv

# The first of these that can make environments.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13; do $$python -c "import ensurepip" 2>/dev/null && echo $$python && break; done)
BIN := $(CURDIR)/.venv/bin
READY := .venv/.ready
DEMO := results/demo
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
# What lies in ~/.local is not part of the environment.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH
# Some containers set it; then every command would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo paper-simulated test test-cluster test-nightly test-versions lint docs clean lock

setup: $(READY)

# uv comes from the lock as well, by its hash; then it installs the rest.
$(READY): envs/lock.txt pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "make: no Python 3.11 to 3.13 with venv (Debian: python3-venv); or: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@[ ! -L .venv ] || { echo "make: .venv is a link, and setting up empties the folder that it leads to; remove the link first"; exit 1; }
	@echo "Setting up .venv from envs/lock.txt with $(PYTHON) (about 7 GB, a few minutes)"
	@$(PYTHON) -m venv --clear .venv
	@sed -n '/^uv==/,/# via/p' envs/lock.txt | $(PIP) install --quiet --require-hashes -r /dev/stdin
	@uv pip install --quiet --require-hashes --compile-bytecode -r envs/lock.txt
	@uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(READY)
	@echo "Ready: . .venv/bin/activate"

# Figure 5 comes first: two trainings suffice for it.
demo: $(READY)
	@snakemake --profile profiles/local all --prioritize figure5
	@snakemake --profile profiles/local all --report $(DEMO)/snakemake-report.html
	@echo "Report:  $(DEMO)/report.html; Snakemake's own: $(DEMO)/snakemake-report.html"

# The paper's whole campaign from the scaling model: no training, no data, minutes.
paper-simulated: $(READY)
	@snakemake --profile profiles/simulate all
	@echo "Report:  results/paper-simulated/report.html (all of it is simulated)"

# Three files at a time on two cores: many tests wait for processes they start.
test: $(READY)
	@$(BIN)/python -m pytest -n 3 --dist loadfile -m "not long and not nightly"

# The tests on Slurm share one Slurm and one worker, and mostly wait; the long tests run beside them.
test-cluster: $(READY)
	@$(BIN)/python -m pytest -n 3 --dist loadfile tests -m "(cluster or long) and not nightly" --durations=15

# What takes too long to wait for after every change.
test-nightly: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests -m nightly --durations=15

# Each Python gets an environment of its own, with the newest packages in place of the lock's. Tests of
# the lock itself have no meaning there.
PYTHONS ?= python3.12 python3.13
test-versions: $(READY)
	@for python in $(PYTHONS); do \
	  prefix=$(CURDIR)/.venv-$$(basename $$python) && \
	  uv venv --quiet --clear --python $$python $$prefix && \
	  uv pip install --quiet --python $$prefix --group dev -e '.[workflow,train]' && \
	  PATH=$$prefix/bin:$$PATH $$prefix/bin/python -m pytest -n 3 --dist loadfile -m "not long and not nightly and not lock" \
	  || exit 1; \
	done

lint: $(READY)
	@ruff check src workflow tests examples benchmarks .ci
	@ruff format --check src workflow tests examples benchmarks .ci
	@snakefmt --check Snakefile workflow
	@mypy
	@lint-imports --no-cache

# The documentation as a site, from README.md and docs/, without network.
docs: $(READY)
	@python .ci/site/lay_out.py work/docs
	@zensical build --clean --strict
	@echo "Documentation: site/index.html"

# Results and unfinished work; never data or the environment.
clean:
	rm -rf results work

# After a change of pyproject.toml's packages or of envs/paper.txt; --upgrade-package NAME in UPGRADE takes newer ones.
lock:
	@command -v uv >/dev/null || { echo "make: no uv; first make setup"; exit 1; }
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --all-extras --group dev -c envs/paper.txt $(UPGRADE) pyproject.toml -o envs/lock.txt
	@python envs/conda.py workflow > envs/analysis.yaml.new && mv envs/analysis.yaml.new envs/analysis.yaml
	@python envs/conda.py train > envs/training.yaml.new && mv envs/training.yaml.new envs/training.yaml
