#!/usr/bin/env bash
# Installs the Debian packages named as arguments, if they are missing and this may be done; else says what to install.
# Used by the Makefile: `prometheus` (a real server scrapes the exporter in a test), `g++` (compiles NVIDIA's
# cuda_occupancy.h, an independent judge of the occupancy model), and a JVM with Maven (Kafka and Flink).
set -euo pipefail

# A package counts as there when its program is, however it came.
present() {
  case "$1" in
    openjdk-*) command -v java >/dev/null 2>&1 ;;
    maven) command -v mvn >/dev/null 2>&1 ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

missing=()
for package in "$@"; do
  present "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
  echo "Please install: ${missing[*]} (on Debian: sudo apt-get install --no-install-recommends ${missing[*]})" >&2
  exit 1
fi

# Debian starts a server as soon as its package is installed, here Prometheus on all interfaces. The tests start
# their own, on loopback: while we install, policy-rc.d forbids services to start (101). One that is there stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --quiet=2 --no-install-recommends "${missing[@]}")
# Package lists may be absent or old on a fresh machine: fetch them only when the first try says so.
"${install[@]}" >/dev/null 2>&1 || { apt-get update --quiet=2 && "${install[@]}" >/dev/null; }

for package in "${missing[@]}"; do
  present "$package" || { echo "$package was installed, but its program is not on PATH" >&2; exit 1; }
done
