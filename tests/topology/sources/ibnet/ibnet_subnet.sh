#!/bin/sh
# ibnet_subnet.sh NETLIST NODE COMMAND...: runs COMMAND on an emulated InfiniBand subnet: ibsim with the
# netlist, brought up by opensm (unless NO_SUBNET_MANAGER is set), seen from the adapter NODE
# ("H-0000000000100000"). Wants an empty folder, and a network namespace of its own (unshare -n), because ibsim's
# socket has one name.
set -eu
netlist=$1
export SIM_HOST=$2
shift 2
timeout 120 ibsim -s -n -S 512 -N 4096 -P 60000 "$netlist" </dev/null >ibsim.log 2>&1 &
ibsim=$!
trap 'kill $ibsim 2>/dev/null || true' EXIT
tries=0
until grep -q '@sim' /proc/net/unix; do
  tries=$((tries + 1))
  if [ $tries -gt 100 ] || ! kill -0 $ibsim 2>/dev/null; then
    echo "ibsim does not listen:" >&2
    tail -n 5 ibsim.log >&2
    exit 3
  fi
  sleep 0.1
done
if [ -z "${NO_SUBNET_MANAGER:-}" ]; then
  OSM_CACHE_DIR=. OSM_TMP_DIR=. timeout 60 ibsim-run opensm -R ftree -o -f opensm.log >opensm.out 2>&1 || {
    echo "opensm failed:" >&2
    tail -n 5 opensm.out >&2
    exit 3
  }
fi
timeout 60 ibsim-run "$@"
