"""Every shape of data file is read as it is, and what cannot be read is named by file and line."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tui_pilot.errors import DataError
from tui_pilot.tasks.formats import detect, read, sniff
from tui_pilot.tasks.formats.table import Table


def write(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
    return path


def codes(table: Table) -> list[str]:
    return [note["code"] for note in table.notes]


def roles(record: Any) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in record["messages"]]


def test_alpaca_array_has_no_blank_input_block_and_knows_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "alpaca.json"
    path.write_text(
        '[\n {"instruction": "Add", "input": "", "output": "4"},\n'
        ' {"instruction": "Add", "input": "1 2", "output": "3", "id": 9},\n {"instruction": "Only", "output": " "}\n]'
    )
    table = read(path)
    assert table.format == "alpaca"
    assert [record["_line"] for record in table.records] == [2, 3, 4]
    assert roles(table.records[0]) == [("user", "Add"), ("assistant", "4")]
    assert roles(table.records[1]) == [("user", "Add\n\n1 2"), ("assistant", "3")]
    assert table.records[2]["messages"][1]["content"] == " "
    assert table.records[1]["id"] == 9
    assert "id" not in table.records[0]


def test_sharegpt_keeps_every_turn_in_its_role(tmp_path: Path) -> None:
    turns = [
        ("system", "S"),
        ("human", "H"),
        ("gpt", "G"),
        ("function_call", "{}"),
        ("observation", "O"),
        ("tool", "T"),
    ]
    path = write(tmp_path / "a.jsonl", {"conversations": [{"from": a, "value": b, "weight": 1} for a, b in turns]})
    table = read(path)
    assert table.format == "sharegpt"
    assert [role for role, _ in roles(table.records[0])] == ["system", "user", "assistant", "assistant", "tool", "tool"]
    assert [words for _, words in roles(table.records[0])] == [words for _, words in turns]
    assert table.records[0]["messages"][0]["weight"] == 1


def test_unknown_speaker_is_named_with_its_line_unless_the_plan_names_it(tmp_path: Path) -> None:
    good = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    bad = {"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]}
    path = write(tmp_path / "a.jsonl", good, bad)
    table = read(path)
    with pytest.raises(DataError) as caught:
        table.records[1]
    assert (caught.value.line, caught.value.value, caught.value.file) == (2, "narrator", str(path))
    assert "conversations[1].from" in str(caught.value)
    assert roles(read(path, roles={"narrator": "assistant"}).records[1])[1] == ("assistant", "b")


def test_messages_with_tools_stay_as_they_are(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "move", "arguments": '{"x": 0}'}}
    other = {"type": "function", "function": {"name": "turn", "arguments": {"theta": 1}}}
    rows = [
        {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [one]}]}
        for one in (call, other)
    ]
    table = read(write(tmp_path / "a.jsonl", *({**row, "tools": []} for row in rows)))
    assert table.format == "messages"
    for record, row in zip(table.records, rows, strict=True):
        assert record["messages"] == row["messages"]


def test_a_message_with_neither_content_nor_calls_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": None}]})
    with pytest.raises(DataError, match="neither content nor tool_calls"):
        read(path).records[0]


def test_misspelt_role_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"messages": [{"role": "assistnat", "content": "x"}]})
    with pytest.raises(DataError, match="assistnat"):
        read(path).records[0]


def test_prompt_and_completion_under_the_files_own_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"question": "Q", "answer": " A"}, {"question": "Q2"})
    table = read(path, columns={"prompt": "question", "completion": "answer"})
    assert table.format == "prompt_completion"
    assert table.records[0] == {"question": "Q", "answer": " A", "prompt": "Q", "completion": " A", "_line": 1}
    with pytest.raises(DataError, match="answer") as caught:
        table.records[1]
    assert caught.value.line == 2


def test_a_number_where_text_belongs_is_not_cast(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="completion is a number"):
        read(write(tmp_path / "a.jsonl", {"prompt": "6*7", "completion": 42})).records[0]


def test_preference_pairs_as_texts_and_as_messages(tmp_path: Path) -> None:
    turn = [{"role": "assistant", "content": "yes"}]
    path = write(
        tmp_path / "a.jsonl", {"prompt": "p", "chosen": "a", "rejected": "b"}, {"chosen": turn, "rejected": turn}
    )
    table = read(path)
    assert table.format == "preference"
    assert (table.records[0]["chosen"], table.records[1]["rejected"]) == ("a", turn)
    mapped = read(path, columns={"prompt": "prompt", "completion": "chosen"})
    assert mapped.format == "prompt_completion"
    assert mapped.records[0]["completion"] == "a"


@pytest.mark.parametrize(
    ("content", "rule", "documents"),
    [
        (b"one\ntwo\n", "line", ["one", "two"]),
        (b"one\nmore\n\n\ntwo\n", "blank", ["one\nmore", "two"]),
    ],
)
def test_plain_text_states_its_rule(tmp_path: Path, content: bytes, rule: str, documents: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    table = read(path)
    assert table.format == "text"
    assert [record["text"] for record in table.records] == documents
    assert table.notes[-1]["where"]["rule"] == rule
    whole = read(path, documents="whole")
    assert [record["text"] for record in whole.records] == [content.decode().rstrip("\n")]


def test_text_rows_are_documents_only_without_labels(tmp_path: Path) -> None:
    assert detect(write(tmp_path / "a.jsonl", {"text": "x"})) == "text"
    assert detect(write(tmp_path / "b.jsonl", {"text": "x", "label": 1})) == "jsonl"
    assert detect(write(tmp_path / "c.jsonl", {"body": "x", "class": 1}), {"text": "body", "label": "class"}) == "jsonl"


def test_rows_without_a_user_or_without_an_answer_are_read(tmp_path: Path) -> None:
    user, answer = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
    table = read(write(tmp_path / "a.jsonl", {"messages": [user]}, {"messages": [user, answer, user]}))
    assert [len(record["messages"]) for record in table.records] == [1, 3]


def test_byte_order_mark_crlf_and_line_separator(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = json.dumps({"text": "one\u2028two\x85three"}, ensure_ascii=False).encode()
    path.write_bytes(b"\xef\xbb\xbf" + first + b"\r\n\r\n" + b'{"text": "last"}')
    table = read(path)
    assert [record["text"] for record in table.records] == ["one\u2028two\x85three", "last"]
    assert [record["_line"] for record in table.records] == [1, 3]
    assert {"byte_order_mark", "crlf", "blank_lines"} <= set(codes(table))


def test_ids_are_kept_as_given_and_never_made_up(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": "7", "text": "a"}, {"id": 7, "text": "b"}, {"text": "c"}]
    records = read(write(tmp_path / "a.jsonl", *rows)).records
    assert [record.get("id") for record in records] == ["7", 7, None]
    assert "id" not in records[2]


def test_unusual_characters_come_through_unchanged(tmp_path: Path) -> None:
    text = "cafe\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u0631\u062d\u0628\u0627\u200f \x00 [/x]"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": text}) + "\n" + json.dumps({"text": text}, ensure_ascii=False) + "\n", "utf-8")
    assert [record["text"] for record in read(path).records] == [text, text]


def test_half_a_surrogate_pair_is_an_error_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "ok"}\n{"text": "\\ud83d"}\n')
    with pytest.raises(DataError, match="surrogate") as caught:
        read(path).records[1]
    assert caught.value.line == 2


def test_a_broken_line_names_file_and_line_and_all_of_them_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "b"\n\n[1]\n{"text": "\xff"}\n{"text": 5}\n{"text": "z"}\n')
    table = read(path)
    assert table.records[0]["text"] == "a"
    with pytest.raises(DataError) as caught:
        table.records[1]
    assert (caught.value.file, caught.value.line) == (str(path), 2)
    collected = read(path, errors="collect")
    assert [fault.line for fault in collected.faults] == [2, 4, 5, 6]
    assert [record["text"] for record in collected.records] == ["a", "z"]
    assert collected.skipped == 4


def test_a_broken_array_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[\n{"text": "a"},\n{"text": }\n]')
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.line == 3
    collected = read(path, errors="collect")
    assert (len(collected.records), [fault.line for fault in collected.faults]) == (1, [3])


def test_a_key_that_occurs_twice_is_noted_once_per_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "text": "b"}\n')
    table = read(path)
    assert [table.records[0]["text"] for _ in range(3)] == ["b"] * 3
    assert codes(table).count("duplicate_key") == 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\n"])
def test_empty_files_are_said_to_be_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="empty"):
        read(path)


def test_missing_files_folders_packed_and_utf16_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="folder"):
        read(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b"\x1f\x8b\x08rest")
    with pytest.raises(DataError, match="gzip"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes('{"text": "a"}\n'.encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        read(tmp_path / "b.jsonl")


def test_a_row_of_another_shape_says_what_it_lacks(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": "x"}]}, {"text": "y"})
    with pytest.raises(DataError, match="without messages; it has text"):
        read(path).records[1]


def test_many_rows_are_indexed_and_survive_pickling(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"id": number, "text": f"t{number}"} for number in range(3000)))
    rows = read(path).records
    again = pickle.loads(pickle.dumps(rows))
    assert len(rows) == 3000
    assert rows[2999]["text"] == again[-1]["text"] == "t2999"
    assert [record["id"] for record in rows[10:13]] == [10, 11, 12]
    with pytest.raises(IndexError):
        rows[3000]


def test_content_decides_where_the_name_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('{"prompt": "a", "completion": "b"}\n')
    found = sniff(tmp_path / "a.txt")
    assert (found.format, found.container) == ("prompt_completion", "jsonl")
    assert "prompt, completion" in found.reason
    (tmp_path / "b.txt").write_text("{not json} but prose\n")
    assert detect(tmp_path / "b.txt") == "text"
    (tmp_path / "c.dat").write_text("a\tb\nc\td\n")
    assert sniff(tmp_path / "c.dat").container == "tsv"


def test_csv_columns_become_prompt_and_completion(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('q,a\n"one, two","NA"\n')
    table = read(path, columns={"prompt": "q", "completion": "a"})
    assert table.format == "prompt_completion"
    assert (table.records[0]["prompt"], table.records[0]["completion"]) == ("one, two", "NA")


def test_parquet_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1....PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match="pyarrow"):
        read(path)


def test_parquet_rows_by_group(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    turns = [[{"role": "user", "content": "u"}, {"role": "assistant", "content": f"a{number}"}] for number in range(5)]
    label = arrow.array(["b", "a", "b", "a", "b"]).dictionary_encode()
    parquet.write_table(arrow.table({"messages": turns, "label": label}), tmp_path / "a.parquet", row_group_size=2)
    table = read(tmp_path / "a.parquet")
    assert table.format == "messages"
    assert [record["messages"][1]["content"] for record in table.records] == [f"a{number}" for number in range(5)]
    assert [record["label"] for record in table.records] == ["b", "a", "b", "a", "b"]
    assert {"dictionary_column", "nested_nulls"} <= set(codes(table))
    with pytest.raises(IndexError):
        table.records[5]


def test_data_files_are_read_without_torch(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "x"})
    code = (
        "import sys; from tui_pilot.tasks.formats import read; from tui_pilot.tasks import splits, units; "
        "heavy = {'torch', 'numpy', 'transformers'} & set(sys.modules); "
        f"print(read({str(path)!r}).records[0]['text'], sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["x", "[]"]
