# Every target does its own set-up: a fresh machine needs Python >= 3.11 and make only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
PLATFORM ?= $(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed -e s/x86_64/amd64/ -e s/aarch64/arm64/)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
.PHONY: help docs install jax gpu gpu-wheels pods changes torchft fmt lint types test soak properties paddle cov fuzz metrics-page page performance-page pictures reference policy-schema monitoring chart bench e2e matrix faults e2e-autoscaler e2e-cert-manager e2e-torch e2e-upgrade installation demo experiments forecasts scale lock sbom kubectl-edl presubmit clean

help: ## show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv with the locked packages

$(STAMP): requirements.lock pyproject.toml sdk/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "EDL needs Python 3.11 or newer; call make PYTHON=/path/to/python3.11")'
	@echo "installing locked packages into $(VENV) (about half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-deps --no-build-isolation -e . -e sdk
	@touch $@

fmt: install ## format the code, and apply the fixes of the linter
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: install ## check format, lint, import contracts, and that the SDK runs on Python 3.9
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations --target=3.9- sdk/src

types: install ## check types with strict mypy, also of tests
	$(BIN)/mypy

test soak properties cov page e2e faults: export PYTHONDONTWRITEBYTECODE := # hundreds of processes share compiled byte code

test: install ## run the tests that need no cluster, except those of soak (three minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal

soak: install ## run the long tests: storms of kills, freezes and changes, loss curves, more random examples (20 minutes; STORM=25 plays a quarter of each storm)
	EDL_STORM=$(STORM) $(BIN)/python -m pytest -n auto --dist worksteal -p schemathesis -m "soak or hypothesis" --hypothesis-profile=soak \
	  -o faulthandler_timeout=2000

properties: install ## test thousands of random clusters, schedules and kills (most of an hour)
	$(BIN)/python -m pytest -n auto --dist worksteal tests/policy tests/master tests/sdk -m "" \
	  -k "propert or exact or schedules or machine or kills" \
	  --hypothesis-profile=thorough --hypothesis-show-statistics --timeout=0 -o faulthandler_timeout=0

paddle: build/paddle/.installed ## install PaddlePaddle into build/paddle, for the tests that need it (1.1 GB)

build/paddle/.installed:
	@echo "installing PaddlePaddle into build/paddle (about a minute)"
	@$(PYTHON) -m venv build/paddle
	@build/paddle/bin/pip install --quiet paddlepaddle==3.3.1 scikit-learn -e sdk
	@touch $@

torch: build/standin/.installed ## install torch into build/torch, and a stand-in for a GPU, for the tests that need it (0.5 GB to load, 1.1 GB on disk)

