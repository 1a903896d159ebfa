#!/usr/bin/env bash
# Fill build/arm64-libraries with Debian's libraries for arm64: downloaded and unpacked, nothing is installed and the
# machine's own package lists stay as they are. Done once per list of packages.
set -euo pipefail
cd "$(dirname "$0")/.."
list=tools/packages/arm64-libraries.txt
target=$PWD/build/arm64-libraries
stamp=$target/stamp
want=$(sha256sum <"$list")
[[ -f $stamp && $(<"$stamp") == "$want" ]] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists/partial,cache/archives/partial}
: >"$work/status"
chmod -R a+rX "$work"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
  -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache"
  -o Debug::NoLocking=1 -o APT::Install-Recommends=0)
mapfile -t packages < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$list")
printf '== downloading libraries for arm64: %s\n' "${packages[*]}"
"${apt[@]}" update
"${apt[@]}" --download-only --yes install "${packages[@]}" >/dev/null

rm -rf "$target"
mkdir -p "$target"
for archive in "$work"/cache/archives/*.deb; do
  case $(basename "$archive") in
    # The cross compiler brings these itself.
    libc6* | libc-dev* | libcrypt* | libgcc* | gcc-* | libstdc++* | linux-libc-dev*) continue ;;
  esac
  dpkg-deb --extract "$archive" "$target"
done
# One folder for both: packages still name /lib, and links in /usr/lib lead there.
cp -a "$target"/lib/. "$target"/usr/lib
rm -r "$target/lib"
find "$target" -type l -lname '/lib/*' -printf '%l %p\n' | while read -r to from; do ln -sfn "$target/usr$to" "$from"; done
printf '%s\n' "$want" >"$stamp"
