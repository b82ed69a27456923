#!/usr/bin/env bash
# Runs the profiles of docker-compose.yml in real containers, on an engine of its own: `make check-containers`.
# Ends with 0 if all of them work, and with another code and a line "not run: REASON" where no engine can be started.
set -euo pipefail
cd "$(dirname "$0")"
checks=$PWD
root=$(cd ../../.. && pwd)
tools=$root/.venv/container-checks
. ./engine.sh
. ./images.sh
. ./profiles.sh

# say TEXT: one line of what is being checked, with the seconds since the start.
say() {
  printf '%4d s  %s\n' "$SECONDS" "$*"
}

# not_run REASON: give up, before anything was checked.
not_run() {
  echo "check-containers: not run: $*" >&2
  exit 69
}

# need PROGRAM PACKAGE: install a Debian package unless its program is there.
need() {
  command -v "$1" >/dev/null && return
  command -v apt-get >/dev/null || not_run "$1 is missing, and there is no apt-get to install $2 with"
  [ -n "${package_lists_are_fresh:-}" ] || apt-get update -qq || not_run "apt-get update failed"
  package_lists_are_fresh=yes
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$2" </dev/null >/dev/null ||
    not_run "the package $2 cannot be installed"
}

# need_compose: build Compose, whose version is pinned here, unless it is there.
need_compose() {
  compose_program=$tools/bin/cmd
  [ -x "$compose_program" ] && return
  command -v go >/dev/null || not_run "go is missing: install Go 1.21 or newer, it builds Compose"
  GOBIN=$tools/bin go install github.com/docker/compose/v2/cmd@v2.32.4 || not_run "Compose cannot be built"
}

[ "$(id -u)" -eq 0 ] || not_run "this is not root, and an engine needs root"
need docker docker.io
need dockerd docker.io
need docker-init tini
need debootstrap debootstrap
need iptables iptables
need ip iproute2
need curl curl
need_compose

scratch=$(mktemp --directory -t tidelog-containers.XXXXXX)
trap 'stop_engine; rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM

say "an engine of its own"
start_engine
say "base images"
make_base_images
check_profiles
say "all profiles work"
