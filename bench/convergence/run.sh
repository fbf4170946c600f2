#!/usr/bin/env bash
# Trains the Llama of train.toml on text of gather_text.py, then lets it write. Chooses the number of steps so that training takes about
# SECONDS_OF_TRAINING on the device that is there, by the speed of 40 steps before, and at most one epoch. The machine needs no network and,
# where torch is in its Python, nothing else.
#
#   bench/convergence/run.sh TEXT_FOLDER RESULT_FOLDER [OPTION ...]      options are for titanium train
#
#   TEXT_FOLDER     train.jsonl and validation.jsonl (plain, .zst or .gz), tokenizer.json and tokenizer_config.json
#   RESULT_FOLDER   gets metrics.jsonl, run.jsonl, train.log, samples.md and facts.md
#   TITANIUM        the program (default: build/titanium)
#   PART            prepare, train or samples: one part of the run alone, where a command must not take long. The parts find what the ones
#                   before them made in WORK_FOLDER
#   STEPS           fixes the number of steps and leaves the measurement out
#   COMMIT          the commit for facts.md where there is no git
#   WORK_FOLDER     where tokens and checkpoints are put (default: outputs/convergence)
#   MODEL           the sizes of the model (default: bench/convergence/config.json)
set -euo pipefail
text=$(realpath "$1")
mkdir -p "$2"
result=$(realpath "$2")
options=("${@:3}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
titanium=${TITANIUM:-build/titanium}
work=${WORK_FOLDER:-outputs/convergence}
tokens_per_step=131072
if ! "$titanium" --version >/dev/null 2>&1; then
  source bench/torch_libraries.sh
fi

# The file of a part: plain where there are several.
text_of() {
  local ending
  for ending in "" .zst .gz; do
    if [[ -f $text/$1.jsonl$ending ]]; then
      echo "$text/$1.jsonl$ending"
      return
    fi
  done
  echo "run.sh: $text has no $1.jsonl, $1.jsonl.zst or $1.jsonl.gz; bench/convergence/gather_text.py makes it." >&2
  return 1
}

prepare() {
  local train_text validation_text
  train_text=$(text_of train)
  validation_text=$(text_of validation)
  rm -rf "$work"
  mkdir -p "$work/assets"
  cp "$text/tokenizer.json" "$text/tokenizer_config.json" "$work/assets/"
  cp "${MODEL:-bench/convergence/config.json}" "$work/assets/config.json"
  prepare_tokens "$train_text" tokens
  prepare_tokens "$validation_text" validation_tokens
}

prepare_tokens() {
  "$titanium" --quiet data prepare "$1" --tokenizer "$work/assets" --out "$work/$2" --threads "$(nproc)" --shard-records 2048
}

run_training() {
  "$titanium" train --job.config_file bench/convergence/train.toml --model.hf_assets_path "$work/assets" \
    --training.dataset_path "$work/tokens" --validation.dataset_path "$work/validation_tokens" --metrics.disable_color_printing \
    "$@" ${options[@]+"${options[@]}"}
}

# As many steps as fit into the time at the speed of the last of 40 steps, and at most one epoch; in hundreds, so that the last is validated.
measure_steps() {
  run_training --job.dump_folder "$work/probe" --training.steps 40 --validation.no_enable --checkpoint.no_enable >"$result/probe.log" 2>&1
  "$titanium" data inspect "$work/tokens" --json >"$work/tokens.json"
  python3 - "$work/probe/metrics.jsonl" "$work/tokens.json" "${SECONDS_OF_TRAINING:-480}" $tokens_per_step <<'PY'
import json, sys
speed = json.loads(open(sys.argv[1]).read().splitlines()[-1])["tps"]
tokens = min(speed * float(sys.argv[3]), json.load(open(sys.argv[2]))["tokens"])
steps = max(1, int(tokens / int(sys.argv[4])))
print(steps // 100 * 100 or steps)
PY
}

train() {
  local steps begin
  steps=${STEPS:-$(measure_steps)}
  rm -rf "$work/run"
  begin=$(date +%s)
  run_training --job.dump_folder "$work/run" --training.steps "$steps" 2>&1 | tee "$work/train.log"
  echo "steps $steps of $tokens_per_step tokens; $(($(date +%s) - begin)) s for the training command" >"$work/facts"
  cp "$work/run/metrics.jsonl" "$work/run/run.jsonl" "$work/train.log" "$result/"
}

write_samples() {
  local checkpoint prompt
  checkpoint=$(find "$work/run/checkpoint" -maxdepth 1 -name 'step-*' | sort -V | tail -1)
  echo "# Samples: temperature 0.7 of the 50 most likely tokens, seed 1"
  while read -r prompt; do
    printf '\n```\n'
    "$titanium" generate --checkpoint "$checkpoint" --model.hf_assets_path "$work/assets" --prompt "$prompt" --temperature 0.7 --top-k 50 \
      --seed 1 --max-new-tokens 120
    printf '```\n'
  done <bench/convergence/prompts.txt
}

write_facts() {
  echo "commit ${COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}, $("$titanium" --version)"
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU"
  echo "command: bench/convergence/run.sh TEXT_FOLDER RESULT_FOLDER${options[*]:+ ${options[*]}}; $(cat "$work/facts")"
  "$titanium" data inspect "$work/tokens" | sed -n 1,8p
  grep -E "validate step|Model llama3" "$work/train.log" || true
  grep '"tps"' "$work/run/metrics.jsonl" | tail -1
}

samples() {
  write_samples >"$result/samples.md"
  write_facts >"$result/facts.md"
  cat "$result/facts.md" "$result/samples.md"
}

case ${PART:-all} in
  prepare | train | samples) "$PART" ;;
  all)
    prepare
    train
    samples
    ;;
  *) echo "run.sh: PART is '$PART'; it is prepare, train, samples, or not set for all of them." >&2 && exit 2 ;;
esac
