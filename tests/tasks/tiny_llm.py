"""A tiny random Llama with a byte-level tokenizer, written as an ordinary model folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are terse.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is not none %}{{ message['content'] }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}{{ '<call>' + call['function']['name'] + '</call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As widespread chat models have it: BOS is the turn mark, a newline follows the end token, a system turn is added."""

BOS_FIRST = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_BOS = BOS_FIRST.replace("{{ bos_token }}", "")

LINES = [
    "What is two plus two? Four. The answer is 4.",
    "A robe takes two bolts of blue fiber and half that much white fiber.",
    "user assistant system tool question answer hello yes no thanks please",
] * 4


def tokenizer(
    template: str | None = CHATML,
    bos: str | None = "<|im_start|>",
    writes_bos: bool = False,
    lines: Sequence[str] = LINES,
    vocabulary: int = 400,
) -> Any:
    """A fast tokenizer with pad = eos, trained on ``lines``; ``writes_bos``: plain text gets the BOS in front."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(lines, trainer)
    if writes_bos:
        assert bos is not None
        raw.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, raw.token_to_id(bos))]
        )
    make: Any = PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=raw, bos_token=bos, eos_token="<|im_end|>", pad_token="<|im_end|>", unk_token="<|endoftext|>"
    )
    fast.chat_template = template
    return fast


def write_model(folder: Path, own: Any = None, seed: int = 0) -> Path:
    """A model folder of about 60 thousand parameters."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    own = own or tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(own),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    own.save_pretrained(folder)
    return folder
