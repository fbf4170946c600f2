# What differs from cluster to cluster, in one place. Copy this file, edit the copy, and name it: sbatch --export=ALL,SITE=mine ...
# What the environment already has wins.

# Modules and paths that the program needs on the compute nodes.
#   module load cuda/13.0

# Interfaces. NCCL takes a list of names or beginnings, the first that exists; Gloo one exact name (default: the route to node 0).
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-eth0,en,eth,em,bond}
#   export GLOO_SOCKET_IFNAME=eth0
# InfiniBand: which cards.
#   export NCCL_IB_HCA=mlx5
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export NCCL_BUFFSIZE=${NCCL_BUFFSIZE:-2097152}

# Container, where SLURM has pyxis and enroot: an image (docker://... or a .sqsh file) and what it sees of the host.
CONTAINER_IMAGE=${CONTAINER_IMAGE:-}
CONTAINER_MOUNTS=${CONTAINER_MOUNTS:-$PWD:$PWD}

# Nsight Systems around every task: options of `nsys profile`, such as "--trace cuda,nvtx --delay 60 --duration 20".
NSYS=${NSYS:-}

# More options of srun, such as --cpu-bind=none or --network=...
SRUN_OPTIONS=()
