#!/usr/bin/env bash
# Tries the image's last stage without a container runtime: a fresh Debian 12 (debootstrap, variant minbase, as debian:12-slim is),
# what collect_image.sh collects from a build folder, and two steps of the debug model in it as a user without rights. Needs root and
# Debian's mirror.
#
#   deploy/kubernetes/try_image.sh [BUILD]                  BUILD is a build folder (default: build-release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build-release}
root=$(mktemp -d "${TMPDIR:-/var/tmp}/titanium_image.XXXXXX")
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

debootstrap --variant=minbase bookworm "$root" ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 || { tail -5 "$root.log"; exit 1; }
rm -f "$root.log"
deploy/kubernetes/collect_image.sh "$root" "$build"
for program in python3 gcc g++ cc nvcc; do
  if chroot "$root" sh -c "command -v $program" >/dev/null; then echo "the image has $program"; exit 1; fi
done
chroot --userspec=1000:1000 "$root" env -i PATH=/usr/bin:/bin HOME=/tmp TITANIUM=/app/titanium LD_LIBRARY_PATH=/app/lib OMP_NUM_THREADS=1 \
  bash -c 'cd /app && exec ./run_train.sh --job.dump_folder=/tmp/outputs --training.steps 2 --training.seq_len 64 --training.local_batch_size 1'
chroot --userspec=1000:1000 "$root" env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH=/app/lib /app/titanium --version
echo "The image works: $(du -sh --apparent-size "$root" | cut -f1), of which /app $(du -sh "$root/app" | cut -f1)"
