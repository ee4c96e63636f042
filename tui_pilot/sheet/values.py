"""A configuration's facts as pairs of words: the rows of its table, the same in every form people read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tui_pilot.run_folder import short_id
from tui_pilot.sheet import curves
from tui_pilot.sheet.judged import word
from tui_pilot.text import count, duration, plural, rate, size

Json = Mapping[str, Any]

NOT_MEASURED = "not measured"


def facts_of(item: Json) -> Iterator[tuple[str, str]]:
    """Item and value, in reading order; a fact that is unknown says so, it is never left out."""
    yield "verdict", verdict(item)
    yield "decision", _decision(item)
    yield from memory(item)
    yield "longest seen", dimensions(item)
    yield "batch", batch(item)
    yield "precision", precision(item)
    yield "optimizer", optimizer(item)
    yield "sharding", sharding(item)
    yield "budget", budget(item)
    yield "seconds", seconds(item)
    if said := curves.words(item["curve"]):
        yield "training loss", said
    yield "on disk", on_disk(item)
    yield (
        "resume",
        proof(item["resume"], resumed(item["resume"])),
    )
    yield "reload", proof(item["reload"], "new process; the artifact alone gives the control answers again")
    for name, value in controls(item):
        yield name, value
    yield "software", software(item)
    yield "revisions", revisions(item)
    if item["parent"]:
        yield "came from", origin(item)
    yield "expected", item["expected_result"] or "not written down (expected in the plan)"
    yield "which GPUs fit", fits(item)
    for name, value in variants(item):
        yield name, value


def verdict(item: Json) -> str:
    """The automatic verdict, with what the person made of it beside."""
    automatic = word(item["verdict"]) if item["verdict"] else f"none, the run is {item['state']}"
    marked = [row for row in item["phases"] if row["mark"]]
    by_hand = "; ".join(
        f"{row['phase']} marked {row['mark']}" + (f", {row['note']}" if row["note"] else "") for row in marked
    )
    return f"{automatic}, automatic" + (f"; by hand: {by_hand}" if by_hand else "; no mark by hand")


def _decision(item: Json) -> str:
    """What was decided and why; where nothing was, how it is done."""
    decision = item["decision"]
    if not decision:
        return f"none yet: pilot-tui decide {item['short'][-4:]} retain, reject or defer, with --note WHY"
    return f"{decision.get('decision')}" + (f": {decision['note']}" if decision.get("note") else ", without a note")


def memory(item: Json) -> Iterator[tuple[str, str]]:
    """Need, the phase that sets it, and the margin; on a CPU what was counted there, and that it binds no GPU."""
    need = item["memory_need"]
    at = [entry for entry in item["memory"] if entry["phase"] == item["binding_phase"]]

    def highest(key: str) -> int | None:
        return max((entry[key] for entry in at if entry.get(key) is not None), default=None)

    if need is not None:
        ranks = plural(len({entry.get("rank") for entry in item["memory"]}), "GPU")
        yield (
            f"memory, {ranks}",
            f"{size(need['bytes'])} needed on each; at the peak {size(highest('device_used_peak'))} used≥, "
            f"{size(highest('reserved_peak'))} reserved, {size(highest('allocated_peak'))} allocated",
        )
        asked = item["memory_margin_asked"]
        free = "unknown: usable memory could not be read"
        if need["margin"] is not None:
            free = f"{need['margin']:.0%} of {size(need['usable_bytes'])} usable"
        yield "margin", free + (f"; {asked:.0%} asked" if asked is not None else "")
    elif at:
        yield "memory, CPU", f"{size(highest('allocated_peak'))} allocated; no accelerator, so nothing was reserved"
    else:
        yield "memory", NOT_MEASURED
    yield "set by", str(item["binding_phase"] or NOT_MEASURED)


def dimensions(item: Json) -> str:
    """The longest row, the cut and what it took."""
    seen = item["dimensions"]
    parts = []
    if seen["longest_row"] is not None:
        parts.append(f"{count(seen['longest_row'])} tokens in a row (p95 {count(seen['p95'])})")
    parts.append(f"max_length {count(item['max_length'], 'not set')}")
    for key, where in (("microbatch_shape", "microbatch"), ("evaluation_shape", "evaluation")):
        shape = seen[key]
        if isinstance(shape, (list, tuple)):
            parts.append(f"{where} {' x '.join(str(each) for each in shape)}")
        elif shape:
            parts.append(f"{where} {shape}")
    if seen["truncated"]:
        lost = seen["response_tokens_lost"]
        parts.append(f"{plural(seen['truncated'], 'row')} cut, {count(lost, 'unknown')} response tokens lost")
    elif seen["truncated"] == 0:
        parts.append("no row cut")
    return "; ".join(parts)


def batch(item: Json) -> str:
    """``2 micro x 8 accumulation x 1 replica = 16 rows``."""
    if item["micro"] is None:
        return "unknown: the plan cannot be read"
    replicas = plural(item["replicas"], "replica")
    product = f"{item['micro']} micro x {item['accumulation']} accumulation x {replicas}"
    return f"{product} = {plural(item['effective_batch'], 'row')} an update"


def precision(item: Json) -> str:
    adapter = item["adapter"]
    if item["precision"] is None:
        return "unknown"
    tuned = "full tuning"
    if adapter:
        tuned = f"{adapter['kind']} r{adapter['r']}, alpha {adapter['alpha']:g}"
        tuned += f" on {', '.join(adapter['targets'])}" if adapter["targets"] else ""
    saving = ", activation checkpointing" if item["activation_checkpointing"] else ""
    return f"{item['precision']}, {tuned}{saving}"


def optimizer(item: Json) -> str:
    found = item["optimizer"]
    if not found:
        return "unknown"
    clip = f", clip {found['clip']:g}" if found["clip"] is not None else ", no clip"
    decay = f", weight decay {found['weight_decay']:g}" if found["weight_decay"] else ""
    return (
        f"{found['name']} ({found['implementation']}), lr {rate(found['lr'])} {found['schedule']}, "
        f"warm-up {plural(found['warmup'], 'update')}{clip}{decay}"
    )


def sharding(item: Json) -> str:
    parallel = item["tensor_parallel"]
    return str(item["sharding"]) + (f", tensor parallel {parallel}" if parallel and parallel > 1 else "")


def budget(item: Json) -> str:
    held = (item["budget"] or {}).items()
    return ", ".join(f"{value:,g} {key.removesuffix('s') if value == 1 else key}" for key, value in held) or "unknown"


def seconds(item: Json) -> str:
    named = (
        ("update", "update"), ("evaluation", "evaluation"), ("save_first", "first save"),
        ("save_second", "second save"), ("export", "export"), ("resume", "resume"),
    )  # fmt: skip
    timed = item["seconds"]
    said = [f"{name} {duration(timed[key])}" for key, name in named if timed.get(key) is not None]
    missing = [name for key, name in named if timed.get(key) is None]
    if not said:
        return NOT_MEASURED
    return "; ".join(said) + (f"; not measured: {', '.join(missing)}" if missing else "")


def on_disk(item: Json) -> str:
    found = item["sizes"]
    kind = found["artifact_kind"] or "artifact"
    named = ((found["checkpoint_bytes"], "checkpoint"), (found["artifact_bytes"], f"export ({kind})"))
    return ", ".join(f"{name} {size(value, NOT_MEASURED)}" for value, name in named)


def proof(row: Json, meaning: str) -> str:
    """What the resume or reload gate showed."""
    if row["verdict"] == "pass":
        return f"proved: {meaning}"
    return word(row["verdict"]) + (f": {row['text']}" if row["text"] else "")


def resumed(row: Json) -> str:
    """What a passed resume test means for this run."""
    equal = "new process; rows, step, rate and states equal the twin's"
    if row.get("bit_equal"):
        return f"{equal}, losses to the bit"
    tolerance = row.get("tolerance")
    return equal + (f", losses within {rate(tolerance)}" if isinstance(tolerance, float) else ", losses within limits")


def controls(item: Json) -> Iterator[tuple[str, str]]:
    """Control inputs with the answers of the artifact, where the run stored them."""
    for number, answer in enumerate(item["control_outputs"][:3], 1):
        yield f"control {number}", answer.strip() or f"(blank, {plural(len(answer), 'character')})"


def software(item: Json) -> str:
    checked = item["software_checked"]
    versions = item["software"]
    first = [name for name in ("python", "torch", "cuda", "driver", "nccl") if versions.get(name)]
    others = [name for name in sorted(versions) if name not in first and isinstance(versions[name], (str, int, float))]
    named = ", ".join(f"{name} {versions[name]}" for name in (*first, *others))
    where = f", on {checked['on']['gpu']}" if checked["on"].get("gpu") else ""
    said = "checked" + where if checked["value"] else "not checked"
    return f"{said}: {named}" if named else said


def revisions(item: Json) -> str:
    """The first digits of the hashes that say which run this was; whole ones stand in the JSON and in run.json."""
    found = item["revisions"]
    named = [f"{key} {str(found[key])[:12]}" for key in ("identity", "code", "git") if isinstance(found.get(key), str)]
    files = found.get("data")
    if isinstance(files, Mapping) and files:
        named += [f"{name} {str(each.get('sha256'))[:12]}" for name, each in files.items() if isinstance(each, Mapping)]
    return ", ".join(named) or "unknown"


def origin(item: Json) -> str:
    """The run this one follows, and what is not as it was there."""
    changes = [f"{key} {_was(pair)}" for key, pair in item["changed"].items()]
    return f"{short_id(str(item['parent']))}; changed: {', '.join(changes) or 'nothing'}"


def _was(pair: Any) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return str(pair)
    old, new = (str(each)[:12] if isinstance(each, str) and len(each) == 64 else str(each) for each in pair)
    return f"{old}, now {new}"


def fits(item: Json) -> str:
    """Names of the GPUs that hold it with the margin asked, and what that rests on; the table has the figures."""
    listed = item["fits"]
    if not listed:
        return str(item["fits_note"])
    names = [str(each["name"]) for each in listed if each["fits"]]
    return f"{', '.join(names) or 'none of those asked'} ({item['fits_note']})"


def variants(item: Json) -> Iterator[tuple[str, str]]:
    """The plan's variants, priority first, what each sets and why."""
    for entry in sorted(item["variants"], key=lambda each: each["priority"]):
        sets = ", ".join(f"{key} {value}" for key, value in entry["set"].items())
        why = f" ({entry['why']})" if entry["why"] else ""
        yield f"variant {entry['id']}", f"{sets}{why}: {_of_variant(entry)}"


