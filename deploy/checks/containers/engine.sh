# A Docker engine of its own: its socket and data are below $scratch, its bridges, published ports and rules of iptables in a
# network namespace. What is left of it on the machine meanwhile is one link, one rule of iptables and ip_forward.
# Sourced by run.sh.

namespace=tidelog-containers-$$
outer_link=tlc$$
inner_address=10.213.77.2
outer_address=10.213.77.1

# in_namespace COMMAND...: run a command in the network of the engine. Not `ip netns exec`: it hides the cgroups.
in_namespace() {
  nsenter --net="/run/netns/$namespace" "$@"
}

docker() {
  command docker --host "unix://$scratch/docker.sock" "$@"
}

# start_engine: return once the engine answers, or give up with the reason.
start_engine() {
  local give_up_at
  make_network || not_run "a network namespace with a way out cannot be made here"
  # Not by way of a function, whose process id would be that of a shell.
  nsenter --net="/run/netns/$namespace" dockerd --data-root "$scratch/data" --exec-root "$scratch/exec" --pidfile "$scratch/docker.pid" \
    --host "unix://$scratch/docker.sock" >"$scratch/dockerd.log" 2>&1 &
  engine=$!
  # Counted from here: a first run builds Compose before, which takes minutes.
  give_up_at=$((SECONDS + 60))
  until docker version >/dev/null 2>&1; do
    if ! kill -0 "$engine" 2>/dev/null || [ "$SECONDS" -gt "$give_up_at" ]; then
      not_run "dockerd does not start: $(tail --lines=1 "$scratch/dockerd.log")"
    fi
    sleep 0.2
  done
  docker info --format 'engine {{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}'
}

make_network() {
  forwarding=$(cat /proc/sys/net/ipv4/ip_forward)
  ip netns add "$namespace" &&
    ip link add "$outer_link" type veth peer name uplink netns "$namespace" &&
    ip address add "$outer_address/30" dev "$outer_link" &&
    ip link set "$outer_link" up &&
    ip -netns "$namespace" link set lo up &&
    ip -netns "$namespace" address add "$inner_address/30" dev uplink &&
    ip -netns "$namespace" link set uplink up &&
    ip -netns "$namespace" route add default via "$outer_address" &&
    echo 1 >/proc/sys/net/ipv4/ip_forward &&
    iptables --table nat --append POSTROUTING --source "$inner_address" --jump MASQUERADE
}

# stop_engine: end the engine with all containers, and take its network away. Works at any point of a start.
stop_engine() {
  if [ -n "${engine:-}" ]; then
    for container in $(docker ps --quiet --all 2>/dev/null); do
      docker rm --force "$container" >/dev/null 2>&1 || true
    done
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  if [ -e "/run/netns/$namespace" ]; then
    iptables --table nat --delete POSTROUTING --source "$inner_address" --jump MASQUERADE 2>/dev/null || true
    echo "$forwarding" >/proc/sys/net/ipv4/ip_forward
    ip link delete "$outer_link" 2>/dev/null || true
    ip netns delete "$namespace"
  fi
  awk -v folder="$scratch/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort --reverse |
    xargs --no-run-if-empty umount
}
