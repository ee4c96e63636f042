"""Gates of the files a campaign leaves behind: checkpoint, export, reload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural, size

Seen = Mapping[str, Any]
OUTPUT_TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 3e-2}


def checkpoint(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: the states written, hashes of both saves, memory before and two updates after, an error if one came."""
    reasons: list[Reason] = []
    error = seen.get("error")
    if error:
        code = "disk_too_small" if error.get("full") else "unsafe_state" if error.get("unsafe") else "incomplete"
        where = {"file": error.get("file"), "key": error.get("key")}
        return [reason(code, error["text"], {key: value for key, value in where.items() if value})]
    missing = [name for name in seen.get("states_expected") or () if name not in (seen.get("states") or ())]
    if missing:
        reasons.append(reason("state_missing", f"Not in the checkpoint: {', '.join(missing)}.", {"key": missing[0]}))
    first, second = seen.get("hashes") or {}, seen.get("second_hashes")
    if second is not None:
        differ = sorted(name for name in set(first) | set(second) if first.get(name) != second.get(name))
        if differ:
            text = f"Two saves of the same state differ in {', '.join(differ)}."
            reasons.append(reason("hashes_differ", text, {"file": differ[0]}))
    left = seen.get("left_over") or []
    if left:
        reasons.append(reason("incomplete", f"The save left {', '.join(left[:3])} behind.", {"file": left[0]}))
    before, after = seen.get("allocated_before"), seen.get("allocated_later")
    if before is not None and after is not None and after - before > max(1 << 20, 0.01 * before):
        text = (
            f"{size(after - before)} more are allocated two updates after the save than right before it "
            f"({size(before)}); expected about 0."
        )
        reasons.append(reason("residue", text))
    return reasons


def export(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: files with sizes, tensors found, trained tensors that are not among them, tokenizer and template."""
    error = seen.get("error")
    if error:
        code = "disk_too_small" if error.get("full") else "empty_artifact"
        return [reason(code, error["text"], {"file": error.get("file")} if error.get("file") else {})]
    reasons: list[Reason] = []
    files = seen.get("files") or {}
    unsafe = seen.get("unsafe") or []
    if unsafe:
        text = f"{', '.join(unsafe[:3])} holds objects that only unsafe loading could read; it was not opened."
        reasons.append(reason("unsafe_artifact", text, {"file": unsafe[0]}))
    elements = seen.get("elements")
    zero = [name for name, count in files.items() if count == 0]
    if not files or (elements == 0 and not unsafe):
        text = f"The artifact holds {plural(len(files), 'file')} and 0 weights" + (
            f", expected {seen['trained_elements']:,} trained elements." if seen.get("trained_elements") else "."
        )
        reasons.append(reason("empty_artifact", text))
    elif zero:
        reasons.append(reason("empty_artifact", f"{zero[0]} is empty (0 bytes).", {"file": zero[0]}))
    missing = list(seen.get("missing") or ())
    if missing and elements:
        text = (
            f"{plural(len(missing), 'trained tensor')} of {seen.get('trained', 0)} not in the artifact: {missing[0]}; "
            f"saved {elements:,} elements."
        )
        reasons.append(reason("trained_not_saved", text, {"tensors": missing, "tensor": missing[0]}))
    if seen.get("values_unread"):
        reasons.append(reason("not_observed", f"Weights in {seen['values_unread']} could not be compared by value."))
    for name in seen.get("zero_adapters") or ():
        text = f"{name} is all zero: the adapter equals the base."
        reasons.append(reason("empty_artifact", text, {"tensor": name}))
        break
    lacking = seen.get("lacking") or []
    if lacking:
        text = f"The artifact lacks {', '.join(lacking)}: whoever loads it would encode other ids."
        reasons.append(reason("template_missing", text, {"file": lacking[0]}))
    if seen.get("generic_names"):
        names = ", ".join(seen["generic_names"][:3])
        reasons.append(reason("names_generic", f"The artifact names its classes {names}."))
    return reasons


def reload(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: control loss and answers before export and after reload, prompt ids, the base's loss."""
    reasons: list[Reason] = []
    for problem in seen.get("problems") or ():
        reasons.append(reason(problem["code"], problem["text"], problem.get("where")))
    if reasons:
        return reasons
    ids = seen.get("prompt_ids_differ")
    if ids:
        text = (
            f"The artifact gives other ids for control row {ids['row']} at place {ids['position']}: {ids['seen']}, "
            f"was {ids['stored']}."
        )
        reasons.append(reason("prompt_ids_differ", text, {"row": ids["row"], "position": ids["position"]}))
    if seen.get("prompt_ids_unchecked"):
        reasons.append(reason("not_observed", seen["prompt_ids_unchecked"]))
    before, after, base = seen.get("loss_before"), seen.get("loss_after"), seen.get("loss_base")
    given = plan.gates.reload.relative_loss
    limit = OUTPUT_TOLERANCE.get(str(seen.get("dtype")), 1e-4) if given is None else given
    changed, asked = seen.get("answers_changed"), seen.get("answers")
    if before is None or after is None:
        reasons.append(reason("not_observed", "No control loss was stored before the export."))
        return reasons
    moved = _apart(before, after)
    if moved > limit or (changed and changed > max(0.0, limit if limit > 1e-3 else 0.0) * (asked or 1)):
        like_base = base is not None and _apart(after, base) <= limit / 10 and _apart(before, base) > limit
        where = {"rows": seen.get("changed_rows")} if seen.get("changed_rows") else {}
        if like_base and seen.get("adapter"):
            text = f"Control loss {after:.6g} equals the base's {base:.6g}; the trained model had {before:.6g}."
            reasons.append(reason("adapter_has_no_effect", text, where))
        else:
            text = (
                f"Control loss {before:.6g} before export, {after:.6g} after reload; {changed or 0} of {asked or 0} "
                f"answers changed; tolerance {limit:.0e}."
            )
            reasons.append(reason("outputs_differ", text, where))
    if seen.get("answers") is None:
        reasons.append(reason("not_observed", "The task defines no predict: answers were compared by loss alone."))
    return reasons


def _apart(left: float, right: float) -> float:
    if math.isnan(left) or math.isnan(right):
        return float("inf")
    return abs(left - right) / max(1e-12, abs(left), abs(right))
