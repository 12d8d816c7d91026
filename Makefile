# redis-rl: `make` lists what there is to make.

PORT ?= 6379
IMAGE ?= redis-rl
# What `make test-image` builds on, the first one being the Dockerfile's default.
BASES ?= redis:8 redis:7 valkey/valkey:8
# The one place that names the version is Cargo.toml.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The processor to build for. On x86-64, ARCH=aarch64 is a cross build, which runs under qemu-user.
ARCH ?= $(shell uname -m)
CROSS := $(if $(filter $(ARCH),$(shell uname -m)),,$(ARCH)-unknown-linux-gnu)
MODULE := $(TARGET)$(addprefix /,$(CROSS))/release/libredis_rl.so
GATEWAY := $(TARGET)/debug/gateway

.DEFAULT_GOAL := help
# Every target with a line of help, and those without.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST))) free-port servers-aarch64

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the module, target/release/libredis_rl.so
	@scripts/setup build
	@$(if $(CROSS),scripts/setup cross $(ARCH))
	cargo build --release --locked $(if $(CROSS),--lib --target $(CROSS))
	@ls -l $(MODULE)

run: free-port build ## a Redis with the module in the foreground, on PORT (6379)
	@server=$$(scripts/setup server) && \
	echo && \
	echo "  Starting $$($$server --version | cut -d ' ' -f 1-3) with the module. In another terminal:" && \
	echo && \
	echo "    redis-cli -p $(PORT) RL.TOKEN tenant:42 3 1 1000" && \
	echo "    redis-cli -p $(PORT) RL.FIXED quota:42 1000 86400000 COST 250" && \
	echo && \
	echo "  Five integers: allowed, limit, remaining, retry_after_ms, reset_after_ms. Stop it with Ctrl-C." && \
	echo && \
	exec $$server --port $(PORT) --loadmodule $(MODULE) --save '' --appendonly no

# Before building, which can take minutes. Bash alone opens such a path.
free-port:
	@if bash -c ': </dev/tcp/127.0.0.1/$(PORT)' 2>/dev/null; then \
	    echo "Port $(PORT) of this machine is in use. Stop what listens there, or name another: make run PORT=$$(($(PORT) + 1))"; \
	    exit 1; \
	fi

demo: build ## a gateway that limits its callers: four calls and their answers (examples/gateway)
	@scripts/setup tool curl curl
	cargo build --locked --package gateway
	@server=$$(scripts/setup server) && REDIS_SERVER=$$server MODULE=$(MODULE) GATEWAY=$(GATEWAY) examples/gateway/demo

test: ## everything that shows that it works
	@if scripts/setup build && scripts/setup lint; then \
	    $(MAKE) --no-print-directory lint; \
	else \
	    echo "So formatting and lints were not checked (make lint)."; \
	fi
	@$(MAKE) --no-print-directory test-unit test-server test-gateway
	@if docker info >/dev/null 2>&1; then \
	    $(MAKE) --no-print-directory test-image; \
	else \
	    echo "No Docker engine answers here, so the image was not tested (make test-image)."; \
	fi

lint: ## formatting, lints and documentation; with CI set, warnings are errors
	@scripts/setup build
	@scripts/setup lint
	cargo fmt --all --check $(if $(CI),,-- -l || echo "This rustfmt would format these otherwise.")
	cargo clippy --locked --workspace --all-targets --quiet $(if $(CI),-- -D warnings)
	RUSTDOCFLAGS="$(if $(CI),-D warnings)" cargo doc --locked --workspace --no-deps --document-private-items --quiet

deny: ## licenses, sources and known vulnerabilities of the crates (deny.toml)
	scripts/deny

check-workflows: ## the workflows of .github, with actionlint and zizmor
	scripts/check-workflows

test-unit: ## the core, without a server, the links of the pages, and their pictures
	@scripts/setup build
	cargo test --locked --lib --test core --test pages --example plots
	cargo test --locked --doc

