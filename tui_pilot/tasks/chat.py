"""Conversations to ids, labels and spans through the tokenizer's own chat template.

The whole conversation is rendered and tokenized once, exactly as a server would see it. Where a turn lies is found by
rendering message by message: what prefix k+1 adds to prefix k is turn k. Inside an assistant's turn the model must
write everything after the generation prompt up to the turn's end token; template text after that is not its to learn.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tui_pilot.errors import DataError, ModelError
from tui_pilot.tasks.base import Span
from tui_pilot.tasks.tokens import Encoded, Pieces, Tokens, masked

Message = Mapping[str, Any]
TrainOn = Literal["all", "assistant", "last_assistant"]
PROBE = "Xq7Probe"
"""Stands for a content when the template's static text is asked for: plain letters, so that no filter changes it."""


class Chat:
    """One tokenizer's chat template; static pieces of the template are asked for once and kept."""

    def __init__(self, tokens: Tokens) -> None:
        if not getattr(tokens.tokenizer, "chat_template", None):
            raise ModelError(
                "the tokenizer has no chat template, and the rows are conversations",
                "Put the model's chat_template.jinja into its folder, or give data as prompt and completion.",
                code="template_missing",
            )
        self.tokens = tokens
        self._prompt: str | None = None
        self._between: dict[tuple[str, str], str] = {}
        self.turn_end = self._turn_end()
        if self.turn_end is not None:
            tokens.special.add(self.turn_end)
        self.invented = self._invented()
        probe = tokens.ids(self.render([{"role": "user", "content": PROBE}]))
        self.writes_bos = tokens.bos is not None and probe[:1] == [tokens.bos]

    # -- rendering -----------------------------------------------------------------------------------------------------
    def render(self, messages: Sequence[Message], tools: Any = None, prompt: bool = False) -> str:
        """The conversation as text; ``prompt`` adds what stands before an answer."""
        try:
            return str(
                self.tokens.tokenizer.apply_chat_template(
                    list(messages), tools=_tools(tools), tokenize=False, add_generation_prompt=prompt
                )
            )
        except Exception as error:
            # the template is foreign code and raises what it likes; the row is at fault as far as we know
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise DataError(
                f"the chat template refuses this conversation ({roles}): {error}",
                "Change the turns so that the template takes them, or the template.",
            ) from error

    def encode(self, messages: Sequence[Message], train_on: TrainOn, tools: Any = None) -> Encoded:
        """Ids, labels and spans of the whole conversation, not cut."""
        text = self.render(messages, tools)
        pieces = self.tokens.pieces(text)
        before = self._before(pieces)
        remarks: list[str] = []
        spans = self._spans(messages, tools, pieces, remarks)
        ids = [*before, *pieces.ids]
        spans = [(start + len(before), end + len(before), role, turn) for start, end, role, turn in spans]
        answers = [(start, end) for start, end, role, _ in spans if role == "assistant"]
        if train_on == "all":
            labels = masked(ids, [(len(before), len(ids))])
        elif train_on == "last_assistant":
            last = _last_answer(messages)
            labels = masked(ids, [(start, end) for start, end, _, turn in spans if turn == last])
        else:
            labels = masked(ids, answers)
        return Encoded(ids, labels, spans, remarks)

    def _before(self, pieces: Pieces) -> list[int]:
        """BOS exactly as plain text gets it, unless the template has written it already."""
        before = self.tokens.before
        return [] if pieces.ids[: len(before)] == before else before

    # -- where turns lie -----------------------------------------------------------------------------------------------
    def _spans(self, messages: Sequence[Message], tools: Any, pieces: Pieces, remarks: list[str]) -> list[Span]:
        special = self.tokens.special
        edges = self._edges(messages, tools, pieces.text)
        spans: list[Span] = []
        known = [turn for turn, edge in enumerate(edges) if edge is not None]
        for first, stop in itertools.pairwise(known):
            start, end = edges[first], edges[stop]
            assert start is not None and end is not None
            if start and pieces.crosses(start):
                remarks.append("edge_inside_token")
            if stop - first == 1:
                found = self._turn(messages, tools, first, pieces, (start, end))
                spans += [] if found is None else [found]
            else:
                remarks.append("turns_told_by_content")
                spans += _by_content(messages, range(first, stop), pieces, (start, end), special)
        for start, end, _, _ in spans:
            if not special.isdisjoint(pieces.ids[start : end - 1]):
                remarks.append("special_in_content")
                break
        return spans

    def _edges(self, messages: Sequence[Message], tools: Any, text: str) -> list[int | None]:
        """Character places where turns begin, and the text's end; None where the template rewrites earlier turns."""
        edges: list[int | None] = [0]
        reached = 0
        for count in range(1, len(messages)):
            try:
                prefix = self.render(messages[:count], tools)
            except DataError:
                prefix = ""  # e.g. a template that takes no conversation of a system turn alone
            edge = self._edge(messages, count, prefix, text, reached)
            if edge is not None:
                reached = edge
            edges.append(edge)
        return [*edges, len(text)]

    def _edge(self, messages: Sequence[Message], count: int, prefix: str, text: str, reached: int) -> int | None:
        """Where turn ``count`` begins. The plain case: the text begins with the prefix of the turns before it.

        Templates that close only the last turn differ in the prefix's last characters: then what is shared counts, if
        it holds the turn's words. Templates that rewrite earlier answers (thinking removed): the next turn's header and
        words are looked for.
        """
        if prefix and text.startswith(prefix) and len(prefix) >= reached:
            return len(prefix)
        before, here = messages[count - 1], messages[count]
        shared = _shared(prefix, text)
        words = _words(before).strip()
        if words and shared > reached and words in text[reached:shared]:
            return shared
        header = self._header(str(before.get("role")), str(here.get("role")))
        place = text.find(header + _words(here).strip()[:200], reached) if header else -1
        return place if place >= 0 else None

    def _turn(
        self, messages: Sequence[Message], tools: Any, turn: int, pieces: Pieces, region: tuple[int, int]
    ) -> Span | None:
        """The turn's own words with its end token: no header, no template text after the end."""
        start, end = region
        role = str(messages[turn].get("role"))
        text = pieces.text[start:end]
        words = _words(messages[turn]).strip()
        if role == "assistant":
            begin = start + self._answer_starts(text, words)
        else:
            given = _words(messages[turn])
            words = given if given and given in text else words  # templates may trim
            begin = start + max(0, text.rfind(words) if words else -1)
        first, stop = pieces.tokens(begin, end)
        inside = pieces.tokens(begin, begin + len(words))[1] if words and role != "assistant" else first
        for place in range(stop - 1, max(first, inside) - 1, -1):
            if pieces.ids[place] in self.tokens.special:
                return (first, place + 1, role, turn)
        written = pieces.text[begin:end]
        stop = pieces.tokens(begin, begin + len(written.rstrip()))[1]
        return (first, stop, role, turn) if stop > first else None

    def _answer_starts(self, text: str, words: str) -> int:
        """Where in an assistant's turn the model begins to write: after the generation prompt.

        A generation prompt may say more than the turn of a row (an opened thinking block): then the words are looked
        for behind what both share, so that a word of the header is never taken for the answer.
        """
        prompt = self._generation_prompt()
        lead = text.find(prompt)  # a separator may stand before it
        if lead >= 0:
            return lead + len(prompt)
        shared = _shared(prompt, text)
        place = text.find(words, max(0, shared - len(words) + 1)) if words else -1
        return place if place >= 0 else shared

    # -- what the template writes by itself ----------------------------------------------------------------------------
    def _generation_prompt(self) -> str:
        """What stands before an answer; of a template that has no generation prompt, the header of an answer."""
        if self._prompt is None:
            asked = [{"role": "user", "content": PROBE}]
            plain, prompted = self.render(asked), self.render(asked, prompt=True)
            self._prompt = prompted[len(plain) :] if prompted.startswith(plain) else ""
            if not self._prompt:
                header = self._header("user", "assistant")
                # a blank alone is the model's to write: it stands behind the prompt's last token
                self._prompt = header if header.strip() else ""
        return self._prompt

    def _header(self, before: str, role: str) -> str:
        """What stands between the end of one turn and the words of the next, the earlier turn's end left out."""
        key = (before, role)
        if key not in self._between:
            lead = {"assistant": ["user", "assistant"], "tool": ["user", "assistant", "tool"]}.get(before, [before])
            chain = [{"role": one, "content": f"{PROBE}{place}"} for place, one in enumerate(lead)]
            try:
                shorter = self.render(chain)
                longer = self.render([*chain, {"role": role, "content": f"{PROBE}9"}])
            except DataError:
                shorter, longer = "", ""
            closing = shorter.rpartition(f"{PROBE}{len(lead) - 1}")[2]
            between = longer.partition(f"{PROBE}{len(lead) - 1}")[2].partition(f"{PROBE}9")[0]
            self._between[key] = between[_shared(closing, between) :]
        return self._between[key]

    def _turn_end(self) -> int | None:
        """The id that closes an assistant's turn: the first special token after its words."""
        try:
            text = self.render([{"role": "user", "content": PROBE}, {"role": "assistant", "content": f"{PROBE}9"}])
        except DataError:
            return None
        tail = text.rpartition(f"{PROBE}9")[2]
        ids = self.tokens.ids(tail)
        added = {int(one) for one in getattr(self.tokens.tokenizer, "added_tokens_decoder", {})}
        return next((one for one in ids if one in self.tokens.special or one in added), None)

    def _invented(self) -> str:
        """A turn that the template adds in front of a conversation without system turn (a default system message)."""
        try:
            alone = self.render([{"role": "user", "content": PROBE}])
            system = self.render([{"role": "system", "content": f"{PROBE}8"}, {"role": "user", "content": PROBE}])
        except DataError:
            return ""
        header = self._header("assistant", "user")
        lead = alone.partition(PROBE)[0]
        if header and lead.endswith(header) and f"{PROBE}8" in system:
            lead = lead[: -len(header)]
            bos = self.tokens.tokenizer.bos_token or ""
            return "" if lead.strip() in ("", bos) else lead
        return ""


