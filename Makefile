# Everything a newcomer needs. Each command sets itself up first; a second run downloads nothing.
PYTHON ?= python3
BIN := .venv/bin
# The tests start hundreds of interpreters. Where this variable is set, as in many container images, each of them would
# compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# A file stays with one process, because its tests share servers. tests/conftest.py has the order of the files; xdist would
# begin with those that have most tests, which are the quick ones.
PARALLEL := $(BIN)/pytest --dist loadfile --no-loadscope-reorder
# The end-to-end tests wait half of the time, so four processes keep two processors busy. Few of the fast tests wait.
WORKERS ?= 4
# What `make image-test` and `make verify-installation` run.
ELSEWHERE := --ignore=tests/image --deselect=tests/release/test_tool.py::test_pip_in_a_virtual_environment
UV := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: help setup lock
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# uv takes a fifth of the time of pip. Where it cannot be had, or finds no packages with the settings that pip has, pip
# installs them all; without --no-compile it compiles thousands of generated modules that nothing imports.
PIP := .venv/bin/pip install --quiet --disable-pip-version-check --no-compile
.venv/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "virt-admit needs Python 3.11 or newer; set PYTHON=… to one" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment: install your system's python3-venv package" >&2; exit 2; }
	@echo "installing the locked dependencies into .venv (once, up to a minute)" >&2
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > .venv/uv.lock
	@{ $(PIP) --require-hashes -r .venv/uv.lock && .venv/bin/uv pip install --quiet --python .venv/bin/python \
	  --require-hashes -r requirements-dev.lock; } 2>/dev/null || $(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

## make setup     the virtual environment .venv, with .venv/bin/virt-admit
setup: .venv/.ready

## make lock      resolve the dependencies again
lock: .venv/.ready
	$(UV) --all-extras pyproject.toml -o requirements.lock
	$(UV) --all-extras --group dev pyproject.toml -o requirements-dev.lock
	sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(UV) - -o requirements-build.lock

.PHONY: rule try
## make rule ID=… write the two files of a new rule from a template
rule: .venv/.ready
	@$(BIN)/python -m tests.rules.author new "$(ID)"

## make try ID=… run the cases, fields, snapshot and contract tests of one rule
try: .venv/.ready
	@$(BIN)/python -m tests.rules.author try "$(ID)"

.PHONY: demo test unit verify-scheduler verify-outage verify-launcher verify-rehearsal verify-moments verify-policies verify-upstream coverage sandbox bench check format docs manifests clean
## make demo      the webhook on loopback with every example, then drain and upgrade on an example of a cluster, and a page
demo: .venv/.ready
	@$(BIN)/python examples/demo.py

## make test      all tests; those against a real kube-apiserver build it once (Go 1.26), or use KUBEBUILDER_ASSETS;
##                VIRT_ADMIT_KUBERNETES=1.30.14 selects another release, ARGS=… are more arguments of pytest
test: .venv/.ready
	@$(BIN)/python -m tests.apiserver.binaries
	@$(BIN)/python -m tests.upstream.renderer
	@$(BIN)/python -m tests.definitions
	@$(BIN)/python -m tests.apiserver.helm
	@$(PARALLEL) -n $(WORKERS) $(ELSEWHERE) $(ARGS)

## make unit      the fast tests alone; SLOW=1: all tests that need no API server
unit: .venv/.ready
	@$(PARALLEL) -n 3 -m "not e2e$(if $(SLOW),, and not slow)" --ignore=tests/e2e $(ELSEWHERE)

.PHONY: test-lowest
.lowest/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -m venv --clear .lowest
	@.lowest/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@.lowest/bin/uv pip install --quiet --python .lowest/bin/python --resolution lowest-direct --upgrade \
	  --no-build-isolation --editable '.[speed]'
	@touch $@

## make test-lowest the fast tests with the lowest versions of the dependencies that pyproject.toml allows, in .lowest
test-lowest: .lowest/.ready
	@$(MAKE) --no-print-directory unit BIN=.lowest/bin

NPM_PACKAGES := playwright-core@1.65.1 axe-core@4.14.1
.browser/.ready: Makefile
	@command -v chromium >/dev/null || apt-get install -y -qq --no-install-recommends chromium
	@npm install --silent --no-audit --no-fund --save-exact --prefix .browser $(NPM_PACKAGES)
	@touch $@

.PHONY: browser
## make browser   the pages in a real browser; installs Debian's Chromium (as root) and two npm packages into .browser
browser: .venv/.ready .browser/.ready
	@VIRT_ADMIT_REQUIRE_BROWSER=1 $(BIN)/pytest -q -n0 tests/browser

## make picture   the picture of the README, made by the browser of the tests (`make browser` installs it)
.PHONY: picture
picture: .venv/.ready
	@$(BIN)/virt-admit drain --all --cluster examples/clusters/stuck.json -o html=.browser/drain.html >/dev/null 2>&1 || true
	@NODE_PATH=$(CURDIR)/.browser/node_modules CHROMIUM=$$(command -v chromium) \
	  node tests/browser/picture.cjs file://$(CURDIR)/.browser/drain.html docs/drain.png 860

.PHONY: image image-test
## make image     build the container image; ENGINE="podman build" instead of docker, IMAGE=… its name,
##                BASE=… an image with Python instead of the one in the Dockerfile
ENGINE ?= docker build
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' webhook/virt_admit/__init__.py)
IMAGE ?= virt-admit:$(VERSION)
image:
	@$(ENGINE) $(if $(BASE),--build-arg PYTHON=$(BASE)) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git describe --always --dirty --abbrev=40 --exclude '*') --tag $(IMAGE) .