build/standin/.installed: build/torch/.installed $(wildcard tests/support/standin/*)
	@echo "compiling the stand-in for a GPU into build/standin (half a minute)"
	@rm -rf build/standin
	@$(BIN)/python -m tests.support.standin build/torch build/standin
	@PYTHONPATH=build/torch:build/standin $(BIN)/python -c "import torch; torch.zeros(1, device='standin')"
	@touch $@

build/torch/.installed: tests/support/torch_stubs.py requirements.lock | $(STAMP)
	@echo "installing torch into build/torch (about a minute)"
	@rm -rf build/torch
	@$(BIN)/pip install --quiet --no-deps --target build/torch torch==2.15.0 filelock fsspec jinja2 markupsafe mpmath networkx sympy typing-extensions
	@$(BIN)/python -m tests.support.torch_stubs build/torch
	@PYTHONPATH=build/torch $(BIN)/python -c "import torch"
	@touch $@

jax: build/jax/.installed ## install jax into build/jax, for the tests that need it (0.5 GB on disk)

build/jax/.installed: requirements.lock | $(STAMP)
	@echo "installing jax into build/jax"
	@rm -rf build/jax
	@$(BIN)/pip install --quiet --no-deps --target build/jax jax==0.10.2 jaxlib==0.10.2 ml-dtypes opt-einsum scipy
	@PYTHONPATH=build/jax $(BIN)/python -c "import jax"
	@touch $@

gpu: ## try EDL on this machine's GPU in six minutes: correctness, NCCL, costs; without one, say what it would run (CELLS=digits,step SECONDS=540)
	@$(PYTHON) -m e2e.gpu $(if $(CELLS),--cells "$(CELLS)") $(if $(DEVICE),--device $(DEVICE)) $(if $(SECONDS),--seconds $(SECONDS))

FOR ?= 3.12
gpu-wheels: ## download the packages that `make gpu` needs on a machine without a package index into build/gpu-wheels (FOR=3.12)
	@$(PYTHON) -m e2e.gpu.wheels $(FOR)

CHANGES ?= 200
pods: install torch ## make random changes to two pods of two processes that hold a model together (CHANGES=200 SEED=7)
	EDL_POD_CHANGES=$(CHANGES) EDL_POD_SEED=$(SEED) $(BIN)/python -m pytest tests/sdk/torch/test_pods.py -m soak -rP -o faulthandler_timeout=0

changes: install torch ## make random changes to eight trainers in torch, which sum gradients (CHANGES=200 SEED=5)
	EDL_TORCH_CHANGES=$(CHANGES) EDL_TORCH_SEED=$(SEED) $(BIN)/python -m pytest tests/sdk/torch/test_changes.py -m soak -rP -o faulthandler_timeout=0

torchft: torch ## install torchft into build/torchft, which `python -m bench torch` measures beside edl.torch
	@$(BIN)/pip install --quiet --target build/torchft opentelemetry-exporter-otlp-proto-http opentelemetry-sdk
	@$(BIN)/pip install --quiet --no-deps --target build/torchft torchft==0.2.0
	@PYTHONPATH=build/torch:build/torchft $(BIN)/python -W ignore -c "import torchft"

cov: install ## run the tests with branch coverage of policy/, which must be 100 %
	$(BIN)/python -m pytest -n auto --dist worksteal --cov

# --quiet would hide the warnings that end a strict build.
docs: build/docs/.installed ## build the documentation as a site into build/site; a broken link ends it
	build/docs/bin/mkdocs build

build/docs/.installed: docs.lock
	@$(PYTHON) -m venv build/docs
	@build/docs/bin/pip install --quiet --require-hashes -r docs.lock
	@touch $@

policy-schema: install ## write deploy/policy.schema.json, the schema of the policy for editors
	$(BIN)/python -m bench.policy_schema

metrics-page: install ## write docs/metrics.md from the metrics that the components export
	$(BIN)/python -m bench.metrics_page

reference: install ## write the pages of docs/ that come from the code: annotations, commands, fields of the policy, metrics, reasons; performance from bench/results
	$(BIN)/python -m bench.annotations_page
	$(BIN)/python -m bench.commands_page
	$(BIN)/python -m bench.policy_page
	$(BIN)/python -m bench.metrics_page
	$(BIN)/python -m bench.reasons_page
	$(BIN)/python -m bench.performance_page

performance-page: install ## write docs/performance.md from the figures in bench/results
	$(BIN)/python -m bench.performance_page

pictures: install ## write the pictures of commands in a terminal, and of the page (needs Chromium), into docs/pictures
	$(BIN)/python -m bench.terminal_pictures
	$(BIN)/python -m bench.page_pictures

monitoring: install ## write dashboards and the operator's form of the alerts in deploy/monitoring
	$(BIN)/python -m bench.monitoring

chart: install ## write the values, the schema and the README of deploy/chart from the code
	$(BIN)/python -m bench.chart

fuzz: install ## feed random inputs to all that reads what strangers write (TARGET= SEED= COUNT= FIRST= JOBS=; a minute for 1 000)
	$(BIN)/python -m tests.fuzz $(foreach target,$(TARGET),--target $(target)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(COUNT),--count $(COUNT)) $(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS))

page: install ## drive the page in a real Chromium: every view, live updates, broken streams, the keyboard (skipped without Chromium)
	$(BIN)/python -m pytest tests/page/browser -m page

bench: install ## measure how fast plan, extender, master and SDK are (40 minutes)
	$(BIN)/python -m bench

e2e: install ## run the end-to-end tests on a real local Kubernetes (first run builds it, about 10 minutes)
	$(BIN)/python -m e2e.cluster build --real-nodes || $(BIN)/python -m e2e.cluster build
	$(BIN)/python -m pytest e2e -m "e2e and not alone" -n 2 --dist loadfile
	$(BIN)/python -m pytest e2e -m "e2e and alone"

faults: install ## play the incidents of docs/operating.md on a real local Kubernetes (a quarter of an hour)
	$(BIN)/python -m pytest e2e -m faults -o faulthandler_timeout=2000

matrix: install ## try each supported version of Kubernetes: the demo's burst, a job's life (first run builds two more, 10 minutes)
	$(BIN)/python -m pytest e2e/test_matrix.py -m matrix -o faulthandler_timeout=5000
	$(BIN)/python -m e2e.support

e2e-autoscaler: install ## run jobs on a pool of no nodes that a real Karpenter extends (first run builds it, about 10 minutes)
	$(BIN)/python -m pytest e2e/test_autoscaler.py -m autoscaler

e2e-cert-manager: install ## have a real cert-manager issue and renew the extender's certificates (first run builds it, about 8 minutes)
	$(BIN)/python -m pytest e2e/test_cert_manager.py -m cert_manager -o faulthandler_timeout=2000

e2e-torch: install torch ## train in PyTorch on a real node through a burst of services (3 minutes)
	$(BIN)/python -m pytest e2e/test_torch.py -m torch -o faulthandler_timeout=2000

e2e-upgrade: install ## upgrade EDL in a cluster from the last release, in bursts, with running jobs (4 minutes)
	$(BIN)/python -m pytest e2e/test_in_cluster_upgrade.py -m upgrade -o faulthandler_timeout=2000

installation: install ## measure servers' starts, first jobs, an update in bursts, and the demo with EDL in the cluster (20 minutes)
	$(BIN)/python -m e2e.installation $(foreach part,$(PART),--only $(part))

demo: install ## show a burst of services, live, on a real local Kubernetes (SCHEDULING=without-extender|own-scheduler IN_CLUSTER=1 OVERCOMMIT=1.5)
	$(BIN)/python -m e2e.demo $(if $(SCHEDULING),--scheduling $(SCHEDULING)) $(if $(IN_CLUSTER),--in-cluster) $(if $(OVERCOMMIT),--overcommit $(OVERCOMMIT))

experiments: install ## run the first experiment on a real local Kubernetes and in virtual time (10 minutes)
	$(BIN)/python -m e2e.experiments first

forecasts: install ## play random policies on a real local Kubernetes: does what `plan --policy` says happen? (CASES=200 FROM=0; 20 minutes)
	$(BIN)/python -m e2e.experiments forecasts $(if $(CASES),--cases $(CASES)) $(if $(FROM),--from $(FROM))

scale: install ## measure what a trainer and a burst of services cost on NODES=1000 nodes, with EDL and without (10 minutes)
	$(BIN)/python -m e2e.scale $(if $(NODES),--nodes $(NODES))

lock: install ## write the lock files from pyproject.toml, with the newest versions
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-strip-extras --universal --python-version 3.11 \
	  --no-header --no-annotate pyproject.toml --group dev -o requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-strip-extras --universal --python-version 3.11 \
	  --no-header --no-annotate pyproject.toml -c requirements.lock -o deploy/runtime.lock
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-strip-extras --universal --python-version 3.11 \
	  --no-header --no-annotate --group docs -o docs.lock
	printf '%s\n' click kubernetes orjson pydantic pyyaml rich | $(BIN)/uv pip compile --quiet --generate-hashes \
	  --no-strip-extras --universal --python-version 3.11 --no-header --no-annotate - -c requirements.lock -o deploy/cli.lock
	printf '%s\n' aiohttp numpy orjson prometheus-client pydantic | $(BIN)/uv pip compile --quiet --generate-hashes \
	  --no-strip-extras --universal --python-version 3.11 --no-header --no-annotate - -c requirements.lock -o e2e/gpu/wheels.lock
	echo setuptools | $(BIN)/uv pip compile --quiet --generate-hashes --no-strip-extras --universal --python-version 3.11 \
	  --no-header --no-annotate - -c requirements.lock -o deploy/build.lock

kubectl-edl: install ## build `kubectl edl` as one file for this platform, and its manifest for krew (URI= of the archive)
	@rm -rf build/cli build/krew && mkdir -p build/krew
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target build/cli --require-hashes -r deploy/cli.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target build/cli --no-deps --no-build-isolation .
	@$(BIN)/shiv --site-packages build/cli --entry-point cli.__main__:main --python "/usr/bin/env python3" \
	  --root "~/.cache/kubectl-edl" --compressed --reproducible --output-file build/kubectl-edl
	@cp deploy/krew/kubectl_complete-edl LICENSE build/krew/ && cp build/kubectl-edl build/krew/
	@tar -C build/krew -czf build/kubectl-edl-$(PLATFORM).tar.gz kubectl-edl kubectl_complete-edl LICENSE
	@sed -e "s|@VERSION@|$(VERSION)|" -e "s|@OS@|$(firstword $(subst -, ,$(PLATFORM)))|" -e "s|@ARCH@|$(lastword $(subst -, ,$(PLATFORM)))|" \
	  -e "s|@URI@|$(or $(URI),https://registry.invalid/kubectl-edl-$(PLATFORM).tar.gz)|" \
	  -e "s|@SHA256@|$$(sha256sum build/kubectl-edl-$(PLATFORM).tar.gz | cut -d' ' -f1)|" deploy/krew/edl.yaml > build/krew/edl.yaml
	@cp deploy/krew/kubectl_complete-edl build/
	@echo "build/kubectl-edl and build/kubectl_complete-edl are for the PATH, build/krew/edl.yaml is for a krew index"

sbom: install ## write build/sbom.json: the packages of the image with their hashes, as SPDX
	$(BIN)/python -m bench.sbom build/sbom.json

presubmit: lint types cov e2e soak ## run the checks of CI (an hour)

clean: ## delete build/ and .venv (the Kubernetes binaries stay in their cache)
	rm -rf build $(VENV)
