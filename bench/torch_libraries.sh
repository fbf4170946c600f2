# Sourced by the scripts beside it, for machines that have torch in their Python and none of our packages: the libraries of that
# torch.
torch=$(python3 -c 'import torch; print(torch.__path__[0])')
LD_LIBRARY_PATH="$torch/lib:$(echo "$torch"/../nvidia/*/lib | tr ' ' ':')${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