test-every: ## every sequence of four calls over tiny policies, where test-unit tries three (minutes)
	@scripts/setup build
	RL_CALLS=4 cargo test --locked --release --test core -- every

test-server: build ## the module in a real server, REDIS_SERVER or the machine's own
	@scripts/setup tool redis-cli redis-tools
	server=$$(scripts/setup server) && REDIS_SERVER=$$server cargo test --locked --test server

test-gateway: build ## the example application, over HTTP, with the module in a real server
	@scripts/setup tool curl curl
	server=$$(scripts/setup server) && REDIS_SERVER=$$server cargo test --locked --package gateway

test-fresh: ## make demo and make test as an ordinary user of a bare Debian, in a container
	@scripts/setup docker
	.ci/fresh

test-servers: build ## the same on every supported server, fetched into .cache/servers; or on SERVERS
	@scripts/setup fetch
	@scripts/setup tool redis-cli redis-tools
	scripts/servers/fetch $(SERVERS)
	@scripts/servers/each

# What a cross build needs: a linker, the headers for bindgen, and servers for the other processor.
EMULATED := $(CURDIR)/.cache/servers-aarch64
STRIP := $(if $(CROSS),$(ARCH)-linux-gnu-)strip
ifneq ($(CROSS),)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu = -I/usr/aarch64-linux-gnu/include
endif

servers-aarch64:
	@scripts/setup fetch
	ARCHITECTURE=arm64 scripts/servers/fetch $(EMULATED) redis-7.0.15 redis-8.0.2 valkey-8.1.1

test-aarch64: ## on x86-64: recorded calls and more, with module and servers for aarch64 under qemu-user
	@$(MAKE) --no-print-directory release ARCH=aarch64
	@scripts/servers/emulated $(EMULATED) $(TARGET)/release/dist/libredis_rl-$(VERSION)-aarch64.so

test-upstream: build ## the tests of the servers' own authors, with the module loaded; FORM=short for a few
	@scripts/setup tool python3 python3
	@scripts/setup tool tclsh8.6 tcl8.6
	@scripts/setup tool ps procps
	scripts/upstream $(MODULE) $(FORM)

test-clients: build ## the examples for client libraries, installed into .cache/clients
	@scripts/setup clients
	server=$$(scripts/setup server) && tests/clients/run $$server $(MODULE)

test-adapters: build ## the stores and layers of examples/adapters, in the middlewares that they are for
	@scripts/setup adapters
	server=$$(scripts/setup server) && tests/adapters/run $$server $(MODULE)

test-monitoring: build ## INFO's figures in Prometheus, its alerts and panels, with the real exporter
	@scripts/setup monitoring
	server=$$(scripts/setup server) && tests/monitoring/run $$server $(MODULE)

image: ## a container image of Redis with the module, IMAGE (redis-rl)
	@scripts/setup docker
	docker build -t $(IMAGE) --build-arg VERSION=$(VERSION) .

test-image: ## builds the image on each of BASES and tests it in containers
	@scripts/setup docker
	@for base in $(BASES); do \
	    tag=$(IMAGE):$$(echo $$base | tr '/:' '--') && \
	    docker build -t $$tag --build-arg REDIS_IMAGE=$$base --build-arg VERSION=$(VERSION) . && \
	    tests/image $$tag || exit 1; \
	done

test-containers: image ## Compose, Testcontainers, Kubernetes, Sentinel, Cluster and TLS of docs/install.md; FORM=short
	@scripts/setup docker
	@scripts/setup venv
	tests/containers/run $(IMAGE) $(FORM)

fuzz: ## fuzzes the core for SECONDS (600) per target
	@scripts/setup build
	@scripts/setup tool c++ g++
	scripts/fuzz $(or $(SECONDS),600)

mutants: ## changes the core in each way there is, and looks whether its tests notice (an hour)
	@scripts/setup build
	scripts/mutants

memcheck: build ## the server tests with every server under valgrind
	@scripts/setup tool valgrind valgrind
	@scripts/setup tool redis-cli redis-tools
	server=$$(scripts/setup server) && REDIS_SERVER=$$server scripts/memcheck $(FORM)

