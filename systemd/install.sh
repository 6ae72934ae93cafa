#!/usr/bin/env bash
# Installs outboxd from this tree as a service of the machine, upgrades it, removes it. `make install` calls it.
#
#   systemd/install.sh install      into a virtual environment of its own; run again it upgrades
#   systemd/install.sh uninstall    removes what it installed; configuration and data stay
#
# PREFIX (/opt/outboxd) names the place of the environment, DESTDIR a folder that stands for /, PYTHON the Python to use.
# It starts, stops and enables nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022 # whatever root's is: the service runs as a user of its own
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
prefix=${PREFIX:-/opt/outboxd} destdir=${DESTDIR:-}
destdir=${destdir%/} prefix=${prefix%/}

environment=$destdir$prefix
marker=$environment/installed-by-make # without it nothing in PREFIX is touched
settings=$destdir/etc/outboxd
units=$destdir/etc/systemd/system
command=$destdir/usr/local/bin/outboxd
is_upgrade=

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

check_places() {
    local place
    for place in "$prefix" ${destdir:+"$destdir"}; do # they end up in a unit file and in first lines of scripts
        [[ $place =~ ^/[A-Za-z0-9._/-]+$ ]] || fail "PREFIX and DESTDIR must be absolute paths of letters, digits and ._/-, not: $place"
    done
    for place in "$environment" "$settings" "$units" "$(dirname "$command")"; do
        while [ ! -e "$place" ]; do place=$(dirname "$place"); done
        [ -w "$place" ] || fail "may not write to $place" "Run make as root (sudo make ...), or name a folder of yours that stands for /: DESTDIR=..."
    done
}

# The service sees no home directories, so its Python must not be in one.
find_python() {
    local base
    python=$(tests/services/install.sh python)
    base=$("$python" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))')
    [[ -n $destdir || ! $base =~ ^/(root|home|run/user)/ ]] ||
        fail "$python is in $base, where the service cannot reach it" "Name one of the system's: make install PYTHON=/usr/bin/python3"
}

make_environment() {
    if [ -e "$environment" ] && [ ! -e "$marker" ] && [ -n "$(ls -A "$environment")" ]; then
        fail "$environment is not empty and was not made by make install" "Remove it, or name another place: PREFIX=..."
    fi
    if [ "$("$environment/bin/python" -VV 2>/dev/null)" != "$("$python" -VV)" ]; then
        echo "making a virtual environment in $environment"
        "$python" -m venv --clear "$environment"
        touch "$marker"
    fi
}

install_package() (
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/tree" # a copy: nothing is left behind in the tree, and nothing gets in that was left there
    cp -R outboxd LICENSE MANIFEST.in README.md pyproject.toml setup.cfg "$work/tree"
    echo "building outboxd"
    "$environment/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$work/tree"
    echo "installing it and what it needs"
    wheel=$(echo "$work"/*.whl)
    "$environment/bin/python" -m pip install --quiet "$wheel${EXTRAS:+[$EXTRAS]}"
    if [ -n "$is_upgrade" ]; then # pip leaves a package alone whose version has not changed
        "$environment/bin/python" -m pip install --quiet --no-deps --force-reinstall "$work"/*.whl
    fi
    if [ -n "$destdir" ]; then # what names its own place names the later one
        grep -rlIF "$environment" "$environment/bin" "$environment/pyvenv.cfg" | xargs -r sed -i "s|$environment|$prefix|g"
    fi
)

install_unit() {
    local new
    new=$(mktemp)
    sed "s|/opt/outboxd|$prefix|g" systemd/outboxd.service >"$new"
    mkdir -p "$units/outboxd.service.d"
    if [ -e "$units/outboxd.service" ] && ! cmp -s "$new" "$units/outboxd.service"; then
        cp -p "$units/outboxd.service" "$units/outboxd.service.old"
        echo "replacing $units/outboxd.service; the one before is outboxd.service.old"
    fi
    install -m 644 "$new" "$units/outboxd.service"
    install -m 644 systemd/outboxd.service.d/*.conf.example "$units/outboxd.service.d"
    rm -f "$new"
}

install_settings() {
    mkdir -p "$settings"
    install -m 644 etc/outbox.systemd.yaml "$settings/outbox.yaml.example"
    if [ -e "$settings/outbox.yaml" ]; then
        echo "leaving $settings/outbox.yaml as it is; the example beside it is new"
    else
        install -m 644 etc/outbox.systemd.yaml "$settings/outbox.yaml"
    fi
}

install_command() {
    mkdir -p "$(dirname "$command")"
    if [ -e "$command" ] && [ "$(readlink "$command")" != "$prefix/bin/outboxd" ]; then
        echo "leaving $command as it is, since it is not ours; the command is $prefix/bin/outboxd"
    else
        ln -sfn "$prefix/bin/outboxd" "$command"
    fi
}

install_all() {
    check_places
    [ ! -e "$marker" ] || is_upgrade=yes
    find_python
    make_environment
    install_package
    install_unit
    install_settings
    install_command
    echo "installed: $("$environment/bin/python" -P -m outboxd --version), in $environment"
    if [ -n "$is_upgrade" ]; then
        printf '%s\n' "Next, at once, since a worker that is replaced meanwhile runs the new code under the old supervisor:" \
            "    systemctl daemon-reload && systemctl restart outboxd"
    else
        printf '%s\n' "Next:" \
            "    edit /etc/outboxd/outbox.yaml" \
            "    outboxd --config /etc/outboxd/outbox.yaml init-db" \
            "    outboxd --config /etc/outboxd/outbox.yaml check" \
            "    systemctl daemon-reload && systemctl enable --now outboxd"
    fi
}

uninstall_all() {
    check_places
    [ -e "$marker" ] || fail "nothing that make install has made is in $environment" "If it is elsewhere, name the place: PREFIX=..."
    if [ -z "$destdir" ] && [ -d /run/systemd/system ] && systemctl is-active --quiet outboxd; then
        fail "outboxd is running" "Stop it first: systemctl disable --now outboxd"
    fi
    [ "$(readlink "$command")" != "$prefix/bin/outboxd" ] || rm -f "$command"
    rm -f "$units/outboxd.service" "$units/outboxd.service.old" "$units"/outboxd.service.d/*.conf.example "$settings/outbox.yaml.example"
    rmdir --ignore-fail-on-non-empty "$units/outboxd.service.d" 2>/dev/null || true
    rm -rf "$environment"
    printf '%s\n' "removed. Next:" "    systemctl daemon-reload" \
        "What is yours is left: $settings, your drop-ins in $units/outboxd.service.d, and data in /var/lib/private/outboxd."
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) fail "usage: systemd/install.sh install|uninstall" ;;
esac
