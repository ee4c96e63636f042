"""The sheet for programs and spreadsheets: JSON, YAML, CSV, and each of them read back. Nothing is added or left out.

CSV has one line a fact for people (``section`` fact), then one line a value of the document (``section`` data), whose
``key`` is its place and whose ``value`` is JSON, so that the whole document can be built again from it.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui_pilot.sheet.judged import standing
from tui_pilot.sheet.values import facts_of
from tui_pilot.text import harmless, harmless_json

Json = Mapping[str, Any]

COLUMNS = ("section", "run", "key", "value")
#: A cell that begins so is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_json(document: Json) -> str:
    return harmless_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def as_yaml(document: Json) -> str:
    """Characters that a terminal may obey or a reader cannot see are escaped, then all that is not ASCII is."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    data = json.loads(json.dumps(document))
    unicode = harmless_json(as_text := json.dumps(data, ensure_ascii=False)) == as_text
    found: str = yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=unicode, width=100)
    return found


def as_csv(document: Json) -> str:
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for item in document["configurations"]:
        for name, value in (
            ("retained", {"retained": "yes", "not retained": "no"}.get(how := standing(item), how)),
            *facts_of(item),
        ):
            rows.writerow(("fact", item["short"], name, _safe(value)))
    for key, value in leaves(json.loads(json.dumps(document))):
        rows.writerow(("data", "", key, harmless_json(json.dumps(value, ensure_ascii=False))))
    return out.getvalue()


def _safe(value: str) -> str:
    text = harmless(value)
    return "'" + text if text.startswith(_FORMULA) else text


def leaves(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every value with its place, a JSON list of keys and numbers; empty lists and objects are values too."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from leaves(each, (*place, str(key)))
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from leaves(each, (*place, number))
    else:
        yield harmless_json(json.dumps(place, ensure_ascii=False)), value


def from_csv(text: str) -> Any:
    """The document that ``as_csv`` wrote."""
    root: dict[str, Any] = {}
    for section, _, key, value in list(csv.reader(io.StringIO(text)))[1:]:
        if section == "data":
            _put(root, json.loads(key), json.loads(value))
    return root


def _put(root: Any, place: Sequence[str | int], value: Any) -> None:
    for here, after in itertools.pairwise(place):
        fresh: Any = [] if isinstance(after, int) else {}
        if isinstance(root, list):
            if len(root) == here:
                root.append(fresh)
            root = root[int(here)]
        else:
            root = root.setdefault(here, fresh)
    if isinstance(root, list):
        root.append(value)
    else:
        root[place[-1]] = value


def parse(text: str, format: str) -> Any:
    """The document of a sheet in JSON, YAML, CSV or HTML; a page of markdown keeps words alone."""
    if format == "json":
        return json.loads(text)
    if format == "yaml":
        import yaml

        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if format == "csv":
        return from_csv(text)
    if format == "html":
        start = text.index('<script type="application/json" id="sheet">') + len(
            '<script type="application/json" id="sheet">'
        )
        return json.loads(text[start : text.index("</script>", start)])
    raise ValueError(format)
