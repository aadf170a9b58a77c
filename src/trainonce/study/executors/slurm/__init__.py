"""Trials as Slurm jobs, submitted through submitit. Jobs and the driver meet in a folder that both see."""
