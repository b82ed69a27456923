#!/usr/bin/env bash
# Installs what `make check-deploy` needs into .venv/deploy-checks. Quick when it is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$PWD/.venv/deploy-checks
requirements=deploy/checks/requirements.txt

if ! cmp --silent "$requirements" "$folder/requirements.txt"; then
  .venv/bin/python -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement "$requirements"
  cp "$requirements" "$folder/requirements.txt"
fi

# go_install PROGRAM MODULE@VERSION: PROGRAM is what the module's folder is called.
go_install() {
  [ -x "$folder/bin/$1" ] && return
  command -v go >/dev/null || { echo "go is missing: install Go 1.21 or newer, it builds $1" >&2; exit 1; }
  GOBIN=$folder/bin go install "$2"
}
go_install kustomize sigs.k8s.io/kustomize/kustomize/v5@v5.5.0
go_install cmd github.com/compose-spec/compose-go/v2/cmd@v2.4.7
