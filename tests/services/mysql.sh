#!/usr/bin/env bash
# Runs a command beside Oracle's MySQL, as Debian's unstable branch builds it, in a private folder: the system's own
# packages, libraries and services stay untouched. OUTBOXD_TEST_MYSQL_URL names the server for the command.
#
#   tests/services/mysql.sh COMMAND...
#
# On amd64 Debian or Ubuntu, with the server's packages from the mirror that apt is set up for; they are kept in the cache.
set -euo pipefail
export LC_ALL=C
base="${XDG_CACHE_HOME:-$HOME/.cache}/outboxd/mysql"
programs="$base/root"
run=$(mktemp -d)
trap 'stop; rm -rf "$run"' EXIT

# The server brings its own C library, which the system's may be too old for.
with_its_library() {
    local program=$1
    shift
    "$programs/lib64/ld-linux-x86-64.so.2" --library-path "$programs/usr/lib/x86_64-linux-gnu" "$programs/usr/$program" --no-defaults "$@"
}

download() {
    local apt="$base/apt" mirror package folder
    rm -rf "$apt" "$programs.new"
    mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial "$programs.new"/usr/{lib,lib64,bin,sbin}
    mirror=$(apt-get update --print-uris | sed -n "s#^'\(.*\)/dists/[a-z]*/InRelease'.*#\1#p" | head -1)
    echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
    # perl is 10 MB for two programs that nobody calls here
    printf '%s\n' 'Package: perl' 'Status: install ok installed' 'Maintainer: none' 'Architecture: amd64' \
        'Multi-Arch: allowed' 'Version: 99' 'Description: stand-in' '' >"$apt/status"
    cat >"$apt/apt.conf" <<CONF
Dir::State "$apt/state"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root"; APT::Install-Recommends "false"; Acquire::Languages "none";
CONF
    APT_CONFIG="$apt/apt.conf" apt-get -qq update
    APT_CONFIG="$apt/apt.conf" apt-get -qq -y --download-only install mysql-server-core mysql-client-core
    for folder in lib lib64 bin sbin; do ln -s "usr/$folder" "$programs.new/$folder"; done
    for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$programs.new"; done
    mv "$programs.new" "$programs"
    rm -rf "$apt"
}

# free_port: one below those that clients are given.
free_port() { python3 -c 'from tests.services.find import free_port; print(free_port())'; }

start() {
    local port=$1 options tries
    options=(--user="$(id -un)" --basedir="$programs/usr" --datadir="$run/data" --plugin-dir="$programs/usr/lib/mysql/plugin"
        --lc-messages-dir="$programs/usr/share/mysql" --character-sets-dir="$programs/usr/share/mysql/charsets")
    with_its_library sbin/mysqld "${options[@]}" --initialize-insecure >"$run/log" 2>&1 || fail
    with_its_library sbin/mysqld "${options[@]}" --socket="$run/sock" --pid-file="$run/pid" --bind-address=127.0.0.1 \
        --port="$port" --mysqlx=OFF --secure-file-priv=NULL --default-time-zone=-08:00 --innodb-flush-log-at-trx-commit=2 \
        --innodb-buffer-pool-size=512M </dev/null >>"$run/log" 2>&1 &
    for tries in $(seq 300); do
        if with_its_library bin/mysqladmin -uroot -S "$run/sock" ping >/dev/null 2>&1; then
            with_its_library bin/mysql -uroot -S "$run/sock" -e \
                "CREATE USER root@127.0.0.1; GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION"
            return
        fi
        kill -0 $! 2>/dev/null || break
        sleep 0.2
    done
    fail
}

fail() {
    tail -20 "$run/log" >&2
    echo "mysql: the server did not start, see above" >&2
    exit 1
}

stop() {
    local pid tries
    [ -f "$run/pid" ] || return 0
    pid=$(cat "$run/pid")
    kill "$pid" 2>/dev/null || return 0
    for tries in $(seq 300); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -9 "$pid"
}

cd "$(dirname "$0")/../.."
mkdir -p "$base"
[ -x "$programs/usr/sbin/mysqld" ] || { echo "downloading MySQL ..." && download; }
port=$(free_port)
start "$port"
with_its_library sbin/mysqld --version | sed 's/.*Ver /MySQL /'
OUTBOXD_TEST_MYSQL_URL="mysql://root@127.0.0.1:$port" "$@"