def answers(messages: Sequence[Message], train_on: TrainOn) -> list[int]:
    """Turns whose words are to be learned."""
    if train_on == "all":
        return list(range(len(messages)))
    places = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    return places[-1:] if train_on == "last_assistant" else places


def words_of(messages: Sequence[Message], train_on: TrainOn) -> str:
    """The source's own words that are to be learned, as they should stand in the decoded supervised text.

    Where the template writes more between them (turns' headers with ``all``, tool calls), one whole turn stands for
    the row: the last answer, or the longest one that has words.
    """
    turns = [messages[place] for place in answers(messages, train_on)]
    if train_on == "all":
        last = _last_answer(messages)
        return _words(messages[-1 if last is None else last])
    calls = [call for turn in turns for call in turn.get("tool_calls") or ()]
    if not calls:
        return "".join(_words(turn) for turn in turns)
    longest = max((_words(turn) for turn in turns), key=len)
    return longest if longest.strip() else str((calls[0].get("function") or calls[0]).get("name", ""))


def _words(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def _last_answer(messages: Sequence[Message]) -> int | None:
    return next(
        (place for place in range(len(messages) - 1, -1, -1) if messages[place].get("role") == "assistant"), None
    )


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at their start."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])


def _tools(tools: Any) -> Any:
    return json.loads(tools) if isinstance(tools, str) else tools or None


def _by_content(
    messages: Sequence[Message], turns: range, pieces: Pieces, region: tuple[int, int], special: set[int]
) -> list[Span]:
    """Turns that the template writes into one another (a system turn inside the first user turn), by their words."""
    spans: list[Span] = []
    place, end = region
    for turn in turns:
        role, words = str(messages[turn].get("role")), _words(messages[turn]).strip()
        if role == "assistant" and (not words or pieces.text.count(words, *region) != 1):
            # a wrong guess here would train on the wrong words without a sign of it
            raise DataError(
                f"the chat template rewrites the conversation, so where turn {turn} (assistant) lies cannot be told",
                "Use a template that writes the turns one after another.",
            )
        found = pieces.text.find(words, place, end) if words else -1
        if found < 0:
            continue  # its words are not in the text: there is no span to show, and the examples gate counts messages
        place = found + len(words)
        first, stop = pieces.tokens(found, place)
        if stop < len(pieces.ids) and pieces.ids[stop] in special:
            stop += 1
        spans.append((first, stop, role, turn))
    return spans
