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
            how = "imports, but its first operation failed" if found.get("imported") else "cannot be imported"
            text = f"{_versioned(name, found)} {how}: {found.get('error')}"
            reasons.append(reason("extension_broken", text, {"package": name}))
        if found.get("warned") and not found.get("missing"):
            says = "works, and says" if found.get("ok", True) else "also says"
            # Without a GPU in use, the build for the processor is the right one.
            severity = None if device.get("usable") or device.get("wanted") == "cuda" else "note"
            text = f"{_versioned(name, found)} {says}: {found['warned']}"
            reasons.append(reason("extension_falls_back", text, {"package": name}, severity=severity))
    for pair in seen.get("unmet") or ():
        text = f"{pair['package']} was made for {pair['needs']} {pair['specifier']}, here is {pair['here']}" + (
            "; what it runs by it may break or change." if pair["pinned"] else "."
        )
        severity = None if pair["pinned"] else "warn"
        reasons.append(reason("requirement_unmet", text, {"package": pair["needs"]}, severity=severity))
    if seen.get("lock_unread"):
        reasons.append(reason("not_observed", f"{seen['lock_unread']}: versions were not compared."))
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
    capability, arches = found.get("capability"), found.get("arch_list") or []
    where = {"device": f"cuda:{found['device']}"} if found.get("device") is not None else {}
    word = covers(capability, arches)
    if word == "jit" and (found.get("ran") or not found.get("error")):
        text = f"No kernels for capability {capability}; PTX is compiled at the first use (JIT: {', '.join(arches)})."
        return [reason("no_kernel_for_gpu", text, where, severity="warn")]
    if found.get("ran"):
        return []
    if word == "no":
        text = f"This torch has no kernels for capability {capability}: it was built for {', '.join(arches)}."
        return [reason("no_kernel_for_gpu", text, where)]
    text = f"A first operation on the GPU failed: {found.get('error')}"
    return [reason("no_kernel_for_gpu", text, where, severity=None if found.get("error") else "unchecked")]


def covers(capability: Any, arch_list: list[str]) -> str:
    """Whether a build's arch list runs on a capability ``[major, minor]``: ``yes``, ``jit``, ``no`` or ``unknown``."""
    if not capability or not arch_list:
        return "unknown"
    major, minor = int(capability[0]), int(capability[1])
    built = [found for found in map(_architecture, arch_list) if found]
    for kind, version, own in built:
        # A cubin runs on its own major version from its minor upwards; one made for an "a" on that version alone.
        if kind == "sm" and version[0] == major and (version[1] == minor or (version[1] < minor and not own)):
            return "yes"
    if any(kind == "compute" and not own and version <= (major, minor) for kind, version, own in built):
        return "jit"
    return "no"


def _architecture(name: str) -> tuple[str, tuple[int, int], bool] | None:
    """``sm_90a`` as its kind, its version and whether it is bound to exactly that version."""
    kind, _, number = name.partition("_")
    digits = number.rstrip("af")
    return (kind, (int(digits[:-1]), int(digits[-1])), number.endswith("a")) if digits[1:].isdigit() else None


def _versioned(name: str, found: Mapping[str, Any]) -> str:
    return f"{name} {found['version']}" if found.get("version") else name
