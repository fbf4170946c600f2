# Racks of GB200 NVL72: 4 GPUs and 72 Arm cores for each node, GPUs of the rack connected by NVLink.
#
#   NGPU=4 sbatch --nodes=18 --gpus-per-node=4 --cpus-per-task=72 --segment=18 --export=ALL,SITE=gb200 deploy/slurm/multinode_trainer.slurm
#
# Never run on such a rack; the variables are those of NCCL's documentation.
source deploy/slurm/sites/generic.sh
export NCCL_MNNVL_ENABLE=${NCCL_MNNVL_ENABLE:-1} # NVLink between nodes; needs nvidia-imex on all of them
export NCCL_CUMEM_ENABLE=${NCCL_CUMEM_ENABLE:-1}
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-SYS}
SRUN_OPTIONS+=(--cpu-bind=none --mem-bind=none)
