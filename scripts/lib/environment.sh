# shellcheck shell=bash
# Sourced by the scripts beside this folder: brings up everything that the repository needs, once.
#
# Sets ROOT and VENV and defines `environment` (the Python environment), `debian_parts` (PostgreSQL, Open MPI, fuse3,
# rsync and the servers of stores, for the tests) and `cluster_parts` (the test cluster, built). A stamp in the environment, written last, says what it was made from: with a true stamp `environment`
# touches neither disk nor network, and an interrupted set-up is simply done again.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VENV=$ROOT/.venv

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    [ -z "${2:-}" ] || say "hint: $2"
    exit 1
}

# The first interpreter on the path that is new enough.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed, found $(python3 --version 2>/dev/null || echo none)" \
        "install it (Debian: apt-get install python3 python3-venv) and run this again"
}

# What the environment is made from, as one word: the lock, and what pyproject.toml says before the tools' own sections.
wanted_stamp() {
    { sed '/^\[tool\./,$d' "$ROOT/pyproject.toml" && cat "$ROOT"/requirements/*.txt; } | sha256sum | cut -d ' ' -f 1
}

environment() {
    local wanted stamp=
    wanted=$(wanted_stamp)
    [ ! -f "$VENV/stamp" ] || read -r stamp < "$VENV/stamp" || true
    if [ "$stamp" = "$wanted" ] && [ -x "$VENV/bin/python" ]; then
        bytecode
        return
    fi
    (
        exec 9< "$ROOT/requirements/lock.txt"
        flock 9 # two scripts started at once: the second waits, then finds the work done
        [ ! -f "$VENV/stamp" ] || read -r stamp < "$VENV/stamp" || true
        [ "$stamp" != "$wanted" ] || [ ! -x "$VENV/bin/python" ] || exit 0
        say "setting up the Python environment in $VENV"
        rm -f "$VENV/stamp"
        if ! "$VENV/bin/python" -m pip --version > /dev/null 2>&1; then
            "$(find_python)" -m venv --clear "$VENV" ||
                fail "no virtual environment could be made in $VENV" "Debian: apt-get install python3-venv"
        fi
        cd "$ROOT"
        # `set -e` does not count in front of the `||` below: each step says what follows from its failure
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/uv.txt &&
            "$VENV/bin/uv" pip sync --quiet --compile-bytecode --python "$VENV/bin/python" requirements/lock.txt requirements/editable.txt ||
            fail "the packages of requirements/lock.txt could not be installed, see above" "check the network and run this again"
        printf '%s\n' "$wanted" > "$VENV/stamp.new"
        mv "$VENV/stamp.new" "$VENV/stamp"
    ) || exit 1
    bytecode
}

# Where Python is told to write no bytecode (PYTHONDONTWRITEBYTECODE, as in many containers) every process would compile what it imports:
# half of the time of a command, and a second of each server's start. Only what changed is compiled.
bytecode() {
    "$VENV/bin/python" -m compileall -q "$ROOT/src" "$ROOT/tests" || true # a file that is wrong is the tests' to say
}

# PostgreSQL, Open MPI, fuse3, rsync, podman and the servers of stores from Debian, for the tests that need them. Their lack is said, and is no error here.
debian_parts() {
    local missing=()
    [ -n "$(command -v pg_ctl || ls -d /usr/lib/postgresql/*/bin/pg_ctl 2> /dev/null)" ] || missing+=(postgresql)
    command -v mpirun > /dev/null || missing+=(openmpi-bin)
    command -v fusermount3 > /dev/null || missing+=(fuse3)
    command -v rsync > /dev/null || missing+=(rsync)
    command -v vim > /dev/null || missing+=(vim)
    [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
    command -v glusterd > /dev/null && [ -x /sbin/mount.glusterfs ] || missing+=(glusterfs-server glusterfs-client)
    [ -x /usr/sbin/krb5kdc ] || missing+=(krb5-kdc)
    [ -x /usr/sbin/kadmin.local ] || missing+=(krb5-admin-server)
    command -v kinit > /dev/null || missing+=(krb5-user)
    command -v podman > /dev/null && command -v runc > /dev/null && command -v busybox > /dev/null ||
        missing+=(podman runc catatonit busybox-static)
    command -v mvn > /dev/null || missing+=(maven openjdk-17-jdk-headless)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        say "installing ${missing[*]}"
        if { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
            > /dev/null 2>&1; then return 0; fi
    fi
    say "not installed here: ${missing[*]}; tests that need them are skipped (Debian: apt-get install ${missing[*]})"
}

# The parts of the test cluster that tests use, built when the tests that these pytest arguments choose have use for them.
# The first time takes half an hour, later calls no time. Its lack is said, and is no error here.
cluster_parts() {
    local parts=(kube volcano kwok helm)
    [ "$(id -u)" != 0 ] || parts+=(node-images coredns python-image postgres-image operator-image argo)
    ! "$ROOT/scripts/cluster" build --check "${parts[@]}" 2> /dev/null || return 0
    "$VENV/bin/pytest" --collect-only -qq -p no:cacheprovider -m cluster "$@" > /dev/null 2>&1 || return 0
    say "building the test cluster's parts: ${parts[*]}"
    "$ROOT/scripts/cluster" build "${parts[@]}" || say "no test cluster here; tests that need one are skipped"
}
