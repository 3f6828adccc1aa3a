# `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -Eeuo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules

tool := go tool -modfile=tools/go.mod

# Tests and the demo find what make setup installed by these: the real Envoy, and
# the Python and Node.js that have HiGHS and the clients.
WEIR_ENVOY ?= $(abspath .venv/bin/envoy)
WEIR_PYTHON ?= $(abspath .venv/bin/python)
WEIR_NODE ?= $(abspath .venv/bin/node)
export WEIR_ENVOY WEIR_PYTHON WEIR_NODE

.PHONY: help
help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: setup
setup: ## Install what is missing: CLP, a compiler, Envoy and clients in .venv
	@tools/setup

.PHONY: build
build: ## Build bin/weir, bin/weir-extproc, bin/mock-engine and bin/mock-clients
	go build -trimpath -o bin/weir ./cmd/weir
	CGO_ENABLED=0 go build -trimpath -o bin/weir-extproc ./cmd/weir-extproc
	CGO_ENABLED=0 go build -trimpath -o bin/mock-engine ./cmd/mock-engine
	CGO_ENABLED=0 go build -trimpath -o bin/mock-clients ./cmd/mock-clients

# ENGINES=llama runs llama.cpp in place of mock engines.
ENGINES ?=

.PHONY: dist
dist: setup ## Make the release archive in out/dist: static, reproducible, with licences and bill
	go run ./deploy/release

.PHONY: demo
demo: setup build ## Run a whole fleet on this machine: Envoys, engines, control plane
	bin/weir demo $(if $(ENGINES),--engines $(ENGINES))

# A simulation is arithmetic of one goroutine; the race detector makes minutes of it, and
# watches those that run at once in the tests of the command line. The end-to-end tests
# run a real Envoy and measure time: alone, and never from the cache. What ten seconds of fuzzing find is a defect: Go keeps the input in
# testdata, where the ordinary tests try it from then on.
.PHONY: test
test: setup lint ## Lint, run all tests with the race detector, fuzz for a minute or two
	packages=$$(go list ./... | grep -vxE 'weir/(simulate|deploy(/(bench|demo|stage))?)'); go test -race -timeout 20m $$packages
	go test ./simulate
	go test -race -count=1 -parallel 3 -timeout 20m ./deploy ./deploy/bench ./deploy/demo ./deploy/stage
	$(MAKE) --no-print-directory fuzz
	@echo 'NOT TRIED HERE: the demo in containers, which takes minutes. Run make test-compose.'

# Engines' pages, load reports, access logs, bodies, fleet files and benchmarks' results. FUZZ_FOR=10m looks
# for longer.
FUZZ_FOR ?= 10s
fuzzed = ./signals/dialect:FuzzRead ./xds:FuzzDecodeLoad ./extproc/outcome:FuzzReceive ./extproc:FuzzRead ./extproc:FuzzScan ./extproc/wire:FuzzRequest ./extproc:FuzzSplice ./extproc:FuzzInflate ./extproc:FuzzHeaders ./config:FuzzParse ./simulate:FuzzReadAzure ./simulate:FuzzReadMooncake ./fit:FuzzRead ./simulate:FuzzReadTrace

.PHONY: fuzz
fuzz: ## Fuzz the parsers of what strangers write
	printf '%s\n' $(fuzzed) | xargs -P 2 -I {} tools/fuzz {} $(FUZZ_FOR)

# Minutes long, as root, on Debian's Docker: not in make test, nor in CI.
.PHONY: test-compose
test-compose: setup ## Try the demo in containers on a Docker daemon of its own (root; 5 to 15 minutes; NOT in make test)
	deploy/compose/test.sh

.PHONY: test-llama
test-llama: setup ## Measure at length what conversations find in llama.cpp's KV caches
	WEIR_FIGURES=$(abspath out/test-llama.json) go test -count=1 -v -timeout 20m -run TestLlamaAtLength ./deploy

