"""The ``stack`` gate: versions, one real operation per package, the device, disk, and the kind of model files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.gates import disk
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan

Seen = Mapping[str, Any]


def judge(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: device, packages ``{name: {version, ok, error}}``, disk, model files, lock, arch."""
    reasons: list[Reason] = []
    device = seen.get("device") or {}
    if device.get("wanted") == "cuda" and not device.get("usable"):
        reasons.append(
            reason(
                "device_not_used",
                f"device: cuda is planned, and this torch cannot use a GPU: {device.get('why')}.",
                advice=device.get("advice") or None,
            )
        )
    elif device.get("wanted") == "auto" and device.get("present") and not device.get("usable"):
        reasons.append(reason("device_not_used", f"A GPU is here, but this torch cannot use it: {device.get('why')}."))
    reasons += _kernels(seen.get("kernels"))
    for name, found in (seen.get("packages") or {}).items():
        if found.get("missing"):
            reasons.append(reason("package_missing", f"{name} is not installed here.", {"package": name}))
        elif not found.get("ok", True):
            text = f"{name} {found.get('version') or ''} imports or runs wrongly: {found.get('error')}"
            reasons.append(reason("extension_broken", text, {"package": name}))
    for name, (locked, now) in (seen.get("changed") or {}).items():
        text = f"{name}: locked {locked}, here {now or 'not installed'}."
        reasons.append(reason("version_changed", text, {"package": name, "file": seen.get("lock_file")}))
    reasons += disk.judge(seen.get("disk"))
    reasons += [reason("without_effect", text) for text in seen.get("notes") or ()]
    unsafe = seen.get("unsafe_files") or []
    if unsafe:
        only = seen.get("only_unsafe")
        text = f"{', '.join(unsafe[:3])}: weights as a pickle, which can run code when loaded" + (
            ", and no safetensors beside it." if only else "; the safetensors file beside it is used."
        )
        reasons.append(reason("unsafe_model_file", text, {"file": unsafe[0]}, severity=None if only else "note"))
    return reasons


def _kernels(found: Seen | None) -> list[Reason]:
    """A GPU kernel run in a process of its own; absent where no GPU is planned."""
    if not found:
        return []
    if found.get("ran"):
        return []
    capability, arches = found.get("capability"), found.get("arch_list") or []
    word = covers(capability, arches)
    if word == "no":
        text = f"This torch has no kernels for capability {capability}: it was built for {', '.join(arches)}."
        return [reason("no_kernel_for_gpu", text)]
    if word == "jit":
        text = f"No kernels for capability {capability}; PTX is compiled at the first use ({', '.join(arches)})."
        return [reason("no_kernel_for_gpu", text, severity="warn")]
    text = f"A first operation on the GPU failed: {found.get('error')}"
    return [reason("no_kernel_for_gpu", text, severity=None if found.get("error") else "unchecked")]


def covers(capability: Any, arch_list: list[str]) -> str:
    """Whether a build's arch list runs on a capability ``[major, minor]``: ``yes``, ``jit``, ``no`` or ``unknown``."""
    if not capability or not arch_list:
        return "unknown"
    major, minor = int(capability[0]), int(capability[1])
    for arch in arch_list:
        kind, _, number = arch.partition("_")
        digits = "".join(letter for letter in number if letter.isdigit())
        if kind == "sm" and digits:
            built = (int(digits[:-1]), int(digits[-1]))
            # A cubin runs on its own major version from its minor upwards.
            if built[0] == major and built[1] <= minor:
                return "yes"
    for arch in arch_list:
        kind, _, number = arch.partition("_")
        digits = "".join(letter for letter in number if letter.isdigit())
        if kind == "compute" and digits and (int(digits[:-1]), int(digits[-1])) <= (major, minor):
            return "jit"
    return "no"
