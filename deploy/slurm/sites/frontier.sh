# Frontier (OLCF): 8 dies of MI250X for each node, Slingshot. The values are those of eminorhan/frontier-torchtitan; docs/amd.md says
# what of Titanium is missing on AMD. Never run there.
#
#   sbatch -A PROJECT -q normal --nodes=64 --gpus-per-node=8 --cpus-per-task=56 --network=disable_rdzv_get \
#     --export=ALL,SITE=frontier deploy/slurm/multinode_trainer.slurm
#
# Compute nodes are offline: download data, tokenizer and weights on a login node, to Orion.
if command -v module >/dev/null; then
  module load PrgEnv-gnu rocm/6.3.1 craype-accel-amd-gfx90a libfabric/1.22.0
fi
export LD_LIBRARY_PATH=${AWS_OFI_RCCL:-$HOME/aws-ofi-rccl/lib}:${LD_LIBRARY_PATH:-} # RCCL's plugin for libfabric

export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-hsn0}
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-hsn0}
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-3}
export NCCL_ALGO=${NCCL_ALGO:-TREE}
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1}
export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-31}
export TORCH_NCCL_BLOCKING_WAIT=${TORCH_NCCL_BLOCKING_WAIT:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export HF_HUB_OFFLINE=1 # or, through the site's proxy: export http_proxy=http://proxy.ccs.ornl.gov:3128 https_proxy=http://proxy.ccs.ornl.gov:3128
export MASTER_PORT=${MASTER_PORT:-3442}
export MAX_RESTARTS=${MAX_RESTARTS:-9}

CONTAINER_IMAGE=${CONTAINER_IMAGE:-}
CONTAINER_MOUNTS=${CONTAINER_MOUNTS:-$PWD:$PWD}
NSYS=""
SRUN_OPTIONS=()
