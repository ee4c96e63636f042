"""Comma and tab separated files: every cell as it stands there, every doubt decided from the file and said."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats import read
from tui_pilot.tasks.formats.table import Table
from tui_pilot.tasks.formats.tables import column_key, read_table


def table(folder: Path, content: str | bytes, name: str = "rows.csv", **options: Any) -> Table:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return read_table(file, format=file.suffix[1:], **options)


def codes(found: Table) -> dict[str, dict[str, Any]]:
    return {note["code"]: note["where"] for note in found.notes}


def cells(found: Table) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "_line"} for record in found.records]


def test_quotes_commas_and_newlines_inside_fields(tmp_path: Path) -> None:
    found = table(tmp_path, 'text,label\n"a, b\nc ""d""",x\nplain,y\n')
    assert cells(found) == [{"text": 'a, b\nc "d"', "label": "x"}, {"text": "plain", "label": "y"}]
    assert [record["_line"] for record in found.records] == [2, 4]
    assert found.columns == ("text", "label")


def test_words_that_others_take_for_missing_stay_words_and_are_counted(tmp_path: Path) -> None:
    words = ["positive", "None", "NA", "null", "n/a", "nan"]
    found = table(tmp_path, "label,text\n" + "".join(f"{word},t\n" for word in words))
    assert [record["label"] for record in found.records] == words
    assert codes(found)["missing_words"]["count"] == 5
    assert "empty_cells" not in codes(found)


def test_empty_cells_are_empty_text_and_counted_with_their_lines(tmp_path: Path) -> None:
    found = table(tmp_path, 'text,label\na,\n"",x\nb,\n')
    assert [record["label"] for record in found.records] == ["", "x", ""]
    empty = [note["where"] for note in found.notes if note["code"] == "empty_cells"]
    assert {(each["key"], each["count"], tuple(each["lines"])) for each in empty} == {
        ("text", 1, (3,)),
        ("label", 2, (2, 4)),
    }


def test_without_quoting_rules_rows_are_physical_lines_and_the_difference_is_said(tmp_path: Path) -> None:
    content = 'ham\tsay "hi\nham\t"open\nspam\tmiddle\nham\tclose"\n'
    file = tmp_path / "rows.tsv"
    file.write_text(content, "utf-8")
    with file.open(newline="") as stream:
        by_default = len(list(csv.reader(stream, delimiter="\t")))
    for quoting in ("none", "auto"):
        found = read_table(file, format="tsv", header=False, quoting=quoting, columns={"label": 0, "text": 1})
        assert [record["text"] for record in found.records] == ['say "hi', '"open', "middle", 'close"']
        where = codes(found)["quoting_differs"]
        assert (where["rows"], where["rows_with_quoting"], where["lines"]) == (4, by_default, [2])


def test_a_csv_whose_quotes_are_rules_is_read_by_them(tmp_path: Path) -> None:
    found = table(tmp_path, 'label,text\nx,"one, two"\ny,"three"\n')
    assert [record["text"] for record in found.records] == ["one, two", "three"]
    assert "quoting" in codes(found)


def test_quotes_inside_a_cell_need_no_decision(tmp_path: Path) -> None:
    found = table(tmp_path, 'label,text\nx,a 5" pipe\ny,b\n')
    assert found.records[0]["text"] == 'a 5" pipe'
    assert not codes(found)


def test_a_quote_that_is_never_closed_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="never closed") as caught:
        table(tmp_path, 'label,text\nx,"a, b"\ny,"c, d\nz,e,f\n')
    assert caught.value.line == 3
    assert "quoting: none" in caught.value.advice


def test_columns_by_number_without_a_header(tmp_path: Path) -> None:
    for columns in ({"label": 0, "text": 1}, {"label": "0", "text": "1"}):
        found = table(tmp_path, "x,one,p\ny,two,q\n", header=False, columns=columns)
        assert cells(found)[0] == {"label": "x", "text": "one", "2": "p"}
        assert found.records[0]["_line"] == 1
    with pytest.raises(DataError, match="columns 0 to 2") as caught:
        table(tmp_path, "x,one,p\n", header=False, columns={"label": 7})
    assert caught.value.key == "data.columns.label"


