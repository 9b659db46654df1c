# `make help` lists the targets. The scripts behind them are in hack/.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The operator's image.
IMG ?= yardmaster:dev
# Namespaces that the operator watches, or '*', and those on whose Jobs it reports. All lists are separated by commas.
NAMESPACES ?= default
REPORT_NAMESPACES ?=
# As in the flag --controllers.
CONTROLLERS ?= *
# Folders of config/components to add to the deployment.
COMPONENTS ?=
# Number of replicas of the operator; empty for that of config/manager.
REPLICAS ?=
OPERATOR_NAMESPACE ?= yardmaster-system
# Environment of the operator, such as YARDMASTER_REPORT_INTERVAL=1m.
SETTINGS ?=
# Labels of monitors and rules, such as release=prometheus.
MONITOR_LABELS ?=
# Cluster of `make demo`: localcluster or kind, which it creates, or the current one of your kubeconfig.
CLUSTER ?= localcluster
# Local cluster for `make deploy` and others if kubectl is not installed.
CLUSTER_NAME ?= default
# Platforms of docker-buildx, of the plugin in a release, and of a snapshot.
PLATFORMS ?= linux/amd64,linux/arm64
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
SNAPSHOT_PLATFORMS ?= linux/$(shell go env GOARCH)
# Repository of the operator's image in a release, and the private key that signs the release, if any.
RELEASE_REPOSITORY ?= ghcr.io/yardmaster/yardmaster
RELEASE_KEY ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Number of runs of make test-busy.
BUSY_RUNS ?= 1
# RACE=1 runs the unit tests with the race detector, which needs a C compiler, and twice the time.
RACE ?=
# Flags of go test, such as -count=1.
TEST_FLAGS ?=

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)
# One set of flags for every build, so that each dependency is compiled once.
export GOFLAGS := $(shell source hack/build-env && echo "$$GOFLAGS")
export CGO_ENABLED := 0
# Programs with the race detector wait a second before they exit.
export GORACE := atexit_sleep_ms=0
# Without the tag, gRPC brings templates, for which the linker keeps all methods.
BUILD := go build -tags grpcnotrace -ldflags '-s -w -X github.com/yardmaster/yardmaster/internal/version.release=$(VERSION)'
KUBECTL ?= $(shell command -v kubectl || echo $(BIN)/localcluster kubectl --name $(CLUSTER_NAME) --)
KUBECTL_PROGRAM := $(filter $(BIN)/localcluster,$(KUBECTL))
comma := ,
APPLY := $(KUBECTL) apply --server-side --force-conflicts --field-manager=yardmaster-install -f -

# Modules besides the main one whose tests need no cluster.
TESTED_MODULES := localcluster localcluster/modules/network-policies hack/tools/helm hack/tools/gitops
RACE_FLAG := $(if $(RACE),$(if $(shell command -v gcc),-race,$(error RACE=1 needs gcc)))
# Repeats what failed at the end. go vet is one of the linters, which some modules lack. Without symbols, linking takes a third less.
GOTEST_VET := gotestsum --format pkgname -- -timeout 30m -ldflags='-s -w' $(TEST_FLAGS)
GOTEST := $(GOTEST_VET) -vet=off

# No target but those in bin/ is a file.
.PHONY: $(shell grep -oE '^[a-z0-9-]+:' Makefile | tr -d :)

##@ Try it

help: ## Show this help.
	@awk -f hack/help.awk $(MAKEFILE_LIST)

demo: ## Create a cluster, deploy the operator and run the examples (VERBOSE=1).
	@hack/go-build ./test/demo bin/demo && CLUSTER=$(CLUSTER) bin/demo

demo-down: ## Delete the demo's cluster, or what it created in the current one.
	@hack/go-build ./test/demo bin/demo && CLUSTER=$(CLUSTER) bin/demo --down

##@ Develop

manifests: controller-gen ## Generate the CustomResourceDefinitions, their reference and roles.
	hack/manifests

generate: controller-gen applyconfiguration-gen client-gen ## Generate DeepCopy methods, the Go client and the references.
	hack/generate

chart: manifests ## Generate the templates of the Helm chart from config/.
	go run ./hack/chart config charts/yardmaster/templates

fmt: golangci-lint ## Format the code.
	golangci-lint fmt ./...

lint: golangci-lint ## Run the linters.
	hack/lint

prose: vale ## Check the language of docs, comments and messages.
	hack/prose

govulncheck: bin/govulncheck ## Check the code for known vulnerabilities (GOVULNDB).
	hack/govulncheck

verify: manifests generate chart lint prose govulncheck ## Check that generated files are current, modules tidy, and linters pass.
	hack/verify

##@ Test

# Tests with a cluster mostly wait, so they run beside the others. With RACE the others need all processors.
test: $(if $(RACE),test-unit test-integration,test-tools) ## Run unit and integration tests.
	$(if $(RACE),,$(MAKE) --jobs=4 test-integration test-packages test-pure test-modules)

test-busy: test-tools ## Run make test beside two endless loops (BUSY_RUNS times).
	for run in $$(seq $(BUSY_RUNS)); do echo "==> run $$run of $(BUSY_RUNS)"; hack/beside-loops $(MAKE) test TEST_FLAGS=-count=1; done

test-tools: gotestsum localcluster kustomize helm
	hack/prerequisites redis-server redis-cli=redis-server rabbitmq-server promtool=prometheus python3 node=nodejs openssl curl
	localcluster build --mode control-plane

