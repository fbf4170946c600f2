#!/usr/bin/env bash
# Tries the image's last stage without a container runtime: a fresh Debian 12 (debootstrap, variant minbase, as debian:12-slim is) with
# the packages that the stage installs, what collect_image.sh collects from a build folder, and check_inside.sh in it as a user without
# rights. Needs root and Debian's mirror.
#
#   deploy/kubernetes/try_image.sh [BUILD]                  BUILD is a build folder (default: build-release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build-release}
root=$(mktemp -d "${TMPDIR:-/var/tmp}/titanium_image.XXXXXX")
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# The packages that the last stage installs.
packages=$(sed -n '/^FROM debian:12-slim/,$ s/.*apt-get install .*--no-install-recommends \([^&]*[^& ]\) .*/\1/p' deploy/kubernetes/Dockerfile)
debootstrap --variant=minbase --include="${packages// /,}" bookworm "$root" ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 || { tail -5 "$root.log"; exit 1; }
rm -f "$root.log"
deploy/kubernetes/collect_image.sh "$root" "$build"
mount -t proc proc "$root/proc" # the program finds its plug-in beside itself through it
trap 'umount "$root/proc"; rm -rf "$root"' EXIT
chroot --userspec=1000:1000 "$root" env -i PATH=/usr/bin:/bin HOME=/tmp TITANIUM=/app/titanium LD_LIBRARY_PATH=/app/lib \
  bash -c "$(cat deploy/kubernetes/check_inside.sh)"
echo "The image works: $(du -shx --apparent-size "$root" | cut -f1), of which /app $(du -sh "$root/app" | cut -f1)"
