# The commands of the project. `make` lists them.

SECONDS ?= 60
SAMPLE := lab/sample/sample.pcap
WEIR := target/release/weir
# Most tests wait for processes of theirs and compute little, so several run at a time for each core.
TEST_THREADS := $(shell echo $$((3 * $$(nproc))))
PREFIX ?= /usr/local
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests build no-compiler modules install packages test-packages run test test-llvm test-no-compiler test-traces test-ui lint bench figures fuzz sample check-languages check-contrib wheel check-wheel man docs completions clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: ## say what building needs and is missing, and install it (Debian, Ubuntu)
	@lab/setup

setup-tests:
	@lab/setup --tests

build: setup ## the binary: target/release/weir
	cargo build --release --locked -p weir

no-compiler: setup ## weir without a compiler, which runs only bundles: target/weir-no-compiler
	@if [ -f $(WEIR) ]; then cp -p $(WEIR) target/weir-saved; fi
	cargo build --release --locked -p weir --no-default-features
	cp $(WEIR) target/weir-no-compiler
	@if [ -f target/weir-saved ]; then mv target/weir-saved $(WEIR); fi

test-no-compiler: setup-tests no-compiler ## that program runs bundles and refuses modules (root; clang-19)
	WEIR_TEST_NODE=$(CURDIR)/target/weir-no-compiler \
		cargo test --release --locked --workspace --test node --test weir -- \
		bundles::a_node_without_a_compiler bundles::weir_run_uses

modules: setup-tests build ## the shipped modules again from their sources (then `make build`: they are part of the binary)
	@for dir in guest/modules/*/ guest/examples/*/; do \
		if [ -f $$dir/package.json ]; then \
			if command -v npm >/dev/null; then (cd $$dir && npm ci --silent && npm run --silent build) || exit 1; \
			else echo "$$dir: no npm, so it stays as it is"; fi; \
			continue; \
		fi; \
		record=guest/modules/TOOLCHAIN; \
		if [ -f $$dir/Cargo.toml ]; then \
			record=guest/examples/RUST_TOOLCHAIN; \
			if ! said=$$($(WEIR) build $$dir); then echo "$$dir: it stays as it is"; continue; fi; \
		else \
			said=$$($(WEIR) build $$dir) || exit 1; \
		fi; \
		echo "$$said"; \
		echo "$$said" | sed -n 's/^built with //p' > $$record; \
	done

run: build ## the default modules over the sample capture, with an HTML report
	rm -rf out/records
	$(WEIR) run -r $(SAMPLE) --out out/records --report out/report.html
	@echo
	@echo "Report:  $(CURDIR)/out/report.html"
	@echo "Records: $(CURDIR)/out/records (Parquet, a folder for each module)"

test: setup-tests ## everything that has to pass: formatting, lints, tests
	cargo fmt --check
	cargo clippy --workspace --all-targets --release --locked -- -D warnings
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} cargo test --workspace --release --locked

test-llvm: setup-tests ## the tests of the sandbox again, with modules in verified code of LLVM (needs clang-19; minutes)
	WEIR_TEST_BACK_END=llvm RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} \
		cargo test --release --locked -p weir-sandbox --test sandbox

test-traces: setup-tests ## weir against tshark, tcpdump and others on all captures of ../shared/traces (minutes)
	WEIR_TRACES=all RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} \
		cargo test --release --locked -p weir --test weir traces

test-ui: setup-tests ## the web page: types, built files, and tests in a browser with a mock and a live node (root; npm, chromium; minutes)
	cd apps/ui/web && npm ci --silent && npm run check && npm test
	cargo test --release --locked -p weir-ui
	cargo test --release --locked --workspace --test node -- ui:: ui_credentials::

lint: setup-tests ## formatting and lints alone
	cargo fmt --check
	cargo clippy --workspace --all-targets --release --locked -- -D warnings

bench: setup-tests build ## the tables of docs/SPECIFICATION.md; with OLD=PATH also against an earlier weir
	cargo run --release --locked -p weir-lab --bin bench -- $(if $(OLD),--old $(OLD))

figures: setup-tests build ## the experiments of the papers, into docs/figures (root, or sudo; Linux)
	cargo build --release --locked -p weir-lab --bin weir-lab
	$(SUDO) target/release/weir-lab all --into docs/figures

fuzz: setup ## every fuzz target for SECONDS each (60), both back ends against an interpreter, and all flipped bits (half an hour); needs a nightly compiler
	lab/fuzz $(SECONDS)
	WEIR_SECONDS=$(SECONDS) cargo test --release --locked -p weir-sandbox --test sandbox differential:: -- --nocapture
	WEIR_FLIPS=all cargo test --release --locked -p weir-native --test native flips:: -- --nocapture

sample: ## record the sample capture again (root, or sudo; Linux)
	$(SUDO) lab/sample/record.py

check-languages: build ## the modules in other languages: builds, bounds and rows (compilers from PyPI and npm)
	WEIR=$(CURDIR)/$(WEIR) guest/languages/check.py

check-contrib: build ## Prometheus rules and Grafana dashboard against a live node (root, or sudo; prometheus)
	$(SUDO) contrib/check.py --weir $(CURDIR)/$(WEIR)

wheel: build ## the Python wheel: target/wheel
	packaging/wheel/build $(WEIR) target/wheel

check-wheel: wheel ## the wheel in fresh environments, and on a system without toolchains (PyPI; root and debootstrap for the latter)
	packaging/wheel/test $$(ls -t target/wheel/*.whl | head -1)

man: build ## manual pages, into out/man
	mkdir -p out/man
	$(WEIR) man out/man

docs: ## the reference of the SDK for Rust (rustdoc), into out/docs
	RUSTDOCFLAGS="-D warnings" CARGO_TARGET_DIR=target/docs cargo doc --no-deps --manifest-path guest/sdk-rust/Cargo.toml
	mkdir -p out && rm -rf out/docs && cp -r target/docs/doc out/docs

completions: build ## shell completions, into out/completions
	mkdir -p out/completions
	$(WEIR) completions bash > out/completions/weir.bash
	$(WEIR) completions zsh > out/completions/_weir
	$(WEIR) completions fish > out/completions/weir.fish

install: ## the binary, manual pages, completions and the systemd unit, into DESTDIR and PREFIX (after `make build`)
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" packaging/install $(WEIR)

packages: setup ## static binary, .deb, .rpm, container image and source archive, into target/packages (packaging/README.md)
	packaging/build

test-packages: packages ## the packages: built twice, installed and run on systems without compilers (root, or sudo)
	$(SUDO) env "PATH=$$PATH" "HOME=$$HOME" packaging/test

clean: ## remove everything that was built
	cargo clean
	rm -rf out fuzz/target
