#!/usr/bin/env bash
# Checks the files of deploy/ with the tools of those who will read them. Ends at the first one that complains.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/../.venv/deploy-checks/bin
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT

# need PROGRAM PACKAGE
need() {
  command -v "$1" >/dev/null || { echo "$1 is missing: install the Debian package $2, or see checks/README.md" >&2; exit 1; }
}
need promtool prometheus
need systemd-analyze systemd

echo "Dockerfiles"
"$tools/hadolint" Dockerfile etcd/Dockerfile
"$tools/hadolint" --ignore DL3006 --ignore DL3008 checks/containers/*.Dockerfile

echo "docker-compose.yml"
for profile in "" etcd kafka pulsar observability spark tls "*"; do
  COMPOSE_PROFILES=$profile "$tools/cmd" docker-compose.yml >"$scratch/compose.yml" || {
    cat "$scratch/compose.yml" >&2
    exit 1
  }
done
if docker compose version >/dev/null 2>&1; then
  docker compose --profile "*" --file docker-compose.yml config --quiet
fi

echo "Kubernetes"
for folder in base overlays/etcd overlays/tls; do
  "$tools/kustomize" build "kubernetes/$folder" >"$scratch/manifests.yml"
  for version in 1.29.0 1.33.0; do
    "$tools/kubernetes-validate" --strict --quiet --kubernetes-version "$version" "$scratch/manifests.yml"
  done
done

echo "Prometheus"
promtool check config --lint=all --lint-fatal prometheus/prometheus.yml
promtool check rules --lint=all --lint-fatal prometheus/alerts.yml
promtool test rules prometheus/alerts_test.yml

echo "systemd"
# The unit names a program and a user that only an installation has: verify it as it would look on this machine.
sed --expression='s,^ExecStart=/opt/tidelog/bin/tidelog,ExecStart=/bin/true,' \
  --expression='/^User=/d' --expression='/^Group=/d' systemd/tidelog.service >"$scratch/tidelog.service"
systemd-analyze verify --man=no "$scratch/tidelog.service"
systemd-analyze security --offline=true --threshold=15 --no-pager systemd/tidelog.service >"$scratch/exposure" || {
  cat "$scratch/exposure" >&2
  exit 1
}
tail --lines=1 "$scratch/exposure"
