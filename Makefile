# leadsync. `make help` lists what there is.

CARGO ?= cargo
.DEFAULT_GOAL := help
.PHONY: help run demo build test test-odoo fuzz fmt postgres curl
# Of `make fuzz`, for each target.
MINUTES ?= 10

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: postgres build ## Everything at once on a private database: build, then `leadsync demo`
	./target/release/leadsync demo

demo: run ## The same as run

build: ## The release binary, target/release/leadsync
	$(CARGO) build --release --locked

test: postgres curl ## Format, lints, all tests
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --test odoo -- -D warnings
	$(CARGO) test --locked

test-odoo: postgres curl ## Tests against a real Odoo 14, installed once into a folder of its own: Debian or Ubuntu, as root
	CARGO=$(CARGO) tests/odoo/run.sh

fuzz: ## Fuzzes what reads strangers' bytes, MINUTES=10 for each target; needs a C++ compiler
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	tests/fuzz/run.sh $(MINUTES)

fmt: ## Formats the sources
	$(CARGO) fmt

# PostgreSQL's server programs. Installed only where that needs no question: Debian and Ubuntu, as root or with a sudo that
# asks no password.
postgres: ## Looks for PostgreSQL's server programs, installs them on Debian and Ubuntu
	@for initdb in $$(command -v initdb) /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
	    /usr/libexec/postgresql*/initdb /opt/homebrew/opt/postgresql@*/bin/initdb \
	    /usr/local/opt/postgresql@*/bin/initdb /usr/lib/postgresql*/bin/initdb /usr/local/pgsql/bin/initdb; do \
	    if [ -x "$$initdb" ]; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ]; then sudo=; else sudo='sudo -n'; fi; \
	if command -v apt-get >/dev/null && { [ -z "$$sudo" ] || $$sudo true 2>/dev/null; }; then \
	    echo 'installing PostgreSQL' >&2; \
	    $$sudo apt-get update -q && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql; \
	else \
	    echo 'PostgreSQL is not installed here. Install its server, then run make again:' >&2; \
	    if command -v apt-get >/dev/null; then echo '    sudo apt-get install -y postgresql'; \
	    elif command -v dnf >/dev/null; then echo '    sudo dnf install -y postgresql-server'; \
	    elif command -v pacman >/dev/null; then echo '    sudo pacman -S postgresql'; \
	    elif command -v apk >/dev/null; then echo '    sudo apk add postgresql'; \
	    elif command -v zypper >/dev/null; then echo '    sudo zypper install postgresql-server'; \
	    elif command -v brew >/dev/null; then echo '    brew install postgresql@17'; \
	    else echo '    the package with postgres and initdb, version 14 or newer'; fi >&2; \
	    exit 1; \
	fi

# The README's tour, which is a test, calls curl.
curl:
	@command -v curl >/dev/null || { \
	    if [ "$$(id -u)" = 0 ]; then sudo=; else sudo='sudo -n'; fi; \
	    command -v apt-get >/dev/null && $$sudo apt-get update -q && $$sudo apt-get install -y -q --no-install-recommends curl; \
	} || { echo 'curl is not installed here. Install it, then run make again.' >&2; exit 1; }
