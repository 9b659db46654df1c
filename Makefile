# `make help` lists the targets.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The operator's image.
IMG ?= yardmaster:dev
# Namespaces that the operator watches, separated by commas; NAMESPACES='*' for all.
NAMESPACES ?= default
# Namespaces whose Jobs the operator reports on, separated by commas.
REPORT_NAMESPACES ?=
# Controllers to run, as in the flag --controllers: '*' for all, a name, -name for all but that one.
CONTROLLERS ?= *
# Kustomize components to add to the deployment, separated by commas: cert-manager,
# admission-policy, webhook-network-policy, prometheus, jobreport-alerts, jobreport-openreports, queue-alerts,
# default-broker, gateway.
COMPONENTS ?=
# Number of replicas of the operator; empty for that of config/manager.
REPLICAS ?=
# Namespace of the operator.
OPERATOR_NAMESPACE ?= yardmaster-system
# Environment variables of the operator, as NAME=VALUE, separated by commas, such as YARDMASTER_REPORT_INTERVAL=1m.
SETTINGS ?=
# Labels by which Prometheus selects monitors and rules, separated by commas, such as release=prometheus.
MONITOR_LABELS ?=
# Cluster of `make demo`: localcluster or kind, which it creates, or current for that of your kubeconfig.
CLUSTER ?= localcluster
# Local cluster that `make deploy` and similar targets use if kubectl is not installed.
CLUSTER_NAME ?= default
# Platforms that Docker builds for.
PLATFORMS ?= linux/amd64,linux/arm64

BIN := $(CURDIR)/bin
export PATH := $(BIN):$(PATH)

# One set of flags for every build, so that each dependency is compiled once: the operator, the
# plugin, the image, the tools, the tests and the local cluster share the build cache. Only the
# race detector, which needs cgo, and runc, which contains C, compile their own copies.
export GOFLAGS := $(shell source hack/build-env && echo "$$GOFLAGS")
export CGO_ENABLED := 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Without the tag, gRPC brings a package of templates, and the linker keeps all methods for these.
TAGS := grpcnotrace
LDFLAGS := -s -w -X github.com/yardmaster/yardmaster/internal/version.release=$(VERSION)
KUBECTL ?= $(shell command -v kubectl || echo $(BIN)/localcluster kubectl --name $(CLUSTER_NAME) --)
# Program to build first if kubectl is not installed.
KUBECTL_PROGRAM := $(filter $(BIN)/localcluster,$(KUBECTL))
APPLY := $(KUBECTL) apply --server-side --force-conflicts --field-manager=yardmaster-install -f -

