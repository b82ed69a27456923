# What each profile must do once its containers run. Sourced by run.sh.

nodes=(127.0.0.1:7431 127.0.0.1:7432 127.0.0.1:7433)
channels=(channel-0 channel-1 channel-2 channel-3 channel-4 channel-5)

check_profiles() {
  say "profile default: build, start, append, restart, back up"
  check_default
  say "profile etcd: three nodes, channels on each, one killed and started again"
  check_etcd
  say "profile observability: targets, and the alert of a stopped node"
  check_observability
  say "profile spark: the job reads the log"
  check_spark
  say "profile tls: another machine connects with a token and the authority"
  check_tls
}

# compose ARGUMENT...: Compose itself, on our engine. For an engine before 25, with the file for those.
compose() {
  local files=(--file docker-compose.yml) version
  version=$(docker version --format '{{.Server.Version}}')
  [ "${version%%.*}" -ge 25 ] || files+=(--file docker-compose.old-engine.yml)
  (cd "$root/deploy" && DOCKER_HOST=unix://$scratch/docker.sock "$compose_program" "${files[@]}" "$@")
}

# build_through_proxies PROFILE SERVICE: build an image with this machine's proxies, if it has any. Without, `up` builds it.
build_through_proxies() {
  [ "${#proxies[@]}" -gt 0 ] || return 0
  compose --profile "$1" build "${proxies[@]}" "$2" >"$scratch/build.log" 2>&1 || {
    cat "$scratch/build.log" >&2
    return 1
  }
}

# up PROFILE SERVICE...: start services and wait until they are healthy; shows what went wrong, if anything.
up() {
  local profile=$1
  shift
  compose --profile "$profile" --progress plain up --detach --wait --wait-timeout 240 "$@" >"$scratch/up.log" 2>&1 || {
    cat "$scratch/up.log" >&2
    compose --profile "$profile" ps --all >&2
    compose --profile "$profile" logs --tail 20 >&2
    return 1
  }
  ! grep 'Pulling' "$scratch/up.log" || fail "up asked a registry for an image that is built here"
}

# fail TEXT: what was seen is wrong.
fail() {
  echo "check-containers: $*" >&2
  exit 1
}

# expect TEXT COMMAND...: compare what a command prints.
expect() {
  local expected=$1 printed
  shift
  printed=$("$@")
  [ "$printed" = "$expected" ] || fail "$* printed '$printed', expected '$expected'"
}

# tidelog ARGUMENT...: the command line of this checkout, as a client on the machine that runs the containers.
tidelog() {
  in_namespace "$root/.venv/bin/tidelog" "$@"
}

# cluster_client ARGUMENT...: append or read with the cluster client that the tests use too.
cluster_client() {
  in_namespace env PYTHONPATH="$root/tests" "$root/.venv/bin/python" -m tidelog_testing.loads.cluster_client "$@"
}

check_default() {
  build_through_proxies default tidelog
  up default
  tidelog channel create orders --vchannels 2 >/dev/null
  printf 'one\nthree\n' | tidelog append orders/1 >/dev/null
  compose --progress quiet restart tidelog 2>/dev/null
  up default
  expect $'one\nthree' tidelog scan orders --output text
  compose exec --no-TTY tidelog tidelog backup create /backups >/dev/null
  compose exec --no-TTY tidelog tidelog backup verify /backups >/dev/null
  compose exec --no-TTY tidelog tidelog check backup /backups --max-age 1h
  printf 'later\n' | tidelog append orders/0 >/dev/null
  compose --progress quiet stop tidelog
  compose --progress quiet run --rm --no-deps --no-TTY --entrypoint sh tidelog -c \
    'cd /var/lib/tidelog && mv data data.before && tidelog backup restore /backups data' >/dev/null
  up default
  expect $'one\nthree' tidelog scan orders --output text
}

check_etcd() {
  local owners node address leader other
  build_through_proxies etcd etcd
  up etcd
  owners=$(cluster_client append "${nodes[0]}" first "${channels[@]}")
  for node in "${nodes[@]}"; do
    [ "$(grep --only-matching "$node" <<<"$owners" | wc --lines)" -eq 2 ] || fail "not two channels on each node: $owners"
    all_have '["first"]' "$node"
  done
  tidelog cluster ls --endpoint "${nodes[0]}" --output text | tee "$scratch/nodes"
  ! grep --fixed-strings 0.0.0.0 "$scratch/nodes" || fail "a node is listed at 0.0.0.0"

  # The leader, whose ticks the others need, and any other node.
  read -r leader address _ < <(awk '$5 == "yes"' "$scratch/nodes")
  other=$(awk '$5 == "no" { print $2; exit }' "$scratch/nodes")
  compose --profile etcd --progress quiet kill --signal KILL "$leader"
  # Until its lease is over, there is no other leader.
  until [ "$(tidelog cluster ls --endpoint "$other" --output text | awk '$5 == "yes" { print $1 }')" != "$leader" ]; do
    still_in_time
  done
  cluster_client append "$other" second "$(owned_by "$other" "$owners")" >/dev/null
  up etcd "$leader"
  cluster_client append "$other" third "${channels[@]}" >/dev/null
  for node in "${nodes[@]}"; do
    expect '["first", "second", "third"]' payloads "$node" "$(owned_by "$other" "$owners")"
    expect '["first", "third"]' payloads "$node" "$(owned_by "$address" "$owners")"
  done
  say "killed $leader, which led; all messages are there"
}

# all_have PAYLOADS NODE
all_have() {
  local name
  for name in "${channels[@]}"; do
    expect "$1" payloads "$2" "$name"
  done
}

# payloads NODE CHANNEL: what a channel has, asked at a node.
payloads() {
  cluster_client read "$1" "$2" | sed --expression='s/^{"[^"]*": //; s/}$//'
}

# owned_by NODE OWNERS: the first channel of a node.
owned_by() {
  grep --only-matching --perl-regexp "\"[^\"]+\"(?=: \"$1\")" <<<"$2" | head --lines=1 | tr --delete '"'
}

check_observability() {
  # Grafana has no package of Debian, so there is no image of it here: tests/deploy looks at what it is given.
  up observability prometheus
  until [ "$(query 'count(up{job="tidelog"} == 1)')" = 4 ]; do still_in_time; done
  compose --profile etcd --progress quiet stop node-3
  until [ "$(query 'count(ALERTS{alertname="TidelogDown", alertstate="firing", instance="node-3:7421"})')" = 1 ]; do
    still_in_time
  done
  up etcd node-3
  until [ -z "$(query 'ALERTS{alertname="TidelogDown"}')" ]; do still_in_time; done
  expect "" query 'ALERTS{alertname="TidelogBackupMissing"}'
}

# query EXPRESSION: the values that Prometheus has for it now.
query() {
  in_namespace curl --silent --fail --get --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query |
    "$root/.venv/bin/python" -c 'import json, sys; [print(each["value"][1]) for each in json.load(sys.stdin)["data"]["result"]]'
}

# still_in_time: wait a moment, or give up when the whole check takes too long.
still_in_time() {
  [ "$SECONDS" -lt 2400 ] || fail "waited too long"
  sleep 1
}

check_spark() {
  build_through_proxies spark spark
  compose --profile spark --progress quiet run --rm --no-TTY spark >"$scratch/spark.log" 2>&1 || {
    cat "$scratch/spark.log" >&2
    return 1
  }
  grep --quiet '^|orders *|1 *|2 *|8 ' "$scratch/spark.log" || fail "the job printed: $(cat "$scratch/spark.log")"
  grep '^[+|]' "$scratch/spark.log"
}

# The server is published at the address of the engine's network that this machine reaches: to it, this is another machine.
check_tls() {
  local endpoint=$inner_address:7440 token
  export TIDELOG_TLS_ADDRESS=$inner_address TIDELOG_TLS_NAMES=$inner_address
  up tls tidelog-tls
  compose --profile tls --progress quiet cp tidelog-tls:/etc/tidelog/certificates/authority.pem "$scratch/authority.pem"
  token=$(compose exec --no-TTY --env TIDELOG_TOKEN_FILE=/var/lib/tidelog/data/bootstrap-token tidelog-tls \
    tidelog token create clerk --allow 'channel.create:*' --allow 'append:*' --allow 'read:*' --output text | tail --lines=1)
  export TIDELOG_TLS_CA=$scratch/authority.pem
  local program=$root/.venv/bin/tidelog
  ! "$program" channel create parcels --endpoint "$endpoint" >/dev/null 2>&1 || fail "a client without a token was let in"
  TIDELOG_TOKEN=$token "$program" channel create parcels --endpoint "$endpoint" >/dev/null
  echo one | TIDELOG_TOKEN=$token "$program" append parcels --endpoint "$endpoint" >/dev/null
  expect one env TIDELOG_TOKEN="$token" "$program" scan parcels --endpoint "$endpoint" --output text
}
