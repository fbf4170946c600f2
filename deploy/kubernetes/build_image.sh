#!/usr/bin/env bash
# Builds the image with buildah, without root and without a daemon, and trains two steps of the debug model in it on the CPU.
#
#   deploy/kubernetes/build_image.sh [BUILD]
#
# With a build folder only the last stage is built, of what collect_image.sh takes from that folder, or has taken into a folder called `image`; without one
# all stages are, which takes as long as a set-up and a release build; what did not change since the last time is not done again. Needs Debian's buildah and uidmap, and a user with ranges in /etc/subuid and /etc/subgid.
#
#   TAG          name of the image (default: titanium)
#   BASE         a tar of a Debian 12 root (debootstrap --variant=minbase bookworm) to take for debian:12 and debian:12-slim where no registry can be reached
#   CUDA         off: an image without GPU code (default: on)
#   CUDA_ARCHS   compute capabilities of its kernels, such as 90 (default: 80;90;100)
#   TRY          empty: the image is built and not tried (default: 1)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot} # needs no runtime
tag=${TAG:-titanium}
recipe=deploy/kubernetes/Dockerfile
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/titanium_image.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

if [ -n "${BASE:-}" ]; then
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$BASE" / >/dev/null
  for name in debian:12 debian:12-slim; do buildah commit --quiet "$container" "docker.io/library/$name" >/dev/null; done
  buildah rm "$container" >/dev/null
fi

if [ -n "${1:-}" ]; then
  files=$1
  if [ ! -x "$files/app/titanium" ]; then
    files=$scratch/image
    deploy/kubernetes/collect_image.sh "$files" "$1"
  fi
  sed -n '/^FROM debian:12-slim/,$p' "$recipe" >"$scratch/Dockerfile"
  buildah bud --pull-never --build-context "build=$(dirname "$files")" -f "$scratch/Dockerfile" -t "$tag" "$scratch"
else
  buildah bud --layers ${BASE:+--pull-never} ${CUDA:+--build-arg "CUDA=$CUDA"} ${CUDA_ARCHS:+--build-arg "CUDA_ARCHS=$CUDA_ARCHS"} -f "$recipe" --ignorefile "$recipe.dockerignore" -t "$tag" .
fi

[ -n "${TRY-1}" ] || exit 0
container=$(buildah from --pull-never "$tag")
trap 'buildah rm "$container" >/dev/null; rm -rf "$scratch"' EXIT
buildah run "$container" -- bash -c "$(cat deploy/kubernetes/check_inside.sh)"
echo "The image works: $(buildah images --format '{{.Size}}' "$tag")"