## make image-test build the image with Debian's buildah on a base of debootstrap (as root), and run it; some minutes
image-test: .venv/.ready
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends buildah debootstrap; }
	@VIRT_ADMIT_REQUIRE_IMAGE=1 $(BIN)/pytest -q -n0 -rP tests/image

.PHONY: release-prepare release-dry-run
## make release-prepare NEW=1.2.3
##                write a new version and its section of the changelog; CONTRIBUTING.md has the next steps
release-prepare: .venv/.ready
	@$(BIN)/python -m release prepare "$(NEW)"
	@$(MAKE) --no-print-directory docs

## make release-dry-run
##                every step of a release, offline and with a throw-away key, into dist/; needs root for the image
release-dry-run: .venv/.ready
	@$(BIN)/python -m release.dry_run

release-%: .venv/.ready
	@$(BIN)/python -m release $*

## make verify-scheduler COUNT=1000
##                our model of kube-scheduler against its real filters, on so many random clusters from SEED=0 on
COUNT ?= 1000
SEED ?= 0
verify-scheduler: .venv/.ready
	@$(BIN)/python -m tests.scheduler.verify $(COUNT) $(SEED)

## make verify-outage COUNT=200
##                who finds a place after the loss of nodes, against kube-scheduler's real filters, from SEED=0 on
verify-outage: .venv/.ready
	@$(BIN)/python -m tests.scheduler.verify_outage $(COUNT) $(SEED)

