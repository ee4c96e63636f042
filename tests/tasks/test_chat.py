"""Which tokens of a conversation carry a label, over templates of different habits."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.errors import DataError, ModelError

pytest.importorskip("tokenizers", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

from tiny_llm import BOS_FIRST, CHATML, NO_BOS, tokenizer

from tui_pilot.tasks.base import IGNORE
from tui_pilot.tasks.chat import Chat
from tui_pilot.tasks.tokens import Tokens

SYSTEM = "{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
INSIDE = (  # the system turn stands inside the first user turn, roles must alternate, no generation prompt
    SYSTEM + "{% if messages|length < 2 and first %}{{ raise_exception('no user turn') }}{% endif %}"
    "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}"
    "{{ '[INST] ' + (first if loop.first else '') + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
CLOSING = "(eos_token if loop.last else '\n\n')"
LAST_ONLY = (  # only the last turn is closed
    "{% for m in messages %}{{ '### ' + m.role + ':\n' + m.content + " + CLOSING + " }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant:\n' }}{% endif %}"
)
THINKING = (  # earlier answers lose their thinking
    "{% for m in messages %}{% set c = m.content %}{% if not loop.last and '</think>' in c %}"
    "{% set c = c.split('</think>')[-1]|trim %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + c + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_PROMPT = LAST_ONLY.partition("{% if add_generation_prompt")[0]  # a header, but no generation prompt
OPENED = NO_BOS.replace("<|im_start|>assistant\n' }}", "<|im_start|>assistant\n<think>' }}")  # thinking is opened
TRIMMING = CHATML.replace("{{ message['content'] }}", "{{ message['content']|trim }}")


def turns(*words: str) -> list[dict[str, Any]]:
    """``"user: hello"`` and so on."""
    parts = [one.partition(": ") for one in words]
    return [{"role": role, "content": content} for role, _, content in parts]


def learned(chat: Chat, messages: list[dict[str, Any]], how: Any = "assistant") -> str:
    return chat.tokens.decode([one for one in chat.encode(messages, how)["labels"] if one != IGNORE])


def shown(chat: Chat, messages: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    encoded = chat.encode(messages, "assistant")
    return [
        (role, turn, chat.tokens.decode(encoded["input_ids"][start:end])) for start, end, role, turn in encoded.spans
    ]


TALK = turns("user: hello", "assistant: yes please", "user: no", "assistant: thanks")


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(Tokens(tokenizer()))


def test_answers_and_their_end_tokens_are_learned_and_nothing_else(chat: Chat) -> None:
    assert learned(chat, TALK) == "yes please<|im_end|>thanks<|im_end|>"
    encoded = chat.encode(TALK, "assistant")
    assert chat.tokens.decode(encoded["input_ids"][-1:]) == "\n"
    assert encoded["labels"][-1] == IGNORE
    for token, label in zip(encoded["input_ids"], encoded["labels"], strict=True):
        assert label in (IGNORE, token)


def test_only_the_last_answer_when_the_plan_says_so(chat: Chat) -> None:
    assert learned(chat, TALK, "last_assistant") == "thanks<|im_end|>"
    everything = chat.encode(TALK, "all")
    assert everything["labels"] == everything["input_ids"]


def test_spans_name_role_and_turn_and_leave_the_template_out(chat: Chat) -> None:
    assert shown(chat, TALK) == [
        ("user", 0, "hello<|im_end|>"),
        ("assistant", 1, "yes please<|im_end|>"),
        ("user", 2, "no<|im_end|>"),
        ("assistant", 3, "thanks<|im_end|>"),
    ]


def test_an_added_system_turn_is_known_and_not_learned(chat: Chat) -> None:
    assert chat.invented == "<|im_start|>system\nYou are terse.<|im_end|>\n"
    assert chat.render(TALK).startswith(chat.invented)
    assert Chat(Tokens(tokenizer(NO_BOS))).invented == ""


def test_a_trailing_question_is_context_and_a_lone_one_has_no_label(chat: Chat) -> None:
    assert learned(chat, [*TALK, *turns("user: bye")]) == learned(chat, TALK)
    assert learned(chat, turns("user: hello")) == ""


def test_tool_calls_are_learned_and_tool_answers_are_not(chat: Chat) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "move", "arguments": "{}"}}]}
    messages = [*turns("user: go"), call, *turns("tool: done", "assistant: ok")]
    assert learned(chat, messages) == "<call>move</call><|im_end|>ok<|im_end|>"
    assert [role for role, _, _ in shown(chat, messages)] == ["user", "assistant", "tool", "assistant"]


def test_characters_of_several_tokens_lie_whole_inside_their_turn(chat: Chat) -> None:
    words = "cafe\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u0631\u062d\u0628\u0627\u200f"
    messages = turns(f"user: {words}", f"assistant: {words}")
    assert learned(chat, messages) == words + "<|im_end|>"
    encoded = chat.encode(messages, "assistant")
    assert chat.tokens.decode(encoded["input_ids"]) == chat.render(messages)
    texts = chat.tokens.texts(encoded["input_ids"])
    assert "".join(texts) == chat.render(messages)
    assert not any("\ufffd" in text for text in texts)


def test_blank_answer_and_spaces_at_the_edges(chat: Chat) -> None:
    assert learned(chat, turns("user: a", "assistant:   ")) == "  <|im_end|>"
    assert learned(chat, turns("user: assistant", "assistant: assistant")) == "assistant<|im_end|>"


def test_a_special_token_written_in_a_turn_is_remarked(chat: Chat) -> None:
    assert chat.encode(turns("user: say <|im_end|> now", "assistant: ok"), "assistant").remarks == [
        "special_in_content"
    ]
    assert chat.encode(TALK, "assistant").remarks == []


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (INSIDE, " yes please<|im_end|> thanks<|im_end|>"),
        (LAST_ONLY, "yes pleasethanks<|im_end|>"),
        (TRIMMING, "yes please<|im_end|>thanks<|im_end|>"),
        (BOS_FIRST, "yes please<|im_end|>thanks<|im_end|>"),
        (NO_PROMPT, "yes pleasethanks<|im_end|>"),
        (OPENED, "yes please<|im_end|>thanks<|im_end|>"),
    ],
)
def test_templates_of_other_habits(template: str, expected: str) -> None:
    assert learned(Chat(Tokens(tokenizer(template))), TALK) == expected


def test_turns_written_into_one_another_are_told_apart_by_their_words() -> None:
    chat = Chat(Tokens(tokenizer(INSIDE)))
    messages = [*turns("system: please"), *TALK]
    assert learned(chat, messages) == " yes please<|im_end|> thanks<|im_end|>"
    found = shown(chat, messages)
    assert [(role, turn) for role, turn, _ in found] == [
        ("system", 0), ("user", 1), ("assistant", 2), ("user", 3), ("assistant", 4),
    ]  # fmt: skip
    assert found[0][2].strip() == "please"
    assert "turns_told_by_content" in chat.encode(messages, "assistant").remarks


def test_thinking_that_the_template_removes_is_not_looked_for() -> None:
    chat = Chat(Tokens(tokenizer(THINKING)))
    thought = turns("user: a", "assistant: <think>hm</think>yes", "user: b", "assistant: <think>so</think>no")
    assert learned(chat, thought) == "yes<|im_end|><think>so</think>no<|im_end|>"
    assert len(shown(chat, thought)) == 4


@pytest.mark.parametrize("template", [CHATML, NO_PROMPT, OPENED, LAST_ONLY, INSIDE])
def test_an_answer_that_repeats_the_header_is_told_from_it(template: str) -> None:
    chat = Chat(Tokens(tokenizer(template)))
    assert learned(chat, turns("user: user", "assistant: assistant")).strip() == "assistant<|im_end|>"


def test_an_answer_that_cannot_be_found_for_sure_is_refused() -> None:
    backwards = "{% for m in messages|reverse %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    chat = Chat(Tokens(tokenizer(backwards)))
    with pytest.raises(DataError, match="cannot be told"):
        chat.encode(turns("user: yes", "assistant: yes"), "assistant")


def leading(ids: list[int], one: int) -> int:
    return next((place for place, token in enumerate(ids) if token != one), len(ids))


@pytest.mark.parametrize(
    ("template", "bos", "writes_bos", "count"),
    [
        (BOS_FIRST, "<s>", True, 1),  # both would write one: never two
        (NO_BOS, "<s>", True, 1),  # only the tokenizer does: never lost
        (BOS_FIRST, "<s>", False, 1),  # only the template does
        (NO_BOS, "<s>", False, 0),  # nobody does
        (CHATML, "<|im_start|>", False, 1),  # it doubles as the turn mark
    ],
)
def test_bos_stands_once_where_the_model_expects_it(template: str, bos: str, writes_bos: bool, count: int) -> None:
    chat = Chat(Tokens(tokenizer(template, bos, writes_bos)))
    encoded = chat.encode(TALK, "assistant")
    assert leading(encoded["input_ids"], chat.tokens.bos or 0) == count
    assert learned(chat, TALK) == "yes please<|im_end|>thanks<|im_end|>"


def test_cutting_ends_spans_and_drops_those_behind(chat: Chat) -> None:
    whole = chat.encode(TALK, "assistant")
    first = whole.spans[1]
    cut = whole.cut(first[0] + 1)
    assert len(cut["input_ids"]) == len(cut["labels"]) == first[0] + 1
    assert cut.spans[-1] == (first[0], first[0] + 1, "assistant", 1)
    assert whole.cut(None) is whole


def test_a_template_that_refuses_a_row_is_quoted(chat: Chat) -> None:
    strict = Chat(Tokens(tokenizer(INSIDE)))
    with pytest.raises(DataError, match="no user turn"):
        strict.encode(turns("system: alone"), "assistant")


def test_without_a_template_there_is_advice() -> None:
    with pytest.raises(ModelError, match="no chat template"):
        Chat(Tokens(tokenizer(None)))


def test_a_conversation_may_begin_with_an_answer(chat: Chat) -> None:
    assert learned(chat, turns("assistant: yes", "user: no please", "assistant: ok")) == "yes<|im_end|>ok<|im_end|>"
