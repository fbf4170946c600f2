# What an image of Titanium has to hold, looked at from inside of it: build_image.sh and try_image.sh hand this to its shell. Trains two
# steps of the debug model on the CPU.
set -euo pipefail
cd /app
fail() { echo "the image $*" >&2; exit 1; }

for program in python3 gcc g++ cc nvcc; do
  if command -v "$program" >/dev/null; then fail "has $program"; fi
done
[ "$(id -u)" = 1000 ] || fail "does not run as user 1000"
curl=$(ls /usr/lib/*/libcurl.so.4) || fail "has no libcurl, which addresses need"
if ldd titanium libtitanium_arrow.so "$curl" | grep 'not found'; then fail "lacks these libraries"; fi
[ -s /etc/ssl/certs/ca-certificates.crt ] || fail "has no certificates"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The plug-in refuses a table that is none; without it the sentence would be about the plug-in.
printf 'PAR1 is no table PAR1' >"$scratch/table.parquet"
refused=$(./titanium data inspect "$scratch/table.parquet" 2>&1) && fail "reads a table that is none"
[[ $refused != *plug-in* ]] || fail "reads no Parquet files: $refused"

OMP_NUM_THREADS=1 ./run_train.sh --job.dump_folder="$scratch/outputs" --training.steps 2 --training.seq_len 64 --training.local_batch_size 1
./titanium --version
