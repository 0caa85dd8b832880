# make demo   set up, then the whole study at small scale, on this machine
# make test   set up, then the tests          make lint   style and types
# make test-cluster   the long tests, and those on a Slurm of their own (root, Debian packages of .ci/run)
# make test-nightly   what takes hours more, of which the others have samples: every kill, every command of every page
# make test-versions   the tests of make test on other Pythons with the newest packages: PYTHONS="python3.13"
# make paper-simulated   the paper's campaign, simulated with the scaling model, to all figures, in minutes
# make docs   the documentation as a site, in site/
# make setup  only the environment, .venv     make clean  remove results, never data or .venv

PYTHON ?= python3.11
BIN := $(CURDIR)/.venv/bin
READY := .venv/.ready
DEMO := results/demo
export PATH := $(BIN):$(PATH)
# Some containers set it; then every command would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo paper-simulated test test-cluster test-nightly test-versions lint docs clean lock

setup: $(READY)

# envs/install.sh installs, here as under conda and in a container: docs/environments.md.
$(READY): envs/lock.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; scalewatt needs Python 3.11 (or: make PYTHON=/path/to/python3.11)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "make: $(PYTHON) is not Python 3.11, for which envs/lock.txt was made"; exit 1; }
	@[ ! -L .venv ] || { echo "make: .venv is a link, and setting up empties the folder that it leads to; remove the link first"; exit 1; }
	@echo "Setting up .venv from envs/lock.txt (about 6 GB, a few minutes)"
	@$(PYTHON) -m venv --clear .venv
	@envs/install.sh .venv training
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
	@$(BIN)/python -m pytest -n 3 --dist loadfile -m "not long"

# The tests on Slurm share one Slurm and one worker; the long tests run beside them.
test-cluster: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests -m "(cluster or long) and not nightly" --durations=15

# What takes too long to wait for after every change.
test-nightly: $(READY)
	@SCALEWATT_NIGHTLY=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests -m "nightly or larger" --durations=15

# Each Python gets an environment of its own. Tests of the lock itself have no meaning there.
PYTHONS ?= python3.12 python3.13
test-versions:
	@for python in $(PYTHONS); do \
	  prefix=$(CURDIR)/.venv-$$(basename $$python); \
	  envs/newest.sh $$python $$prefix && \
	  PATH=$$prefix/bin:$$PATH $$prefix/bin/python -m pytest -n 3 --dist loadfile -m "not long and not lock" \
	  || exit 1; \
	done

lint: $(READY)
	@ruff check src tests examples benchmarks .ci
	@ruff format --check src tests examples benchmarks .ci
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

# After a change of envs/requirements.in.
lock: $(READY)
	@uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --no-emit-index-url --no-emit-find-links envs/requirements.in -o envs/lock.txt
	@envs/renew.sh