.PHONY: test-capacity
test-capacity: setup ## Measure at length how a profile that promises too much is found out
	WEIR_FIGURES=$(abspath out/test-capacity.json) go test -count=1 -v -timeout 20m -run TestOverstatedAtLength ./deploy

.PHONY: test-fit
test-fit: setup ## Measure llama.cpp at many loads, and predict its TTFT at others
	WEIR_FIGURES=$(abspath out/test-fit.json) go test -count=1 -v -timeout 30m -run TestFitAtLength ./deploy

# inference-perf asks for Python 3.12 and for 800 MB; it runs on 3.11 as well.
perf := $(abspath .tools/inference-perf)

$(perf)/bin/inference-perf: tools/inference-perf.txt | setup
	$(WEIR_PYTHON) -m venv $(perf)
	$(perf)/bin/pip install --quiet --only-binary :all: --no-deps --ignore-requires-python -r $<
	touch $@

.PHONY: test-fit-tools
test-fit-tools: setup build $(perf)/bin/inference-perf ## Fit what inference-perf itself measures of a mock and a llama.cpp engine
	mkdir -p out
	WEIR_FIGURES=$(abspath out/test-fit-tools.json) WEIR_INFERENCE_PERF=$(perf)/bin/python \
		go test -count=1 -v -timeout 20m -run TestFitByInferencePerf ./deploy

# CHAOS="300 %" runs the scenarios whose names have that in them.
CHAOS ?=

.PHONY: chaos
chaos: setup ## Let engines, regions and clients run wild, and measure what comes through
	mkdir -p out
	WEIR_FIGURES=$(abspath out/chaos.json) CHAOS="$(CHAOS)" go test -count=1 -v -timeout 60m -run TestChaosAtLength ./deploy

# BENCH_FOR=10m measures for longer than half a minute.
BENCH_FOR ?= 30s

.PHONY: bench-signals
bench-signals: ## Measure what scraping 2,000 engines' metrics costs
	mkdir -p out
	WEIR_FIGURES=$(abspath out/bench-signals.json) BENCH_FOR=$(BENCH_FOR) \
		go test -count=1 -v -timeout 24h -run TestBenchSignals ./signals/scrape

.PHONY: bench-path
bench-path: setup ## Measure what a request costs, beside Envoy alone and a trivial ext_proc
	mkdir -p out
	WEIR_FIGURES=$(abspath out/bench-path.json) go test -count=1 -v -timeout 10m -run TestBenchPath$$ ./deploy/bench

# BENCH_SEEDS=2 is over sooner, and its bar does not hold.
BENCH_SEEDS ?= 20

.PHONY: bench-policies
bench-policies: setup ## Compare all policies on simulated fleets under recorded traffic, two on real Envoys
	mkdir -p out
	WEIR_FIGURES=$(abspath out/bench-policies.json) BENCH_SEEDS=$(BENCH_SEEDS) \
		go test -count=1 -v -timeout 2h -run TestBenchPolicies ./simulate
	WEIR_FIGURES=$(abspath out/bench-policies.json) \
		go test -count=1 -v -timeout 20m -run TestBenchPoliciesLive ./deploy

.PHONY: bench-simulate
bench-simulate: setup ## Hold weir simulate against real Envoys under the same requests, and time it
	mkdir -p out
	WEIR_FIGURES=$(abspath out/bench-simulate.json) go test -count=1 -v -timeout 30m -run 'TestBenchSimulate$$' ./deploy

.PHONY: lint
lint: ## Vet, staticcheck and the formatting
	go vet ./...
	$(tool) staticcheck ./...
	@unformatted=$$($(tool) gofumpt -l *.go */); if [ -n "$$unformatted" ]; then \
		printf 'not formatted, run make fmt:\n%s\n' "$$unformatted" >&2; exit 1; fi

.PHONY: fmt
fmt: ## Format the code
	$(tool) gofumpt -w *.go */

.PHONY: clean
clean: ## Remove what was built and installed here
	rm -rf bin out .venv .tools tools/node/node_modules
