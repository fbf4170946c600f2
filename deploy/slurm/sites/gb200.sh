# Racks of GB200 NVL72: 18 nodes of two Grace processors (2 x 72 Arm cores) and four GPUs each, all 72 GPUs of a rack connected by NVLink.
#
#   sbatch --nodes=32 --segment=16 --gpus-per-node=4 --cpus-per-task=144 --export=ALL,SITE=gb200 deploy/slurm/multinode_trainer.slurm
#   sbatch --nodes=32 --segment=16 --gpus-per-node=4 --ntasks-per-node=4 --cpus-per-task=36 --export=ALL,SITE=gb200 deploy/slurm/multinode_ranks.slurm
#
# --segment, which SLURM has with topology/block, keeps 16 nodes, 64 GPUs, in one rack; a job that is cut otherwise leaves NVLink. What exchanges the most then stays
# in a rack: tensor and expert parallel groups, and the shards of FSDP; models are replicated between racks (parallelism.data_parallel_replicate_degree).
# CONFIG_FILE=configs/llama3/llama3_70b_gb200.toml is the run of the lines above. The program is built on such a node by ./run_train.sh, for
# aarch64 and compute capability 10.0, or is in an image that was built there.
#
# Never run on such a rack; the variables are those of NCCL's documentation.
source deploy/slurm/sites/generic.sh
export NGPU=${NGPU:-4}
export NCCL_MNNVL_ENABLE=${NCCL_MNNVL_ENABLE:-2} # NVLink between nodes: 2 where it is there, 1 always, 0 never
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-2}   # sums inside the switches of NVLink, with the same values
export NCCL_CUMEM_ENABLE=${NCCL_CUMEM_ENABLE:-1} # what both of them need
# Processes may use the cores and the memory of both processors; threads stay where the kernel puts them.
SRUN_OPTIONS+=(--cpu-bind=none --mem-bind=none)

# Memory is shared between nodes through a channel of nvidia-imex, which the administrator or SLURM's plug-in switch/nvidia_imex makes.
if [ "$NCCL_MNNVL_ENABLE" != 0 ] && ! compgen -G "${IMEX_CHANNELS:-/dev/nvidia-caps-imex-channels}/channel*" >/dev/null; then
  echo "$(hostname): there is no channel of nvidia-imex, so that NVLink ends at the node. Start nvidia-imex on all nodes and let the driver make a channel (its module option NVreg_CreateImexChannel0=1), or set NCCL_MNNVL_ENABLE=0" >&2
fi