def test_a_row_with_another_number_of_fields_names_its_line_or_is_collected(tmp_path: Path) -> None:
    content = "text,label\na,x\nb,y,z\nc,x\nd\n"
    with pytest.raises(DataError, match="3 fields where 2 are due") as caught:
        table(tmp_path, content)
    assert caught.value.line == 3
    found = table(tmp_path, content, errors="collect")
    assert [record["text"] for record in found.records] == ["a", "c"]
    assert found.skipped == 2
    assert [fault.line for fault in found.faults] == [3, 5]


def test_byte_order_mark_crlf_and_blank_lines_are_notes_and_no_data(tmp_path: Path) -> None:
    found = table(tmp_path, b"\xef\xbb\xbftext,label\r\na,x\r\n\r\nb,y\r\n")
    assert found.columns == ("text", "label")
    assert [record["label"] for record in found.records] == ["x", "y"]
    assert [record["_line"] for record in found.records] == [2, 4]
    assert {"byte_order_mark", "crlf", "blank_lines"} <= set(codes(found))
    plain = table(tmp_path, b"a\tx\r\nb\ty\r\n", "rows.tsv", header=False, quoting="none")
    assert [record["1"] for record in plain.records] == ["x", "y"]


def test_exotic_newlines_nul_and_very_long_fields_are_data(tmp_path: Path) -> None:
    long = "w " * 200_000
    found = table(tmp_path, f'text,label\n"a\u2028b\x0c\0",x\n"{long}",y\n')
    assert found.records[0]["text"] == "a\u2028b\x0c\0"
    assert found.records[1]["text"] == long
    assert csv.field_size_limit() == 131_072


@pytest.mark.parametrize(
    ("content", "said", "line"),
    [
        (b"", "empty", None),
        (b"\n \n", "empty", None),
        (b"text,label\n", "no rows", 1),
        (b"text,label\na,x\nb\xff,y\n", "0xff is not UTF-8", 3),
        (b"text,text\na,x\n", "names 'text' 2 times", 1),
        ("text,label\n".encode("utf-16"), "UTF-16", None),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(
    tmp_path: Path, content: bytes, said: str, line: int | None
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        table(tmp_path, content)
    assert caught.value.line == line
    assert str(caught.value.file).endswith("rows.csv")


def test_another_delimiter_is_noted(tmp_path: Path) -> None:
    found = table(tmp_path, "text;label\na;x\n")
    assert cells(found) == [{"text": "a", "label": "x"}]
    assert "delimiter" in codes(found)


def test_column_key_prefers_the_plans_name() -> None:
    assert column_key({"text": "body"}, "text", ["text", "body"]) == "body"
    assert column_key({}, "text", ["text"]) == "text"
    assert column_key({"text": "1"}, "text", ["kind", "body"]) == "body"
    assert column_key({}, "text", ["body"]) is None


def test_the_real_sms_file(shared_sms: Path) -> None:
    found = read(shared_sms, header=False, quoting="none", columns={"label": "0", "text": "1"})
    assert len(found.records) == 5_574
    where = next(note["where"] for note in found.notes if note["code"] == "quoting_differs")
    assert (where["rows"], where["rows_with_quoting"]) == (5_574, 5_572)
    texts = Counter(record["text"] for record in found.records)
    assert sum(count > 1 for count in texts.values()) == 281
    assert Counter(record["label"] for record in found.records) == {"ham": 4_827, "spam": 747}


@pytest.fixture
def shared_sms() -> Path:
    file = Path(__file__).parents[3] / "shared" / "data" / "sms_spam" / "sms.tsv"
    if not file.is_file():
        pytest.skip("no shared/data/sms_spam beside the checkout")
    return file
