#!/usr/bin/env bash
# Makes ready what outboxd needs on this machine: Python, system packages, a virtual environment in .venv.
#
#   tests/services/install.sh run     what `make demo` and `make run` need
#   tests/services/install.sh example that, MariaDB, Redis and the tests' packages
#   tests/services/install.sh test    that, all of the tests' servers and tools
#   tests/services/install.sh python  no environment, and the Python's name on standard output: for `make install`
#
# Silent when all is there. As root on Debian or Ubuntu it installs the packages that are missing, and starts no
# service; otherwise it names them and ends with 1. PYTHON names the Python to use.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" # where servers are, also for those who are not root
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
mode=$1

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# quietly LABEL COMMAND...: one line of progress; what the command printed is shown only if it fails.
quietly() {
    local label=$1 log
    shift
    log=$(mktemp)
    echo "$label ..."
    if ! "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        fail "$label: failed, see above"
    fi
    rm -f "$log"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON (set by PYTHON)"
        new_enough "$PYTHON" || fail "outboxd needs Python 3.11 or newer; PYTHON=$PYTHON is $("$PYTHON" --version 2>&1)"
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.11 python3.12 python3.13 python3.14; do
        if new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    fail "outboxd needs Python 3.11 or newer; found $(python3 --version 2>&1 || true)" \
        "Install one, then name it: make ... PYTHON=/path/to/python3.11"
}

# java_classes NAME: where that server is, as tests/services/NAME.py has it; the version is the pom's own.
java_classes() {
    local version
    version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' "tests/services/$1.pom.xml")
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/outboxd/$1-$version"
}

# Of the servers that are Java's, those that no address is given for.
java_servers() {
    [ -n "${OUTBOXD_TEST_ROCKETMQ:-}" ] || echo rocketmq
    [ -n "${OUTBOXD_TEST_KAFKA:-}" ] || echo kafka
}

# What is missing, as Debian's package names, one a line.
missing_packages() {
    local version
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    "$python" -c 'import venv, ensurepip' 2>/dev/null || echo "$version-venv"
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo "$version-dev"
    command -v gcc >/dev/null || echo gcc
    [ -e /usr/include/stdio.h ] || echo libc6-dev
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists mysqlclient 2>/dev/null || pkg-config --exists libmariadb 2>/dev/null || echo libmariadb-dev
    case $mode in
        example) missing_servers "${EXAMPLE_MYSQL_URL:-}" "${EXAMPLE_REDIS_URL:-}" ;;
        test) missing_servers "${OUTBOXD_TEST_MYSQL_URL:-}" "" && missing_tools ;;
    esac
}

# missing_servers MYSQL_URL REDIS_URL: those that no address is given for.
missing_servers() {
    if [ -z "$1" ]; then
        # the -core packages: the programs alone, without a service of the system's
        command -v mariadbd >/dev/null || command -v mysqld >/dev/null || echo mariadb-server-core mariadb-client-core
    fi
    [ -n "$2" ] || command -v redis-server >/dev/null || echo redis-server
}

missing_tools() {
    local name
    command -v nginx >/dev/null || echo nginx
    command -v openssl >/dev/null || echo openssl
    command -v faketime >/dev/null || echo faketime
    [ -x /bin/kill ] || echo procps # the unit file names it
    command -v systemd-analyze >/dev/null || echo systemd # it checks our unit file; nothing of it is started
    command -v promtool >/dev/null || echo prometheus
    for name in $(java_servers); do
        command -v java >/dev/null || echo default-jre-headless
        [ -d "$(java_classes "$name")" ] || command -v mvn >/dev/null || echo maven
    done
}

apt_install() ( # in a shell of its own, for the trap
    export DEBIAN_FRONTEND=noninteractive
    policy=/usr/sbin/policy-rc.d new=()
    for name in nginx prometheus redis-server; do # their packages bring a service each
        command -v "$name" >/dev/null || new+=("$name")
    done
    if [ ! -e "$policy" ]; then # Debian's way to say that an installation may start no service
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get -qq -o DPkg::Lock::Timeout=300 update || exit
    apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold install --no-install-recommends "$@" || exit
    [ -d /run/systemd/system ] || return 0
    for name in "${new[@]}"; do
        if command -v "$name" >/dev/null; then
            systemctl disable --quiet "$name" # nor may it start at the next boot
        fi
    done
)

install_packages() {
    local missing
    missing=$(missing_packages | sort -u | xargs)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "missing here: $missing" "Install them, then run make again. On Debian or Ubuntu:" "    sudo apt-get install $missing"
    fi
    # shellcheck disable=SC2086 # one word a package
    quietly "installing system packages: $missing" apt_install $missing
    missing=$(missing_packages | sort -u | xargs)
    [ -z "$missing" ] || fail "still missing after their installation: $missing" \
        "(a Python that is not Debian's brings its own venv and headers: name another one with PYTHON=)"
}

# The environment is made anew when the Python, the place or what setup.cfg asks for has changed.
make_environment() {
    local wanted
    wanted=$({ "$python" -VV && pwd && cat setup.cfg pyproject.toml; } | sha256sum)
    made() { [ "$(cat ".venv/ready-to-$1" 2>/dev/null)" = "$wanted" ]; }
    if made test || made "$mode"; then return; fi
    if ! made run && ! made example; then
        quietly "making the virtual environment .venv" "$python" -m venv --clear .venv
    fi
    if [ "$mode" != run ]; then
        quietly "installing outboxd and the tests' tools into .venv" .venv/bin/python -m pip install --quiet --editable '.[test]'
    else
        quietly "installing outboxd into .venv" .venv/bin/python -m pip install --quiet --editable .
    fi
    echo "$wanted" >".venv/ready-to-$mode"
}

download_java_servers() {
    local name classes new
    [ "$mode" = test ] || return 0
    for name in $(java_servers); do
        classes=$(java_classes "$name")
        [ ! -d "$classes" ] || continue
        mkdir -p "${classes%/*}"
        new=$(mktemp -d "$classes.XXXXXX") # half a download is not taken for a whole one
        quietly "downloading ${classes##*/}" mvn -q -B -f "tests/services/$name.pom.xml" dependency:copy-dependencies \
            -DincludeScope=runtime "-DoutputDirectory=$new"
        mv -T "$new" "$classes"
    done
}

python=$(find_python)
if [ "$mode" = python ]; then
    install_packages >&2
    echo "$python"
else
    install_packages
    make_environment
    download_java_servers
fi
