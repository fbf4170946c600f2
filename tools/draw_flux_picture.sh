#!/usr/bin/env bash
# Trains a tiny Flux on the 32 shipped shapes on one core of a CPU, draws some of their captions, and makes the picture of docs/flux.md.
#
#   tools/draw_flux_picture.sh WORK_FOLDER
#
# The folder keeps assets, run and images; a run that was stopped goes on. tools/make_tiny_flux.py says what the tiny model consists of.
#
#   OUT        the picture (default: docs/images/flux_shapes.png)
#   STEPS      of training (default: 2400)
#   TITANIUM   the program (default: build/titanium)
#   PYTHON     with numpy, safetensors and Pillow (default: python3)
set -euo pipefail
work=$(realpath -m "${1:?usage: tools/draw_flux_picture.sh WORK_FOLDER}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
titanium=${TITANIUM:-build/titanium}
python=${PYTHON:-python3}
steps=${STEPS:-2400}
mkdir -p "$work"

[ -d "$work/assets" ] || "$python" tools/make_tiny_flux.py "$work/assets"
options=(--job.config_file configs/flux/flux_debug.toml --model.flavor auto "--model.hf_assets_path=$work/assets" --training.no_test_mode
  "--encoder.t5_encoder=$work/assets/t5" "--encoder.clip_encoder=$work/assets/clip" "--encoder.autoencoder_path=$work/assets/ae.safetensors"
  --encoder.max_t5_encoding_len 8 --training.device cpu --training.mixed_precision_param float32)
OMP_NUM_THREADS=1 "$titanium" train "${options[@]}" "--job.dump_folder=$work/run" --training.img_size 16 --training.local_batch_size 8 \
  "--training.steps=$steps" --training.data_streams 32 --training.classifier_free_guidance_prob 0.1 --activation_checkpoint.mode none \
  --optimizer.lr 1e-3 --optimizer.weight_decay 0 --training.max_norm 1 --lr_scheduler.warmup_steps 50 --lr_scheduler.decay_ratio 0.5 \
  --lr_scheduler.decay_type cosine --checkpoint.enable --checkpoint.interval 1000 --checkpoint.keep_latest_k 2 --metrics.log_freq 50
"$python" tools/draw_flux_picture.py captions tests/assets/cc12m_test "$work/prompts.txt"
"$titanium" generate-image --checkpoint "$work/run/checkpoint/step-$steps" --prompts "$work/prompts.txt" --out "$work/images" --steps 50 \
  --size 16 --guidance 1.5 --batch 8 "${options[@]}"
"$python" tools/draw_flux_picture.py picture tests/assets/cc12m_test "$work/images" "${OUT:-docs/images/flux_shapes.png}"
