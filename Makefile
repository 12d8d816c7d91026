# redis-rl: `make` lists what there is to make.

PORT ?= 6379
MODULE := target/release/libredis_rl.so

.DEFAULT_GOAL := help
.PHONY: help build run test lint test-unit test-server test-servers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the module, target/release/libredis_rl.so
	@tests/setup build
	cargo build --release --locked
	@ls -l $(MODULE)

run: build ## a Redis with the module in the foreground, on PORT (6379)
	@server=$$(tests/setup server) && \
	echo && \
	echo "  Starting $$($$server --version | cut -d ' ' -f 1-3) with the module. In another terminal:" && \
	echo && \
	echo "    redis-cli -p $(PORT) RL.TOKEN tenant:42 3 1 1000" && \
	echo "    redis-cli -p $(PORT) RL.FIXED quota:42 1000 86400000 COST 250" && \
	echo && \
	echo "  Five integers: allowed, limit, remaining, retry_after_ms, reset_after_ms. Stop it with Ctrl-C." && \
	echo && \
	exec $$server --port $(PORT) --loadmodule $(CURDIR)/$(MODULE) --save '' --appendonly no

test: lint test-unit test-server ## everything that shows that it works

lint: ## formatting, lints and documentation, with warnings as errors
	@tests/setup build
	@tests/setup lint
	cargo fmt --check
	cargo clippy --locked --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --quiet

test-unit: ## the core, without a server
	@tests/setup build
	cargo test --locked --lib --test core
	cargo test --locked --doc

test-server: build ## the module in a real server, REDIS_SERVER or the machine's own
	REDIS_SERVER=$$(tests/setup server) cargo test --locked --test server

test-servers: build ## the same on every supported server, fetched into .cache/servers
	@tests/setup fetch
	tests/servers/fetch
	@tests/servers/each

clean: ## removes what was built and fetched
	cargo clean
	rm -rf .cache