soak: build ## KEYS (5000000) that come and go, and memory that returns to where it was
	server=$$(scripts/setup server) && REDIS_SERVER=$$server RL_SOAK_KEYS=$(or $(KEYS),5000000) \
	    cargo test --locked --test server -- --ignored --nocapture soak

# Only tables go to the standard output.
BENCH = @scripts/setup build && scripts/setup tool redis-benchmark redis-tools && scripts/setup tool valgrind valgrind && \
	server=$$(scripts/setup server) && \
	echo "compiling the module and the benchmark (a minute or two the first time) …" >&2 && \
	cargo build --release --locked --quiet && \
	REDIS_SERVER=$$server RL_MODULE=$(MODULE) cargo bench --locked --quiet --bench commands --

bench: ## the commands beside what one would use instead: every table, ROUNDS; with redis-cell, REDIS_CELL_SO
	$(BENCH) full

bench-quick: ## the table of the commands: cost, speed, bytes; about three minutes
	$(BENCH) quick

bench-several: ## RL.ALL beside its limits one by one, RL.LEASE beside plain commands, and both beside Lua
	$(BENCH) several

bench-worst: ## the slowest single calls, and what they send to replicas
	$(BENCH) worst

bench-core: ## micro-benchmarks of the core
	cargo bench --locked --bench core

bench-gateway: build ## what a limit adds to the example gateway, and to a bare service, beside Lua
	@scripts/setup tool python3 python3
	@scripts/setup tool wrk wrk
	cargo build --locked --release --package gateway --package bare-service
	server=$$(scripts/setup server) && \
	benches/gateway/run $$server $(MODULE) $(dir $(MODULE))gateway $(dir $(MODULE))bare-service

capacity: build ## the tables of docs/capacity.md: how many nodes, bytes and processor time, and a check on a cluster
	@scripts/setup tool python3 python3
	@scripts/setup tool redis-benchmark redis-tools
	@scripts/setup tool cpulimit cpulimit
	@scripts/setup tool openssl openssl
	server=$$(scripts/setup server) && benches/capacity/run $$server $(MODULE)

instructions: ## counts instructions per command into benches/instructions.tsv
	$(BENCH) update

plots: ## the pictures of the pages, docs/plots/*.svg, from the core and from the tables in benches/
	@scripts/setup build
	cargo run --locked --quiet --example plots

check-instructions: ## fails where a command got dearer than benches/instructions.tsv says
	$(BENCH) check

RELEASE = $(TARGET)/release/dist/libredis_rl-$(VERSION)-$(ARCH).so
SERVER = $(if $(CROSS),$(EMULATED)/redis-8.0.2/redis-server,$$(scripts/setup server))

release: build $(if $(CROSS),servers-aarch64) ## the module to give away: stripped, mode 0755, with its checksum
	@scripts/setup tool strip binutils
	@scripts/setup tool python3 python3
	@mkdir -p $(dir $(RELEASE))
	$(STRIP) -o $(RELEASE) $(MODULE)
	@chmod 0755 $(RELEASE)
	@cd $(dir $(RELEASE)) && sha256sum $(notdir $(RELEASE)) > $(notdir $(RELEASE)).sha256
	@scripts/check-release $(RELEASE) $(SERVER)

install: build ## the module to where this machine's server may load it from, and checks that it does
	@scripts/install $(MODULE)

package: build ## a Debian package for Redis's and Valkey's module folders
	@scripts/setup tool strip binutils
	@STRIP=$(STRIP) scripts/package $(MODULE) $(dir $(RELEASE))

test-install: package ## installs as docs/install.md says, under systemd in containers
	@scripts/setup docker
	tests/install $(MODULE) $(dir $(RELEASE))redis-rl_$(VERSION)_$$(dpkg --print-architecture).deb

clean: ## removes what was built and fetched
	cargo clean
	rm -rf .cache