## make verify-clocks COUNT=200
##                the time line of lost nodes against kube-controller-manager's own controllers, in virtual time;
##                RECORD=1 writes the runs that the tests replay
.PHONY: verify-clocks
verify-clocks: .venv/.ready
	@$(BIN)/python -m tests.upstream.clocks $(if $(RECORD),--record,$(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(SEED))

## make verify-restarts COUNT=200
##                which VMs of lost nodes get a next VMI and when, against KubeVirt's own controllers, in virtual time;
##                RECORD=1 writes the runs that the tests replay
.PHONY: verify-restarts
verify-restarts: .venv/.ready
	@$(BIN)/python -m tests.upstream.restarts $(if $(RECORD),--record,$(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(SEED))

## make verify-remediation COUNT=200
##                which health check acts on lost nodes and when, against the operators of OpenShift and Cluster API;
##                RECORD=1 writes the runs that the tests replay
.PHONY: verify-remediation
verify-remediation: .venv/.ready
	@$(BIN)/python -m tests.upstream.machines $(if $(RECORD),--record,$(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(SEED))

## make verify-fencing COUNT=200
##                what FenceAgentsRemediation does with lost nodes, against its own reconciler, in virtual time;
##                RECORD=1 writes the runs that the tests replay
.PHONY: verify-fencing
verify-fencing: .venv/.ready
	@$(BIN)/python -m tests.upstream.fencing $(if $(RECORD),--record,$(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(SEED))

## make verify-admissions COUNT=1000
##                the room that the webhook keeps, against the same objects at once, in random sequences of admissions
.PHONY: verify-admissions
verify-admissions: .venv/.ready
	@$(BIN)/python -m tests.forecasts.outage.admission_sequences $(COUNT) $(SEED)

## make verify-launcher COUNT=2000
##                our launcher pods against KubeVirt's own code, for so many random VMIs from SEED=0 on
verify-launcher: .venv/.ready
	@$(BIN)/python -m tests.upstream.launcher_pods $(COUNT) $(SEED)

## make verify-rehearsal COUNT=200
##                the rehearsal of upgrades against KubeVirt's own controllers, on so many random clusters from SEED=0 on;
##                LIVE=1 COUNT=20 runs them in real time on a real API server with kube-scheduler, AT_ONCE=4 together
verify-rehearsal: .venv/.ready
	@$(BIN)/python -m tests.upstream.$(if $(LIVE),live_)migrations $(COUNT) $(SEED)

## make verify-judgements COUNT=10000
##                what the watch keeps against full judgements, after each of so many random changes from SEED=0 on
.PHONY: verify-judgements
verify-judgements: .venv/.ready
	@$(BIN)/python -m tests.changing_cluster $(or $(COUNT),10000) $(SEED)

## make verify-moments COUNT=200
##                drain and upgrade at so many random moments, against what KubeVirt's own controllers did next
verify-moments: .venv/.ready
	@$(BIN)/python -m tests.upstream.moments $(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(SEED)

## make verify-policies OBJECTS=10000 ARGS="-k nhc"
##                the denials in CEL against their checks: so many changed objects for each rule, and what they cost
verify-policies: .venv/.ready
	@POLICY_OBJECTS=$(or $(OBJECTS),10000) $(BIN)/pytest -q -n0 -rP --timeout=0 tests/e2e/test_policies.py $(ARGS)

## make verify-upstream COUNT=20000
##                our verdicts against upstream's own code, on so many random objects of each kind from SEED=0 on
verify-upstream: .venv/.ready
	@$(BIN)/python -m tests.upstream.admission $(COUNT) $(SEED)
	@$(BIN)/python -m tests.upstream.updates $(COUNT) $(SEED)
	@$(BIN)/python -m tests.upstream.copies $(COUNT) $(SEED)
	@$(BIN)/python -m tests.upstream.health $(COUNT) $(SEED)

.PHONY: verify-random
## make verify-random
##                the tests of `make test` with random clusters or values, on more of them: 10 minutes
RANDOM_TESTS := tests/cli/test_blindness.py tests/cli/test_doors.py tests/forecasts/repair/test_random_clusters.py \
  tests/incidents_platform/test_live.py tests/kube/test_vm_ledger_feed.py tests/reports/test_values.py tests/rules/test_rules_hostile.py
verify-random: .venv/.ready
	@BLINDNESS_SEEDS=48 BLINDNESS_TURNS=1 DOORS_SEEDS=1000 PLAN_SEEDS=300 LEDGER_SEQUENCES=1000 SCHEMA_SEEDS=12 \
	  HOSTILE_VALUES=20 HOSTILE_REVIEWS=100 LIVE_SCANS=1 \
	  $(BIN)/pytest -n $(WORKERS) --timeout=1200 $(RANDOM_TESTS)

.PHONY: verify-years
## make verify-years
##                ten years of daily certificates, with faults, in virtual time
verify-years: .venv/.ready
	@CERTIFICATE_YEARS=10 $(BIN)/pytest -n0 tests/certs/test_years.py

.PHONY: verify-rotations
## make verify-rotations
##                50 rotations of certificates and CA on a real API server, under load, faults, and 100 without one; no request
##                may fail
verify-rotations: .venv/.ready
	@$(BIN)/python -m tests.apiserver.binaries
	@ROTATION_TURNS=10 ROTATIONS_SEEN=100 $(BIN)/pytest -q -s -n0 tests/e2e/test_certs.py tests/https/test_rotation.py \
	  -k "rotations_of_certificate or over_many_rotations or TestFaults"

.PHONY: verify-helm
## make verify-helm
##                the installation by Helm and its page with both versions of Helm, on real API servers
verify-helm: .venv/.ready
	@$(BIN)/python -m tests.apiserver.binaries
	@$(BIN)/python -m tests.apiserver.helm
	@BOTH_HELMS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/e2e/test_helm.py tests/e2e/test_helm_page.py

.PHONY: verify-installation
## make verify-installation
##                the installation of the command by pip on each Python from 3.11 on that this machine has
verify-installation: .venv/.ready
	@ALL_PYTHONS=1 $(BIN)/pytest -n $(WORKERS) tests/release/test_tool.py -k pip

.PHONY: fuzz soak
MINUTES ?= 15
## make fuzz MINUTES=15
##                random inputs for the engine, the wire, files, policies and fixes; inputs that fail are kept in .fuzz
fuzz: .venv/.ready
	@$(BIN)/python -m tests.fuzz $(MINUTES)

## make soak MINUTES=15
##                valid and hostile traffic, rotations, API server restarts; fails on a lost call or on growth
soak: .venv/.ready
	@$(BIN)/python -m tests.soak $(MINUTES)

.PHONY: audit
## make audit     known vulnerabilities of the locked dependencies; asks the public database, so it needs the network
audit:
	@test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/pip install --quiet pip-audit; }
	@.audit/bin/pip-audit --require-hashes --disable-pip -r requirements.lock

.PHONY: verify-watch-load
## make verify-watch-load COUNT=10000 MINUTES=15
##                CPU and memory of `watch` with so many VMs on 250 nodes, how soon a change shows, and so long a churn
verify-watch-load: .venv/.ready
	@$(BIN)/python -m tests.watch_load $(if $(filter file,$(origin COUNT)),10000,$(COUNT)) 250 $(MINUTES)

.PHONY: verify-follow
## make verify-follow COUNT=10000
##                memory of `drain NODE --follow` with so many VMs on 250 nodes, and how soon a change shows
verify-follow: .venv/.ready
	@$(BIN)/python -m tests.follow_load $(if $(filter file,$(origin COUNT)),10000,$(COUNT)) 250

.PHONY: verify-watch
## make verify-watch
##                how soon a change among 1,000 VMs shows in the metrics and on the page of the watch
verify-watch: .venv/.ready
	@$(BIN)/python -m tests.apiserver.binaries
	@VIRT_ADMIT_FLEET=1000 $(BIN)/pytest -q -s -n0 -m e2e tests/e2e/test_watch.py -k five_seconds

## make coverage  branch coverage of the tests that need no API server
coverage: .venv/.ready
	@$(BIN)/coverage run -m pytest -m "not e2e"
	@$(BIN)/coverage report --skip-covered --sort=cover | tail -n 30

## make sandbox   a real API server with the webhook registered, left running; Ctrl-C stops all of it;
##                SCHEDULER=1 runs kube-scheduler too
sandbox: .venv/.ready
	@$(BIN)/python -m tests.apiserver.sandbox

## make bench     what reviews and checks cost by their peers, and what became slower than in docs/verification.md;
##                SAVE=1 replaces the table there. Some minutes on a machine that does nothing else
bench: .venv/.ready
	@$(BIN)/python -m tests.bench $(if $(SAVE),--save)

# A fresh clone finds the types of modules that did not change: mypy compares their hashes, whatever their folder is.
## make check     lint, types, import contracts, generated files current
check: .venv/.ready
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --cache-dir "$${XDG_CACHE_HOME:-$$HOME/.cache}/virt-admit/mypy"
	@report=$$($(BIN)/lint-imports --no-cache) || { echo "$$report"; exit 1; }
	@$(BIN)/python -m tools.generated --check

## make format    format, and fix lint errors that ruff can fix
format: .venv/.ready
	@$(BIN)/ruff format --quiet . ; $(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

## make docs      write the generated manifests and pages
docs manifests: .venv/.ready
	@$(BIN)/python -m tools.generated

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
