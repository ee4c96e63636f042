"""Supervised fine-tuning of a Hugging Face causal language model: chats, prompt and completion, plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.errors import DataError, ModelError
from tui_pilot.plan.model import Plan
from tui_pilot.tasks import hf
from tui_pilot.tasks.base import IGNORE, Batch, Example, NotDefined, Record, Span, Task, encode, shifted_targets
from tui_pilot.tasks.chat import Chat, words_of
from tui_pilot.tasks.formats.table import LINE, Note, note
from tui_pilot.tasks.picked_rows import row_number
from tui_pilot.tasks.plain_text import encode_completion, encode_document
from tui_pilot.tasks.splits import SplitFiles
from tui_pilot.tasks.tokens import Encoded, Tokens
from tui_pilot.tasks.units import Parents, parents_of, unit_of

CONTROL_ROWS = 4
CONTROL_LOOKED_AT = 2000
"""Rows among which the shortest are chosen for the control inputs."""


REMARKS = {
    "edge_inside_token": "a token holds the end of one turn and the start of the next",
    "turns_told_by_content": "the template writes turns into one another; they were told apart by their words",
    "special_in_content": "the words of a turn hold a special token's text, which the model reads as that token",
    "prompt_not_prefix": "the prompt alone is tokenized differently; the mask goes by characters",
}


class SftTask(Task):
    """The model in ``model.path`` on the plan's files; loss on the planned turns."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.files = SplitFiles(plan)
        self._tokens: Tokens | None = None
        self._chat: Chat | None = None
        self._parents: Parents | None = None
        self._last: tuple[Record, Encoded] | None = None
        self.remarks: dict[str, list[int]] = {}
        """What encoding noticed, by code: the lines of the rows (see ``Encoded.remarks``)."""

    # -- data --------------------------------------------------------------------------------------------------------
    def records(self, split: str) -> Sequence[Record]:
        return self.files.records(split)

    def file_notes(self) -> list[Note]:
        """What reading the files and rendering their rows noticed so far: ``{"code", "text", "where"}``."""
        found = [one for split in ("train", "validation", "test") for one in self.files.notes(split)]
        if self._chat is not None and self._chat.invented:
            said = f"the chat template adds a turn of its own: {self._chat.invented!r}"
            found.append(note("template_adds_turn", said))
        for code, lines in self.remarks.items():
            said = f"{REMARKS[code]}: {len(lines):,} times, first at line {lines[0]:,}"
            found.append(note(code, said, lines=lines[:100], lines_count=len(lines)))
        return found

    def faults(self, split: str) -> list[DataError]:
        """Every row of the split's file that cannot be read; reads the whole file."""
        return self.files.faults(split)

    def row_id(self, record: Record) -> str | int | None:
        own = super().row_id(record)
        if own is None and row_number(record) is not None:
            # both sides come from one file: numbers within a side would make different rows look the same
            return f"line-{record[LINE]}"
        return own

    def unit(self, record: Record) -> Any:
        rule = self.plan.data.unit
        if rule is None:
            raise NotDefined("unit")
        if self._parents is None:
            self._parents = parents_of(rule, *(self.files.whole(name) for name in ("train", "validation", "test")))
        return unit_of(rule, record, self._parents)

    def source_text(self, record: Record) -> str:
        if "messages" in record:
            return words_of(record["messages"], self.plan.data.train_on)
        if _is_pair(record):
            chosen = record["chosen"]
            return chosen if isinstance(chosen, str) else words_of(chosen, "last_assistant")
        if "completion" in record:
            return str(record["completion"])
        return str(record.get("text", ""))

    def encode(self, record: Record, max_length: int | None = None) -> Example:
        try:
            if _is_pair(record):
                sides = {side: self._encode_side(record, side).cut(max_length) for side in ("chosen", "rejected")}
                return dict(sides)
            return self._encode(record).cut(max_length)
        except DataError as error:
            if error.line is None:
                error.line = record.get("_line")
            raise

    def spans(self, record: Record, example: Example) -> Sequence[Span]:
        if not isinstance(example, Encoded):
            example = self._encode(record).cut(len(example["input_ids"]))
        assert isinstance(example, Encoded)
        return example.spans

    def special_ids(self) -> dict[str, Any]:
        """Also ``bos_count``, the right numbers of leading BOS ids here, ``table``, the rows of the embedding, and
        ``positions``, the places the model was made for.

        Plain text says how many BOS ids there should be; a template that writes one where plain text has none (a BOS
        that doubles as turn marker) is right too.
        """
        tokens = self.tokens
        ends = [] if tokens.eos is None else [tokens.eos]
        counts = [tokens.before.count(tokens.bos)] if tokens.bos is not None else [0]
        if tokens.tokenizer.chat_template:
            ends = list(dict.fromkeys([*([] if self.chat.turn_end is None else [self.chat.turn_end]), *ends]))
            counts = sorted({*counts, 1}) if self.chat.writes_bos else counts
        found = {"bos": tokens.bos, "end": ends, "pad": tokens.pad, "bos_count": counts}
        table = hf.vocabulary_rows(hf.model_folder(self.plan.model.path))
        places = hf.longest_position(hf.model_folder(self.plan.model.path))
        sizes = {"table": table, "positions": places}
        return found | {name: size for name, size in sizes.items() if size is not None}

    def collate(self, examples: Sequence[Example]) -> Batch:
        if examples and "chosen" in examples[0]:
            raise DataError(
                "the rows are preference pairs, and this task has no loss over two sides",
                "To train on the preferred side set data.columns: {prompt: prompt, completion: chosen}; "
                "a loss over pairs needs a task of your own.",
            )
        return super().collate(examples)

    # -- model -------------------------------------------------------------------------------------------------------
    def build_model(self) -> nn.Module:
        folder = hf.model_folder(self.plan.model.path)
        model = hf.load_weights(folder, self.plan, hf.DTYPES[self.plan.precision])
        self._check_vocabulary(model, folder)
        if self.plan.model.adapter is not None:
            model = hf.add_adapter(model, self.plan.model.adapter)
        return hf.prepare(model, self.plan)

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        """Cross entropy in fp32, summed over supervised tokens, and their number."""
        logits = _logits(model, batch)[:, :-1].float()
        targets = batch["labels"][:, 1:]
        total = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]),
            targets.reshape(-1),
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.plan.loss.label_smoothing,
        )
        return total, (targets != IGNORE).sum()

    def predict(self, model: nn.Module, batch: Batch) -> Any:
        return _logits(model, batch).argmax(dim=-1)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokens.decode(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One text per id; of a character that takes several ids the last has it and the others have nothing."""
        return self.tokens.texts(ids)

    def metrics(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Share of supervised tokens that the arg max names."""
        right = wanted = 0
        for row in predictions:
            predicted = row["predicted"]
            for place, target in shifted_targets([int(one) for one in row["labels"]]):
                wanted += 1
                right += int(predicted[place]) == target
        return {"token_accuracy": right / wanted} if wanted else {}

    def packages(self) -> Sequence[str]:
        names = ["transformers", "tokenizers", "safetensors", "jinja2"]
        names += ["peft"] if self.plan.model.adapter is not None else []
        names += ["flash_attn"] if self.plan.model.attention.startswith("flash") else []
        return names + self.files.packages()

    # -- close -------------------------------------------------------------------------------------------------------
    def save_artifact(self, model: nn.Module, folder: Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        base = hf.model_folder(self.plan.model.path)
        kind = self.plan.export.kind or ("adapter" if self.plan.model.adapter is not None else "full")
        planned = self.plan.export.dtype
        if planned is not None and planned not in hf.DTYPES:
            raise ModelError(f"no such dtype {planned!r}", "fp32, bf16 or fp16.", key="export.dtype", value=planned)
        if kind != "full" and self.plan.model.adapter is None:
            raise ModelError(f"there is no adapter to export as {kind}", "Set export.kind: full.", key="export.kind")
        if kind == "adapter":
            hf.save_adapter(model, folder, base)
        elif kind == "merged":
            hf.save_adapter(model, folder / "adapter", base)
            half = "bf16" if self.plan.precision == "bf16" else None
            hf.merge_in_fresh_process(folder / "adapter", base, folder, planned or half)
        elif self.plan.model.adapter is not None:
            raise ModelError("a model with an adapter cannot be exported as full", "Use merged.", key="export.kind")
        else:
            hf.save_model(model, folder, None if planned is None else hf.DTYPES[planned])
        self.tokens.tokenizer.save_pretrained(str(folder))

    def load_artifact(self, folder: Path) -> nn.Module:
        """The model from the folder (and, for an adapter, the base it names); its tokenizer is used from here on."""
        folder = Path(folder)
        if (folder / hf.ADAPTER_CONFIG).exists():
            base = hf.load_weights(hf.base_of(folder), self.plan, hf.DTYPES[self.plan.precision])
            model = hf.load_adapter(base, folder)
        else:
            planned = self.plan.export.dtype or self.plan.precision
            try:
                model = hf.load_weights(hf.model_folder(str(folder)), self.plan, hf.DTYPES[planned])
            except ModelError as error:
                error.code = {"no_weights": "empty_artifact", "unsafe_model_file": "unsafe_artifact"}.get(
                    error.code, error.code
                )
                raise
        self._use(hf.load_tokenizer(folder, self.plan.model.trust_remote_code))
        return model

    def control_inputs(self) -> Batch:
        """The four shortest rows of validation (or train), whole: their loss and their answers are both compared."""
        records = self.records("validation") or self.records("train")
        looked_at = [records[place] for place in range(min(len(records), CONTROL_LOOKED_AT))]
        shortest = sorted(range(len(looked_at)), key=lambda place: (_size(looked_at[place]), place))[:CONTROL_ROWS]
        return self.collate([encode(self, looked_at[place]) for place in sorted(shortest)])

    def artifact_control_inputs(self, folder: Path) -> Batch | None:
        """The control rows by the tokenizer and template *inside* the artifact; None where it carries no tokenizer."""
        if not (Path(folder) / "tokenizer_config.json").exists():
            return None
        other = type(self)(self.plan)
        other._use(hf.load_tokenizer(Path(folder), self.plan.model.trust_remote_code))
        return other.control_inputs()

    # -- parts -------------------------------------------------------------------------------------------------------
    @property
    def tokens(self) -> Tokens:
        """The tokenizer: the model folder's, or the artifact's after ``load_artifact``."""
        if self._tokens is None:
            folder = hf.model_folder(self.plan.model.path)
            self._use(hf.load_tokenizer(folder, self.plan.model.trust_remote_code))
        assert self._tokens is not None
        return self._tokens

    @property
    def chat(self) -> Chat:
        """The tokenizer's chat template; an error where it has none."""
        if self._chat is None:
            self._chat = Chat(self.tokens)
        return self._chat

    def _use(self, tokenizer: Any) -> None:
        self._tokens, self._chat, self._last = Tokens(tokenizer), None, None

    def _encode(self, record: Record) -> Encoded:
        """The whole row. The last one is kept: an audit asks for a row cut, untruncated, and for its spans."""
        if self._last is not None and self._last[0] is record:
            return self._last[1]
        messages = self._messages(record)
        if messages is not None:
            encoded = self.chat.encode(messages, self.plan.data.train_on, record.get("tools"))
        elif "completion" in record:
            prompt, completion = str(record["prompt"]), str(record["completion"])
            encoded = encode_completion(self.tokens, prompt, completion, self.plan.data.train_on)
        elif "text" in record:
            encoded = encode_document(self.tokens, str(record["text"]))
        else:
            raise DataError(
                "the row has none of messages, conversations, prompt and completion, instruction and output, text",
                "Name the file's own keys in data.columns.",
                file=self.files.path_of(record),
            )
        for code in encoded.remarks:
            self.remarks.setdefault(code, []).append(int(record.get("_line", 0)))
        self._last = (record, encoded)
        return encoded

    def _encode_side(self, record: Record, side: str) -> Encoded:
        prompt, answer = record.get("prompt"), record[side]
        if isinstance(answer, list):
            lead = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt else []
            return self.chat.encode([*lead, *answer], "last_assistant", record.get("tools"))
        if self.tokens.tokenizer.chat_template:
            turns = [{"role": "user", "content": prompt or ""}, {"role": "assistant", "content": answer}]
            return self.chat.encode(turns, "last_assistant")
        return encode_completion(self.tokens, str(prompt or ""), answer, "assistant")

    def _messages(self, record: Record) -> Sequence[Mapping[str, Any]] | None:
        """The row as a conversation, where it is one or the tokenizer can make it one."""
        if "messages" in record:
            messages: Sequence[Mapping[str, Any]] = record["messages"]
            return messages
        if "completion" in record and "prompt" in record and self.tokens.tokenizer.chat_template:
            return [
                {"role": "user", "content": record["prompt"]},
                {"role": "assistant", "content": record["completion"]},
            ]
        return None

    def _check_vocabulary(self, model: nn.Module, folder: Path) -> None:
        """An id without a row in the embedding table would be an index error on a CPU and an assert on a GPU."""
        library: Any = model
        rows = library.get_input_embeddings().weight.shape[0]
        highest = max(self.tokens.tokenizer.get_vocab().values(), default=0)
        if highest >= rows:
            raise ModelError(
                f"token id {highest} is out of the embedding table of {rows} rows",
                "Resize the embeddings before the campaign, or take the tokenizer that belongs to the weights.",
                file=str(folder),
            )


def _logits(model: nn.Module, batch: Batch) -> torch.Tensor:
    output = model(input_ids=batch["input_ids"], attention_mask=batch.get("attention_mask"), use_cache=False)
    logits: torch.Tensor = output.logits
    return logits


def _is_pair(record: Record) -> bool:
    """A preference row, unless the plan's columns made it a prompt with one completion."""
    return "chosen" in record and "rejected" in record and "completion" not in record and "messages" not in record


def _size(record: Record) -> int:
    if "messages" in record:
        return sum(len(str(message.get("content") or "")) for message in record["messages"])
    return sum(len(value) for key, value in record.items() if isinstance(value, str) and key != "id")
