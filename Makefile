# Every target makes ready what it needs: system packages (as root; else it names them), then .venv.
# PYTHON=python3.12 names the Python to use; ARGS=... is passed on to pytest or the benchmark; PREFIX=... (/opt/outboxd) and
# DESTDIR=... say where `make install` puts it, EXTRAS=kafka,grpc,rocketmq which optional publishers it gets.

.DEFAULT_GOAL := help
.PHONY: help demo example run test test-long test-mysql lint bench install uninstall clean

export PYTHON PREFIX DESTDIR EXTRAS
READY  := @tests/services/install.sh
BIN    := .venv/bin
# What `make test` has installed: without it a test fails, where it would be skipped otherwise.
SERVED := OUTBOXD_TEST_REQUIRE=mysql,redis,rocketmq,kafka,nginx,http,faketime,systemd-analyze,promtool,kubernetes-validate,hadolint

help:       ## print this list
	@sed -n 's/^\([a-z-]*\): .*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo:       ## see it work: sample events through an embedded database
	$(READY) run
	@$(BIN)/outboxd demo

example:    ## see a room service live by it: docs/examples/room_service, with MariaDB, Redis and clients
	$(READY) example
	@PYTHONPATH=.:docs/examples $(BIN)/python -m room_service.demo

run:        ## run it in the foreground with etc/outbox.yaml
	$(READY) run
	@$(BIN)/outboxd --config etc/outbox.yaml

test: lint  ## lint, then every test against real servers
	@$(SERVED) $(BIN)/python -m pytest $(ARGS)

test-long:  ## the long fault tests: kills, restarts, outages
	$(READY) test
	@$(SERVED) OUTBOXD_CHAOS=full $(BIN)/python -m pytest tests/chaos tests/lifecycle $(ARGS)

test-mysql: ## what the tables rest on, against Oracle's MySQL (test runs it against MariaDB)
	$(READY) test
	@PATH="$$PWD/$(BIN):$$PATH" tests/services/mysql.sh python -m pytest -k "not sqlite" tests/contract \
		tests/integration/test_older_table.py tests/integration/test_adopt.py $(ARGS)

lint:       ## ruff, mypy and the import rules
	$(READY) test
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

bench:      ## measure it on this machine
	$(READY) test
	@$(BIN)/python -m tests.bench $(ARGS)

install:    ## put it on this machine as a systemd service, or upgrade it (as root)
	@systemd/install.sh install

uninstall:  ## remove it again; configuration and data stay
	@systemd/install.sh uninstall

clean:      ## remove .venv, builds and caches
	@rm -rf .venv build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
