"""What each phase does and when it passes, in one sentence each: shown before a phase ran, and by ``?``."""

from __future__ import annotations

ABOUT: dict[str, tuple[str, str]] = {
    "stack": (
        "versions of Python, torch, CUDA and every package the task names; one real kernel; each extension executed",
        "everything needed really works on this device",
    ),
    "examples": (
        "every row rendered, tokenized, masked and cut exactly as the loss will see it",
        "every row has supervised tokens in the roles to train, and its end token",
    ),
    "splits": (
        "units, row ids and contents of train, validation and test compared",
        "no unit, row or near copy stands on two sides",
    ),
    "overfit": (
        "a few short real rows trained until the model gives them back, then thrown away",
        "the loss falls, the answers are recovered, every planned tensor moved",
    ),
    "load": (
        "the model, its adapter and the wrapping put on the device",
        "device, dtypes and trainable set are as planned",
    ),
    "forward": ("the longest real microbatch through the model", "finite values on real tokens"),
    "backward": ("the backward of that microbatch", "a gradient wherever one is due"),
    "first_step": (
        "the rest of the window, clipping and the first optimizer step",
        "optimizer state is there and parameters changed where the learning rate is not 0",
    ),
    "steady_step": ("complete updates on the same longest rows, again", "memory stays flat, the loss finite"),
    "batch": (
        "the real loop in campaign order: rows, tokens, microbatches and updates counted against arithmetic",
        "counted equals planned; gradients equal those of single rows",
    ),
    "evaluate": (
        "the longest evaluation microbatch, then rows for time and metric",
        "finite, and memory is given back",
    ),
    "checkpoint": ("the full training state saved, twice", "complete, equal hashes, nothing left over"),
    "export": ("the artifact that evaluation will load", "every trained tensor is in it, tokenizer and template too"),
    "resume": (
        "a new process loads the checkpoint alone and repeats the reference updates",
        "weights, optimizer, schedule, random state, rows and losses equal those of the twin",
    ),
    "reload": (
        "a new process loads the artifact alone and answers the control inputs",
        "the same ids go in and the same answers come out",
    ),
}

SHORT: dict[str, str] = {
    "stack": "versions and kernels, executed",
    "examples": "every row as the loss sees it",
    "splits": "nothing stands on two sides",
    "overfit": "a few rows learned by heart",
    "load": "the model on the device",
    "forward": "the longest rows, forward",
    "backward": "the longest rows, backward",
    "first_step": "optimizer state appears",
    "steady_step": "memory flat, update by update",
    "batch": "the loop against arithmetic",
    "evaluate": "longest rows, memory given back",
    "checkpoint": "full state saved twice, equal",
    "export": "what evaluation will load",
    "resume": "new process, the same updates",
    "reload": "new process, the same answers",
}
