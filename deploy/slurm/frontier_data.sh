#!/usr/bin/env bash
# Fetches what configs/llama3/llama3_8b_frontier.toml reads, where there is a network (a login or data-transfer node); compute nodes need none.
# A fetch that was interrupted goes on. The whole sets have tens of terabytes: give patterns after the folder to take a part.
#
#   HF_TOKEN=... deploy/slurm/frontier_data.sh [DATA_FOLDER] [PATTERN ...]        DATA_FOLDER: default ./data
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
titanium=${TITANIUM:-build/titanium}
folder=${1:-data}
shift || true
patterns=()
for pattern in "$@"; do patterns+=(--include "$pattern"); done

"$titanium" download meta-llama/Llama-3.1-8B --assets tokenizer config
while read -r name repository; do
  "$titanium" download "$repository" --repo-type dataset --local-dir "$folder/$name" "${patterns[@]}"
done <<'SETS'
dclm mlfoundations/dclm-baseline-1.0
fineweb-edu HuggingFaceFW/fineweb-edu
zyda Zyphra/Zyda
finemath HuggingFaceTB/finemath
SETS
echo "Two sets of the mix are not on the hub as files: Dolma ($folder/dolma) is a list of addresses in allenai/dolma, and of The Stack v2" \
  "($folder/the-stack-v2) there are identifiers whose contents Software Heritage gives. Put their JSON lines or Parquet files there, or drop them from the mix."