def _of_variant(entry: Json) -> str:
    """Memory and seconds against the baseline, and whether it is the same experiment."""
    if not entry["measured"]:
        return NOT_MEASURED
    said = []
    memory, seconds = entry["memory"], entry["seconds_per_update"]
    if memory["bytes"] is not None:
        apart = memory["bytes"] - memory["baseline_bytes"]
        sign = "+" if apart >= 0 else "-"
        counter = memory["counter"].removesuffix("_peak").replace("_", " ")
        said.append(f"{counter} {size(memory['bytes'])} ({sign}{size(abs(apart))})")
    if seconds["variant"] and seconds["baseline"]:
        share = seconds["variant"] / seconds["baseline"] - 1
        said.append(f"{duration(seconds['variant'])} an update ({share:+.0%})")
    said.append(_question(entry))
    said.append(f"{word(entry['verdict'])} in {short_id(str(entry['run']))}" if entry["verdict"] else "no verdict yet")
    return ", ".join(said)


def _question(entry: Json) -> str:
    quality = entry["quality"] or {}
    if entry["rows_truncated"]:
        return f"not the same experiment: {plural(entry['rows_truncated'], 'row')} more cut"
    if entry["same_experiment"] is None:
        return "same experiment unchecked"
    if not entry["same_experiment"]:
        return "not the same experiment"
    if entry["changes_result"]:
        return "called the same experiment and changes the result"
    agrees = quality.get("grad_error") is not None
    return "same experiment, measured" if agrees else "same experiment by its plan, not measured"
