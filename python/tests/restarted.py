# SPDX-License-Identifier: Apache-2.0
"""A training run for `torchrun --max-restarts`: saves a checkpoint after every step, and goes on from the last one.

    torchrun ... restarted.py FOLDER STEPS [KILLED]

Rank 1 kills itself in the backward pass of step KILLED, in its first life. Rank 0 prints a digest of all that a run
leaves: parameters, momentum and every rank's residuals.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import cases
import tersegrad.torch as tg
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def last_complete(folder: Path, world: int) -> int:
    """The last step that all ranks have saved; 0 if there is none."""
    names = {path.name for path in folder.iterdir()}
    steps = {int(name.split("-")[0]) for name in names if name.endswith(".pt")}
    return max((step for step in steps if all(f"{step}-{rank}.pt" in names for rank in range(world))), default=0)


def main(folder: Path, steps: int, killed: int) -> None:
    dist.init_process_group("gloo")
    rank, life = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # Other buckets in the second life: they must not matter.
    model = DistributedDataParallel(cases.Products(), bucket_cap_mb=100.0 if life else 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = tg.compress(model, "topk:density=0.05", seed=3)
    done = last_complete(folder, dist.get_world_size())
    dist.barrier()  # all look before one writes
    if done:
        saved = torch.load(folder / f"{done}-{rank}.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["compression"])
    # One write for each line: those of two ranks may otherwise come mixed.
    os.write(1, f"life {life}: rank {rank} starts after step {done}\n".encode())
    for step in range(done + 1, steps + 1):
        if step == killed and rank == 1 and life == 0:
            # The gradients of `last` are on their way to the others by now, those of `first` are not.
            model.module.first.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        optimizer.zero_grad()
        model(cases.gradients(rank, step)).backward()
        optimizer.step()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "compression": state.state_dict()}
        part = folder / f"{step}-{rank}.part"
        torch.save(saved, part)
        part.rename(folder / f"{step}-{rank}.pt")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(cases.bits(parameter) + cases.bits(optimizer.state[parameter]["momentum_buffer"]))
    for name in cases.SHAPES:
        digest.update(cases.bits(state.residual(name)))
    every: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(every, digest.hexdigest())
    if rank == 0:
        os.write(1, f"digest {' '.join(every)}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int((sys.argv + ["0"])[3]))
