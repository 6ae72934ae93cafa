"""The supervisor: one thread that forks, reaps, restarts and passes signals on. It owns processes, nothing else."""
