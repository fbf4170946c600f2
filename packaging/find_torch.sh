# find_torch: prints the folder of an installed torch 2.11 (with lib/libtorch_cpu.so), or fails. In this order: the variable
# TITANIUM_TORCH_DIR, the venv that titanium-setup made, the active venv, Python's own packages. Another version of torch has other
# libraries, so it is passed over.

is_torch() { [ -e "$1/lib/libtorch_cpu.so" ] && grep -q "^__version__ = '2\.11\." "$1/version.py" 2>/dev/null; }

find_torch() {
  if [ -n "${TITANIUM_TORCH_DIR:-}" ]; then
    is_torch "$TITANIUM_TORCH_DIR" && { echo "$TITANIUM_TORCH_DIR"; return; }
    if [ -e "$TITANIUM_TORCH_DIR/lib/libtorch_cpu.so" ]; then
      echo "titanium: TITANIUM_TORCH_DIR=$TITANIUM_TORCH_DIR is not torch 2.11. Run titanium-setup and unset the variable, or pip install torch==2.11.0." >&2
    else
      echo "titanium: TITANIUM_TORCH_DIR=$TITANIUM_TORCH_DIR has no lib/libtorch_cpu.so. Name the folder torch in site-packages." >&2
    fi
    return 2
  fi
  for folder in "${TITANIUM_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/titanium}/runtime"/lib/python3*/site-packages/torch \
    ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/torch}; do
    is_torch "$folder" && { echo "$folder"; return; }
  done
  folder=$(python3 -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) &&
    is_torch "$folder" && { echo "$folder"; return; }
  echo "titanium: no torch 2.11 was found. Run titanium-setup, or pip install torch==2.11.0, or set TITANIUM_TORCH_DIR to the folder torch in site-packages." >&2
  return 2
}