# The simulations allocate much memory and keep little.
test-pure: gotestsum ## Run the tests of the packages that only decide.
	GOGC=400 $(GOTEST) -timeout 60m $$(hack/packages pure)

test-unit: test-tools ## Run the tests that need no cluster.
	$(MAKE) --jobs=3 test-packages test-pure test-modules

# Tests with a broker or a process mostly wait, so run more of them in parallel than there are cores.
test-packages: gotestsum
	$(if $(RACE_FLAG),CGO_ENABLED=1) $(GOTEST) -p 3 $(RACE_FLAG) -parallel 6 $$(hack/packages unit)

test-modules: gotestsum
	for module in $(TESTED_MODULES); do (cd $$module && $(GOTEST_VET) ./...); done

# One package at a time: each starts its own operators in the same cluster.
test-integration: test-tools ## Run the tests against a real control plane with simulated nodes.
	hack/with-cluster control-plane test $(GOTEST) -p 1 -parallel 8 $$(hack/packages integration)

e2e: gotestsum localcluster image ## Run the tests on a real node.
	hack/with-cluster node e2e hack/e2e

soak: gotestsum localcluster image kustomize helm ## Run the suites that are too long for CI, or SOAK_PARTS of them.
	hack/soak $(SOAK_PARTS)

bench: localcluster ## Run all measurements, or BENCH_PARTS of them, on an idle machine.
	test/bench/all $(BENCH_PARTS)

docs: localcluster image plugin kustomize ## Run the commands of README, the demo and the tutorials, and write what they print (CHECK=1: compare).
	hack/with-cluster node docs hack/docs $(if $(CHECK),,-write)

##@ Build

build: ## Build the operator.
	$(BUILD) -o bin/yardmaster ./cmd/yardmaster

plugin: ## Build the kubectl plugin, bin/kubectl-yardmaster.
	$(BUILD) -o bin/kubectl-yardmaster ./cmd/kubectl-yardmaster

run: ## Run the operator on this machine, against the cluster of the current kubeconfig.
	go run ./cmd/yardmaster --leader-elect=false --webhook=false --session-policies= --metrics-bind-address=0 --allow-local-brokers --zap-devel

image: localcluster ## Build the operator's image without Docker, as dist/yardmaster.tar.
	hack/image $(IMG) $(BUILD)

docker-build: ## Build the operator's image with Docker.
	docker build --build-arg VERSION=$(VERSION) --tag $(IMG) .

docker-buildx: ## Build and push the operator's image for several platforms (PLATFORMS).
	docker buildx build --build-arg VERSION=$(VERSION) --platform $(PLATFORMS) --tag $(IMG) --push .

build-installer: manifests overlay ## Write all manifests to dist/install.yaml.
	{ kustomize build config/crd; echo ---; kustomize build config/shared; echo ---; kustomize build dist/overlay; } > dist/install.yaml

release: kustomize localcluster bin/cyclonedx-gomod ## Write a release to dist/release (VERSION, RELEASE_…).
	RELEASE_KEY='$(RELEASE_KEY)' hack/release '$(VERSION)' '$(RELEASE_REPOSITORY)' $(RELEASE_PLATFORMS)

release-snapshot: ## Write and verify a signed release of the current commit for SNAPSHOT_PLATFORMS.
	hack/release-snapshot $(SNAPSHOT_PLATFORMS)

site: bin/hugo bin/mermaid.min.js ## Write the documentation site to dist/site.
	hack/site/build

##@ Deploy

install: kustomize $(KUBECTL_PROGRAM) ## Install the CustomResourceDefinitions, and what else operators share.
	for base in crd shared; do kustomize build config/$$base | $(APPLY) || exit; done

uninstall: kustomize $(KUBECTL_PROGRAM) ## Delete the CustomResourceDefinitions AND ALL OBJECTS of these kinds.
	for base in crd shared; do kustomize build config/$$base | $(KUBECTL) delete --ignore-not-found -f - || exit; done

deploy: install overlay plugin ## Deploy the operator (IMG and what follows it above).
	hack/refuse-served dist/overlay $(KUBECTL)
	kustomize build dist/overlay | $(APPLY)
	$(if $(filter cert-manager,$(subst $(comma), ,$(COMPONENTS))),,hack/webhook-ca $(OPERATOR_NAMESPACE) $(KUBECTL))
	hack/prune-permissions dist/overlay $(KUBECTL)

undeploy: overlay $(KUBECTL_PROGRAM) ## Delete the operator; keep CustomResourceDefinitions and objects.
	kustomize build dist/overlay | $(KUBECTL) delete --ignore-not-found -f -

overlay: kustomize
	hack/overlay dist/overlay '$(IMG)' '$(CONTROLLERS)' '$(NAMESPACES)' '$(COMPONENTS)' '$(REPORT_NAMESPACES)' '$(REPLICAS)' '$(OPERATOR_NAMESPACE)' '$(MONITOR_LABELS)' '$(SETTINGS)'

##@ Tools

TOOLS := controller-gen applyconfiguration-gen client-gen gotestsum kustomize golangci-lint helm vale

tools: $(TOOLS) localcluster ## Build all tools into bin/.

# Each tool is built once per pinned version.
.PHONY: localcluster $(TOOLS)
$(TOOLS): %: bin/%
bin/%: hack/tool tools.mod $(wildcard hack/tools/*/go.mod)
	hack/tool $*

localcluster $(BIN)/localcluster:
	go build -C localcluster -o $(BIN)/localcluster ./cmd/localcluster

clean: ## Delete built files.
	rm -rf bin dist
