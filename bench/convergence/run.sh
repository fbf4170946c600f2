#!/usr/bin/env bash
# Trains the Llama of train.toml on text of gather_text.py, then lets it write. Chooses the number of steps so that training takes about
# SECONDS_OF_TRAINING on the device that is there, by the speed of 40 steps before.
#
#   bench/convergence/run.sh TEXT_FOLDER RESULT_FOLDER
#
#   TEXT_FOLDER     train.jsonl and validation.jsonl, plain or with .zst, and tokenizer.json
#   RESULT_FOLDER   gets metrics.jsonl, run.jsonl, samples.md, facts.md and the log of the run
#   TITANIUM        the program (default: build/titanium)
#   STEPS           fixes the number of steps and leaves the measurement out
set -euo pipefail
text=$(realpath "$1")
mkdir -p "$2"
result=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
titanium=${TITANIUM:-build/titanium}
seconds=${SECONDS_OF_TRAINING:-195}
config=bench/convergence/train.toml
work=outputs/convergence
rm -rf "$work"
mkdir -p "$work/assets"
cp "$text/tokenizer.json" "$text/tokenizer_config.json" bench/convergence/config.json "$work/assets/"

threads=$(nproc)
for part in train validation; do
  folder=$([ $part = train ] && echo tokens || echo validation_tokens)
  "$titanium" --quiet data prepare "$(ls "$text/$part".jsonl*)" --tokenizer "$work/assets" --out "$work/$folder" --threads "$threads" --shard-records 2048
done

tokens_per_step=131072
if [ -z "${STEPS:-}" ]; then
  "$titanium" train --job.config_file $config --job.dump_folder "$work/probe" --training.steps 40 --validation.no_enable \
    --checkpoint.no_enable "${@:3}" >"$result/probe.log" 2>&1
  STEPS=$(python3 - "$work/probe/metrics.jsonl" "$seconds" $tokens_per_step <<'PY'
import json, sys
speed = json.loads(open(sys.argv[1]).read().splitlines()[-1])["tps"]
print(max(100, int(speed * float(sys.argv[2]) / int(sys.argv[3])) // 50 * 50))
PY
)
fi

begin=$(date +%s)
"$titanium" train --job.config_file $config --training.steps "$STEPS" --metrics.disable_color_printing "${@:3}" 2>&1 | tee "$result/train.log"
end=$(date +%s)
cp "$work/run/metrics.jsonl" "$work/run/run.jsonl" "$result/"

checkpoint=$(ls -d "$work"/run/checkpoint/step-* | sort -V | tail -1)
{
  echo "# Samples: temperature 0.7 of the 50 most likely tokens, seed 1"
  while read -r prompt; do
    printf '\n```\n'
    "$titanium" generate --checkpoint "$checkpoint" --model.hf_assets_path "$work/assets" --prompt "$prompt" --temperature 0.7 --top-k 50 --seed 1 \
      --max-new-tokens 120
    printf '```\n'
  done <bench/convergence/prompts.txt
} >"$result/samples.md"

{
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown), $("$titanium" --version)"
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU"
  echo "command: bench/convergence/run.sh TEXT_FOLDER RESULT_FOLDER; steps $STEPS of $tokens_per_step tokens; $((end - begin)) s for the training command"
  "$titanium" data inspect "$work/tokens" | head -8
  grep -E "validate step|Model llama3" "$result/train.log" || true
  tail -1 "$result/metrics.jsonl"
} >"$result/facts.md"
cat "$result/facts.md" "$result/samples.md"
