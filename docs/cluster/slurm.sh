#!/usr/bin/env bash
# A run on the nodes of one SLURM job: sbatch docs/cluster/slurm.sh. The first node trains, all of them play.
#SBATCH --job-name=snake-evo
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
set -euo pipefail

. .venv/bin/activate
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/.ray-token-$SLURM_JOB_ID"
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# srun does not inherit the cores per task; the nodes of a large job may take minutes to start.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ray symmetric-run --address "$first:6379" --min-nodes "$SLURM_NNODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    python -m evo.run experiments/ga_snake.toml --backend ray --set workers.address=auto \
    --run-dir "runs/slurm-$SLURM_JOB_ID" --json
