# find_torch: prints the folder of an installed torch 2.11 (with lib/libtorch_cpu.so), or fails. In this order: the variable
# TITANIUM_TORCH_DIR, the venv that titanium-setup made, the active venv, Python's own packages.

find_torch() {
  if [ -n "${TITANIUM_TORCH_DIR:-}" ]; then
    [ -e "$TITANIUM_TORCH_DIR/lib/libtorch_cpu.so" ] && { echo "$TITANIUM_TORCH_DIR"; return; }
    echo "titanium: TITANIUM_TORCH_DIR=$TITANIUM_TORCH_DIR has no lib/libtorch_cpu.so. Name the folder torch in site-packages." >&2
    return 2
  fi
  for folder in "${TITANIUM_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/titanium}/runtime"/lib/python3*/site-packages/torch \
    ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/torch}; do
    [ -e "$folder/lib/libtorch_cpu.so" ] && { echo "$folder"; return; }
  done
  folder=$(python3 -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) &&
    [ -e "$folder/lib/libtorch_cpu.so" ] && { echo "$folder"; return; }
  echo "titanium: no torch 2.11 was found. Run titanium-setup, or pip install torch==2.11.0, or set TITANIUM_TORCH_DIR to the folder torch in site-packages." >&2
  return 2
}
