# All the set-up is in bootstrap.py: it makes or refreshes .venv and runs Python in it.
PYTHON ?= python3
RUN = @$(PYTHON) bootstrap.py

.PHONY: help demo test test-full lint lock venv clean

help:
	@echo "make demo       emit the Verilog, run it on a real attention tile, report area and a picture"
	@echo "make test       the whole test suite: models, RTL, benches in Verilator, proofs"
	@echo "make test-full  and the slow part: place and route, whole heads, mutations"
	@echo "make lint       ruff"
	@echo "make venv       only make or refresh .venv"
	@echo "make lock       resolve the pinned packages again"
	@echo "make clean      remove build/ and .venv"

demo:
	$(RUN) -m verif.demo

test: lint
	$(RUN) -m pytest -q -n auto -m "not full"
	$(RUN) -m verif
	$(RUN) -m gen formal

test-full: lint
	$(PYTHON) bootstrap.py --full -m pytest -q -n auto
	$(RUN) -m verif
	$(RUN) -m gen formal

lint:
	$(RUN) -m ruff check --quiet .

venv:
	$(RUN)

LOCK = -m piptools compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --allow-unsafe --strip-extras --no-header --upgrade --extra build

lock:
	$(RUN) -m pip install --quiet pip-tools==7.6.2
	$(RUN) $(LOCK) -o requirements.lock pyproject.toml
	$(RUN) $(LOCK) --extra fpga -o requirements-full.lock pyproject.toml

clean:
	rm -rf build .venv
