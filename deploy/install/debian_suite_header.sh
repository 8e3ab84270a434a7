#!/usr/bin/env bash
# Unpacks a header-only Debian package that the installed suite lacks, without touching the system's package sources:
#   debian_suite_header.sh PACKAGE FOLDER [SUITE...]        headers land in FOLDER/usr/include
# Suites are tried in order (default: forky sid), through the mirror this machine is set up for. Writes nothing on failure.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: debian_suite_header.sh PACKAGE FOLDER [SUITE...]" >&2
  exit 2
fi
package=$1 folder=$2
shift 2
if [ $# -eq 0 ]; then set -- forky sid; fi
suites=("$@")

private=$(mktemp -d)
trap 'rm -rf "$private"' EXIT

# The first mirror named in either format of source lists; a machine may have only one of them.
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } |
  sed -nE 's/^(URIs:|deb( \[[^]]*\])?) +([^ ]+).*/\3/p' | head -n 1)
if [ -z "$mirror" ]; then
  echo "debian_suite_header.sh: no mirror in /etc/apt/sources.list or /etc/apt/sources.list.d;" \
    "unpack $package into $folder by hand" >&2
  exit 1
fi

try_suite() {
  local suite=$1 root="$private/$1"
  mkdir -p "$root"/{lists/partial,cache/archives/partial,unpacked}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$root/sources.list"
  # Signatures are checked; only the date is not, because a mirror that lags behind still serves what we want.
  local options=(-o Acquire::Check-Valid-Until=false -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=/dev/null
                 -o Dir::State::Lists="$root/lists" -o Dir::Cache="$root/cache" -o APT::Sandbox::User= -qq)
  apt-get "${options[@]}" -o APT::Update::Error-Mode=any update || return 1
  (cd "$root" && apt-get "${options[@]}" download "$package") || return 1
  dpkg-deb -x "$root/$package"_*.deb "$root/unpacked" || return 1
  mkdir -p "$folder" && cp -R "$root/unpacked/." "$folder/"
}

for suite in "${suites[@]}"; do
  if try_suite "$suite" 2>"$private/$suite.log"; then
    echo "debian_suite_header.sh: $package from $suite is in $folder"
    exit 0
  fi
done

echo "debian_suite_header.sh: $package is in none of the suites ${suites[*]} of $mirror;" \
  "unpack that package (or its headers) into $folder/usr/include by hand. What apt said:" >&2
cat "$private"/*.log >&2
exit 1