# Modules whose go.mod must be tidy. (tools.mod has no code to tidy it by.)
MODULES := . hack/tools/golangci-lint hack/tools/govulncheck hack/tools/gitops hack/tools/helm hack/tools/hugo hack/tools/kueue hack/tools/vale test/handlers/river test/ui $(patsubst %/go.mod,%,$(wildcard localcluster/go.mod localcluster/modules/*/go.mod))
# Modules besides the main one whose tests need no cluster.
TESTED_MODULES := localcluster localcluster/modules/network-policies hack/tools/helm hack/tools/gitops
GENERATED := api/*/zz_generated.deepcopy.go applyconfiguration clientset config/crd/bases config/rbac/controllers charts/yardmaster/templates docs/reference
# The packages that decide, the simulation of scaling, and the programs of the build share nothing between goroutines:
# the race detector would find nothing there, and their tests take ten times as long under it.
PURE = $(shell go list ./internal/decision/... ./internal/kinds/... ./hack/... ./test/bench/scaling/... | grep -v /controller)
# Packages whose tests take longest. Started last, they would run alone.
LONGEST := ./client ./internal/broker/jetstream ./worker ./internal/broker/brokerconn ./internal/pod/runner
# go test starts packages in this order.
UNIT = $(filter-out $(PURE),$(shell go list $(LONGEST) ./... | grep -v -e /test/integration -e /test/e2e))
# Number of runs of make test-busy.
BUSY_RUNS ?= 1
# Number of random clusters that the property test of package sequence simulates. CI simulates 10,000, make soak 100,000.
SEQUENCE_RUNS ?= 1000
# RACE=1 runs the unit tests with the race detector, as CI does. It needs a C compiler, and twice the time.
RACE ?=
RACE_FLAG := $(if $(RACE),$(if $(shell command -v gcc),-race,$(error RACE=1 needs gcc)))
RACE_ENV := $(if $(RACE_FLAG),CGO_ENABLED=1)
# Further flags of go test, such as -count=1 to ignore cached results.
TEST_FLAGS ?=
# Runs go test, and at the end repeats what failed.
GOTEST_VET := gotestsum --format pkgname -- -timeout 20m $(TEST_FLAGS)
# Without go vet, which is one of the linters.
GOTEST := $(GOTEST_VET) -vet=off
# Tests with a cluster or a broker mostly wait, so run more of them in parallel than there are cores.
WAITING := -parallel 8
WAITING_PACKAGES := -p 3

##@ Try it

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Create a cluster, deploy the operator and run the examples (CLUSTER=localcluster|kind|current, VERBOSE=1).
	@hack/go-build ./test/demo bin/demo
	@CLUSTER=$(CLUSTER) bin/demo

.PHONY: demo-down
demo-down: ## Delete the demo's cluster, or what it created in the current one.
	@hack/go-build ./test/demo bin/demo
	@CLUSTER=$(CLUSTER) bin/demo --down

##@ Develop

.PHONY: manifests
manifests: controller-gen ## Generate the CustomResourceDefinitions and roles.
	controller-gen crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:artifacts:config=config/crd/bases
	go run ./hack/crd config/crd/bases
	hack/roles config/rbac/controllers

.PHONY: generate
generate: controller-gen applyconfiguration-gen client-gen crd-ref-docs ## Generate DeepCopy methods, the Go client and the references of the API, permissions and licenses.
	controller-gen object paths=./api/...
	hack/clients
	mkdir -p docs/reference
	crd-ref-docs --source-path=api --config=hack/crd-ref-docs.yaml --renderer=markdown \
		--output-path=docs/reference/api.md --log-level=ERROR
	go run ./hack/permissions docs/reference/permissions.md
	go run ./hack/licenses docs/reference/licenses.md

.PHONY: chart
chart: manifests ## Generate the templates of the Helm chart from config/.
	go run ./hack/chart config charts/yardmaster/templates

.PHONY: fmt
fmt: golangci-lint ## Format the code.
	golangci-lint fmt ./...

.PHONY: lint
lint: golangci-lint ## Run the linters.
	golangci-lint run ./...
	cd localcluster && golangci-lint run ./...
	cd test/ui && golangci-lint run --build-tags bench ./...
	go -C test/handlers/river vet .

.PHONY: prose
prose: vale ## Check the language of documentation, comments and messages.
	hack/prose

.PHONY: govulncheck
govulncheck: bin/govulncheck ## Check the code for known vulnerabilities (GOVULNDB).
	hack/govulncheck

.PHONY: verify
verify: manifests generate chart lint prose govulncheck ## Check that generated files are up to date, modules tidy, and all linters pass.
	@for module in $(MODULES); do echo "go mod tidy -diff in $$module"; go -C $$module mod tidy -diff; done
	@hack/verify-clean $(GENERATED)
	@hack/verify-test-names
	@hack/verify-toolchain

##@ Test

.PHONY: test
test: test-unit test-integration ## Run unit and integration tests.

.PHONY: test-busy
test-busy: test-tools ## Run make test beside two endless loops, to find tests that a busy machine fails (BUSY_RUNS).
	for run in $$(seq $(BUSY_RUNS)); do echo "==> run $$run of $(BUSY_RUNS)"; hack/beside-loops $(MAKE) test TEST_FLAGS=-count=1; done

# Installs and builds what the tests need.
.PHONY: test-tools
test-tools: gotestsum localcluster kustomize helm
	hack/prerequisites redis-server=redis-server redis-cli=redis-server rabbitmq-server=rabbitmq-server promtool=prometheus \
		python3=python3 node=nodejs openssl=openssl curl=curl tmux=tmux
	localcluster build --mode control-plane

# Programs with the race detector wait a second before they exit, for reports of other threads.
export GORACE := atexit_sleep_ms=0

# The simulations allocate much memory and keep little.
.PHONY: test-pure
test-pure: gotestsum ## Run the tests of the packages that only decide.
	GOGC=400 SEQUENCE_RUNS=$(SEQUENCE_RUNS) $(GOTEST) -timeout 60m $(PURE)

.PHONY: test-unit
test-unit: test-tools ## Run the tests that need no cluster.
	$(MAKE) --jobs=3 test-packages test-pure test-modules

.PHONY: test-packages
test-packages: gotestsum
	$(RACE_ENV) $(GOTEST) $(WAITING_PACKAGES) $(RACE_FLAG) $(UNIT)

# With go vet, because there are no linters for some of these modules.
.PHONY: test-modules
test-modules: gotestsum
	for module in $(TESTED_MODULES); do (cd $$module && $(GOTEST_VET) ./...); done

.PHONY: agents
agents:
	hack/prerequisites npm=npm git=git
	mkdir -p dist/agents
	cp test/agents/package.json dist/agents/
	npm install --prefix dist/agents --no-audit --no-fund --loglevel=error

.PHONY: test-agents
test-agents: gotestsum agents ## Test the session runner with the real command lines of agents, from npm (1.3 GB).
	$(GOTEST_VET) -tags agents -count=1 -timeout 30m ./test/agents

.PHONY: test-agents-node
test-agents-node: gotestsum kustomize localcluster image agents ## Test a session with a real agent on a real node, and print how long its start takes (part of make soak).
	AGENTS=1 E2E_SOAK=1 E2E_FLAGS='-run TestRealAgent' hack/with-cluster node agents hack/e2e

# One package at a time: each starts its own operators in the same cluster.
.PHONY: test-integration
test-integration: test-tools ## Run the tests against a real control plane with simulated nodes.
	hack/with-cluster control-plane test \
		$(GOTEST) -p 1 $(WAITING) $(filter-out %/restore %/fuzz,$(shell go list ./test/integration/...)) -timeout 30m

# These tests kill the control plane and delete all objects of their cluster.
.PHONY: test-restore
test-restore: gotestsum localcluster ## Test restores of etcd, downgrades and deleted CustomResourceDefinitions (part of make soak).
	RESTORE=1 hack/with-cluster control-plane restore $(GOTEST) ./test/integration/restore -timeout 30m

.PHONY: e2e
e2e: gotestsum localcluster image ## Run the tests on a real node.
	hack/with-cluster node e2e hack/e2e

.PHONY: test-localcluster
test-localcluster: gotestsum localcluster ## Test the local cluster itself (part of make soak).
	cd localcluster && $(GOTEST) -tags e2e ./e2e -count 1 -timeout 40m

.PHONY: test-kueue
test-kueue: gotestsum kustomize localcluster image ## Run the tests with Kueue's controller, on a real node (part of make soak).
	KUEUE=1 E2E_FLAGS='-run TestKueue' hack/with-cluster node kueue hack/e2e

.PHONY: test-install
test-install: gotestsum kustomize helm localcluster ## Test the ways to install, with make and with Helm, on an empty cluster with a real node (part of make soak).
	hack/baseline-image v0.1.0
	hack/with-cluster node install hack/test-install

# The browser is Debian's.
.PHONY: test-ui
test-ui: localcluster bin/axe.min.js ## Run the tests of kubectl yardmaster ui in headless Chromium (part of make soak). UI_FLAGS are further flags of go test.
	hack/prerequisites chromium=chromium openssl=openssl prometheus=prometheus
	AXE=$(BIN)/axe.min.js hack/with-cluster control-plane ui go -C test/ui test ./... -count 1 -timeout 30m $(UI_FLAGS)

# SCREENSHOTS=DIR of make test-ui also takes screenshots.
.PHONY: bench-ui
bench-ui: localcluster ## Measure kubectl yardmaster ui in headless Chromium with up to 5,000 objects (UI_BENCH_DURATION).
	hack/prerequisites chromium=chromium
	hack/with-cluster control-plane ui go -C test/ui test -tags bench -run TestFigures ./... -count 1 -v -timeout 60m

.PHONY: test-oldest
test-oldest: gotestsum kustomize helm ## Run the integration tests on the oldest supported Kubernetes release (part of make soak).
	hack/prerequisites redis-server=redis-server tmux=tmux
	oldest=$$(hack/oldest-kubernetes) && PATH="$$oldest:$$PATH" hack/with-cluster control-plane oldest \
		$(GOTEST) -p 1 $(WAITING) ./test/integration ./test/integration/chart -timeout 60m

.PHONY: soak
soak: gotestsum localcluster image ## Run the suites that are too long for CI, and print the result of each (SOAK_PARTS, SOAK_DURATION).
	hack/soak $(SOAK_PARTS)

.PHONY: bench
bench: localcluster ## Run all measurements, on an otherwise idle machine.
	test/bench/all

.PHONY: bench-sessions
bench-sessions: localcluster ## Run the measurements of AgenticSessions.
	test/bench/all sessions

##@ Build

.PHONY: build
build: ## Build the operator.
	go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/yardmaster ./cmd/yardmaster

.PHONY: plugin
plugin: ## Build the kubectl plugin, bin/kubectl-yardmaster.
	go build -ldflags '$(LDFLAGS)' -o bin/kubectl-yardmaster ./cmd/kubectl-yardmaster

.PHONY: run
run: ## Run the operator on this machine, against the cluster of the current kubeconfig.
	go run ./cmd/yardmaster --leader-elect=false --webhook=false --metrics-bind-address=0 --allow-local-brokers --zap-devel

.PHONY: image
image: localcluster ## Build the operator's image without Docker, as dist/yardmaster.tar.
	CGO_ENABLED=0 GOOS=linux go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/linux/ ./cmd/yardmaster ./cmd/session-runner
	mkdir -p dist
	localcluster build-image --tag $(IMG) --file bin/linux/yardmaster:/yardmaster \
		--file bin/linux/session-runner:/session-runner \
		--entrypoint /yardmaster --user 65532:65532 --output dist/yardmaster.tar

.PHONY: docker-build
docker-build: ## Build the operator's image with Docker.
	docker build --build-arg VERSION=$(VERSION) --tag $(IMG) .

.PHONY: docker-buildx
docker-buildx: ## Build and push the operator's image for several platforms (PLATFORMS).
	docker buildx build --build-arg VERSION=$(VERSION) --platform $(PLATFORMS) --tag $(IMG) --push .

.PHONY: build-installer
build-installer: manifests overlay ## Write all manifests to dist/install.yaml.
	{ kustomize build config/crd; echo ---; kustomize build dist/overlay; } > dist/install.yaml

# Platforms of the plugin in a release; the operator's images are those for Linux among them.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
# Repository of the operator's image in a release.
RELEASE_REPOSITORY ?= ghcr.io/yardmaster/yardmaster

# Private key that signs a release; without it, the release has no signature.
RELEASE_KEY ?=

.PHONY: release
release: kustomize localcluster ## Write the files of a release to dist/release (VERSION, RELEASE_PLATFORMS, RELEASE_REPOSITORY, RELEASE_KEY).
	RELEASE_KEY='$(RELEASE_KEY)' hack/release '$(VERSION)' '$(RELEASE_REPOSITORY)' $(RELEASE_PLATFORMS)

# Platforms of a snapshot.
SNAPSHOT_PLATFORMS ?= linux/$(shell go env GOARCH)

.PHONY: release-snapshot
release-snapshot: ## Write the files of a release of the current commit, for one platform by default, and verify their signature.
	hack/prerequisites openssl=openssl
	mkdir -p dist
	go run ./hack/sign generate dist/snapshot.key
	$(MAKE) release VERSION='v0.0.0-snapshot.g$(shell git rev-parse --short HEAD)' RELEASE_PLATFORMS='$(SNAPSHOT_PLATFORMS)' \
		RELEASE_KEY=dist/snapshot.key
	hack/verify-release dist/release dist/snapshot.key.pub

.PHONY: site
site: bin/hugo bin/mermaid.min.js ## Write the documentation site to dist/site, draw its diagrams, and check its links.
	hack/prerequisites chromium=chromium
	rm -rf dist/site
	hugo --quiet --noBuildLock --config hack/site/hugo.toml
	go run ./hack/site/diagrams dist/site bin/mermaid.min.js
	go run ./hack/site/check dist/site

##@ Deploy

.PHONY: install
install: kustomize $(KUBECTL_PROGRAM) ## Install the CustomResourceDefinitions.
	kustomize build config/crd | $(APPLY)

.PHONY: uninstall
uninstall: kustomize $(KUBECTL_PROGRAM) ## Delete the CustomResourceDefinitions AND ALL OBJECTS of these kinds.
	kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: install overlay ## Deploy the operator (IMG, CONTROLLERS, NAMESPACES, COMPONENTS, REPORT_NAMESPACES, REPLICAS, SETTINGS).
	kustomize build dist/overlay | $(APPLY)
	hack/prune-permissions dist/overlay '$(NAMESPACES)' $(KUBECTL)

.PHONY: undeploy
undeploy: overlay $(KUBECTL_PROGRAM) ## Delete the operator; keep CustomResourceDefinitions and objects.
	kustomize build dist/overlay | $(KUBECTL) delete --ignore-not-found -f -

# The kustomization to deploy.
.PHONY: overlay
overlay: kustomize
	hack/overlay dist/overlay '$(IMG)' '$(CONTROLLERS)' '$(NAMESPACES)' '$(COMPONENTS)' '$(REPORT_NAMESPACES)' '$(REPLICAS)' \
		'$(OPERATOR_NAMESPACE)' '$(MONITOR_LABELS)' '$(SETTINGS)'

##@ Tools

# Each tool is built once per pinned version.
.PHONY: tools
tools: controller-gen applyconfiguration-gen client-gen crd-ref-docs gotestsum kustomize golangci-lint helm vale localcluster ## Build all tools into bin/.

.PHONY: controller-gen applyconfiguration-gen client-gen crd-ref-docs gotestsum kustomize golangci-lint helm vale
controller-gen applyconfiguration-gen client-gen crd-ref-docs gotestsum kustomize golangci-lint helm vale: %: bin/%

bin/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
bin/applyconfiguration-gen: PACKAGE := k8s.io/code-generator/cmd/applyconfiguration-gen
bin/client-gen: PACKAGE := k8s.io/code-generator/cmd/client-gen
bin/crd-ref-docs: PACKAGE := github.com/elastic/crd-ref-docs
bin/gotestsum: PACKAGE := gotest.tools/gotestsum
bin/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5
bin/controller-gen bin/applyconfiguration-gen bin/client-gen bin/crd-ref-docs bin/gotestsum bin/kustomize: tools.mod
	@echo "Building $@"
	go build -modfile=tools.mod -o $@ $(PACKAGE)
	@touch $@

bin/golangci-lint: hack/tools/golangci-lint/go.mod
	@echo "Building $@"
	go build -C hack/tools/golangci-lint -o $(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

bin/helm: hack/tools/helm/go.mod
	@echo "Building $@"
	go build -C hack/tools/helm -o $(BIN)/helm helm.sh/helm/v4/cmd/helm
	@touch $@

bin/hugo: hack/tools/hugo/go.mod
	@echo "Building $@"
	go build -C hack/tools/hugo -o $(BIN)/hugo github.com/gohugoio/hugo
	@touch $@

# Scripts for browsers, which tests and the documentation site run.
bin/axe.min.js: PACKAGE := axe-core
bin/mermaid.min.js: PACKAGE := mermaid
bin/axe.min.js bin/mermaid.min.js: hack/npm-file
	hack/prerequisites npm=npm openssl=openssl
	hack/npm-file $(PACKAGE) $@

bin/govulncheck: hack/tools/govulncheck/go.mod
	@echo "Building $@"
	go build -C hack/tools/govulncheck -o $(BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	@touch $@

# vale parses Go comments with C code, so it is the only tool that needs a C compiler.
bin/vale: hack/tools/vale/go.mod
	@hack/prerequisites gcc=gcc,libc6-dev
	@echo "Building $@"
	CGO_ENABLED=1 go build -C hack/tools/vale -o $(BIN)/vale github.com/vale-cli/vale/v3/cmd/vale
	@touch $@

.PHONY: localcluster
localcluster $(BIN)/localcluster:
	go build -C localcluster -o $(BIN)/localcluster ./cmd/localcluster

.PHONY: clean
clean: ## Delete built files.
	rm -rf bin dist
