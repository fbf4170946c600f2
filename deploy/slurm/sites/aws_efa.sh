# AWS with Elastic Fabric Adapters: what generic.sh says, and libfabric's provider.
source deploy/slurm/sites/generic.sh
export FI_PROVIDER=${FI_PROVIDER:-efa}
export FI_EFA_SET_CUDA_SYNC_MEMOPS=${FI_EFA_SET_CUDA_SYNC_MEMOPS:-0}
