"""Batch arithmetic against numbers worked out by hand and against a loop that counts one row at a time."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_pilot.errors import EXIT_PLAN_WRONG, PlanError
from tui_pilot.plan.batch import BatchQuestion, answer, explain, question_of, replicas_of, windows
from tui_pilot.plan.model import Batch, Budget, Launch, Plan


def test_the_example_of_the_contract() -> None:
    document = answer(BatchQuestion(micro=2, accumulation=8, examples=3200, held="epochs", amount=1)).as_json()
    wanted = {
        "effective_batch": 16,
        "updates": 200,
        "updates_per_epoch": 200,
        "microbatches_per_epoch": 1600,
        "examples_seen": 3200,
        "examples_dropped": 0,
        "examples_repeated": 0,
        "last_update": {"examples": 16, "microbatches": 8},
        "held": "epochs",
    }
    assert {key: document[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        (BatchQuestion(1, 4, 3200, replicas=8), {"effective_batch": 32, "updates": 100, "microbatches_per_epoch": 400}),
        (BatchQuestion(1, 4, 3200, replicas=8, held="updates", amount=200), {"examples_seen": 6400, "epochs": 2}),
        (BatchQuestion(1, 4, 3), {"updates": 1, "last_update": {"examples": 3, "microbatches": 3}}),
        (BatchQuestion(4, 1, 10, drop_last=True), {"updates": 2, "examples_seen": 8, "examples_dropped": 2}),
        (BatchQuestion(1, 1, 10, replicas=4), {"updates": 3, "examples_seen": 12, "examples_repeated": 2}),
        (BatchQuestion(1, 1, 3, replicas=8), {"updates": 1, "examples_seen": 8, "examples_repeated": 5}),
        (BatchQuestion(2, 4, 10, tail="drop"), {"updates": 1, "examples_seen": 8, "examples_dropped": 2}),
        (BatchQuestion(1, 1, 10, held="epochs", amount=0.3), {"updates": 3, "epochs": 0.3}),
        (BatchQuestion(2, 2, 10, held="examples", amount=11), {"updates": 4, "examples_seen": 14}),
        (BatchQuestion(2, 2, 8, held="tokens", amount=401, mean_tokens=100.0), {"updates": 2, "tokens_seen": 800}),
    ],
)
def test_numbers_worked_out_by_hand(question: BatchQuestion, wanted: dict[str, Any]) -> None:
    document = answer(question).as_json()
    assert {key: document[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (BatchQuestion(32, 1, 18, drop_last=True), ["0 updates", "18 rows", "microbatch of 32", "drop_last"]),
        (BatchQuestion(1, 4, 3, tail="drop"), ["0 updates", "3 rows", "needs 4", "tail"]),
        (BatchQuestion(1, 1, 0), ["0 updates", "no training rows"]),
        (BatchQuestion(1, 1, 5, held="updates", amount=0), ["0 updates"]),
        (BatchQuestion(1, 1, 5, held="epochs", amount=0), ["0 updates"]),
    ],
)
def test_zero_updates_is_an_error_with_a_sentence(question: BatchQuestion, words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        answer(question)
    assert caught.value.exit_code == EXIT_PLAN_WRONG
    assert all(word in caught.value.text for word in words)
    assert caught.value.advice


@pytest.mark.parametrize(
    "question",
    [
        BatchQuestion(0, 1, 5),
        BatchQuestion(1, -1, 5),
        BatchQuestion(1, 1, 5, replicas=0),
        BatchQuestion(1, 1, 5, amount=float("nan")),
        BatchQuestion(1, 1, 5, held="updates", amount=1.5),
        BatchQuestion(1, 1, 5, held="tokens", amount=10),
        BatchQuestion(1, 1, 5, held="tokens", amount=10, mean_tokens=0),
        BatchQuestion(1, 1, 5, held="rows"),  # type: ignore[arg-type]
        BatchQuestion(1, 1, 5, tail="keep"),  # type: ignore[arg-type]
    ],
)
def test_a_question_without_an_answer_names_its_key(question: BatchQuestion) -> None:
    with pytest.raises(PlanError) as caught:
        answer(question)
    assert caught.value.key


def test_model_parallel_ranks_are_no_replicas() -> None:
    assert replicas_of(8) == 8
    assert replicas_of(8, tensor_parallel=2, pipeline_parallel=2, context_parallel=2) == 1
    assert replicas_of(16, tensor_parallel=4) == 4
    with pytest.raises(PlanError, match="do not divide"):
        replicas_of(6, tensor_parallel=4)
    with pytest.raises(PlanError, match="tensor_parallel 0"):
        replicas_of(6, tensor_parallel=0)


def test_a_plan_asks_its_own_question() -> None:
    plan = Plan(
        batch=Batch(micro=2, accumulation=3, tail="drop"),
        budget=Budget(examples=50),
        launch=Launch(processes=4, strategy="ddp", tensor_parallel=2),
    )
    assert question_of(plan, 99) == BatchQuestion(2, 3, 99, replicas=2, tail="drop", held="examples", amount=50)
    assert question_of(Plan(), 10).amount == 200


def test_sentences_name_what_is_lost() -> None:
    said = " ".join(explain(answer(BatchQuestion(4, 2, 30, replicas=2, drop_last=True, mean_tokens=10))))
    assert "2 replicas" in said and "Dropped: 6 rows" in said and "tokens" in said
    assert "last update is smaller" in said


def loop(question: BatchQuestion, stop: Any) -> dict[str, Any]:
    """The training loop, counting: rows dealt to replicas, cut into microbatches, stepped on when a window is full."""
    order = list(range(question.examples))
    made: list[list[list[int]]] = []
    seen = dropped = repeated = per_epoch = microbatches = 0
    while True:
        rows = list(order)
        if question.drop_last:
            rows = rows[: len(rows) // question.replicas * question.replicas]
        else:
            rows = list(
                itertools.islice(itertools.cycle(order), -(-len(rows) // question.replicas) * question.replicas)
            )
        shards = [rows[rank :: question.replicas] for rank in range(question.replicas)]
        batches = [[shard[at : at + question.micro] for at in range(0, len(shard), question.micro)] for shard in shards]
        if question.drop_last:
            batches = [[batch for batch in each if len(batch) == question.micro] for each in batches]
        microbatches = len(batches[0])
        epoch_seen: list[int] = []
        count = 0
        for at in range(0, microbatches, question.accumulation):
            window = [each[at : at + question.accumulation] for each in batches]
            if len(window[0]) < question.accumulation and question.tail == "drop":
                break
            count += 1
            made.append([[len(batch) for batch in each] for each in window])
            inside = [row for each in window for batch in each for row in batch]
            epoch_seen += inside
            seen += len(inside)
            last = at + question.accumulation >= microbatches - (
                microbatches % question.accumulation if question.tail == "drop" else 0
            )
            if last:
                dropped += question.examples - len(set(epoch_seen))
                repeated += len(epoch_seen) - len(set(epoch_seen))
                per_epoch = count
            if stop(len(made), seen, per_epoch if last else None):
                return {"made": made, "seen": seen, "dropped": dropped, "repeated": repeated, "micro": microbatches}
        if count == 0:
            return {"made": [], "seen": 0, "dropped": 0, "repeated": 0, "micro": microbatches}


questions = st.builds(
    BatchQuestion,
    micro=st.integers(1, 6),
    accumulation=st.integers(1, 6),
    examples=st.integers(1, 60),
    replicas=st.integers(1, 5),
    drop_last=st.booleans(),
    tail=st.sampled_from(["step", "drop"]),
)


@settings(max_examples=300, deadline=None)
@given(question=questions, held=st.sampled_from(["updates", "epochs", "examples", "tokens"]), size=st.integers(1, 120))
def test_every_combination_against_the_loop(question: BatchQuestion, held: Any, size: int) -> None:
    whole = loop(question, lambda made, seen, epoch: epoch is not None)
    if not whole["made"]:
        with pytest.raises(PlanError, match="0 updates"):
            answer(question)
        return
    per_epoch = len(whole["made"])
    amount = size / 40 if held == "epochs" else size
    question = replace(question, held=held, amount=amount, mean_tokens=2.5 if held == "tokens" else None)
    epochs_wanted = Fraction(size, 40) * per_epoch
    stops = {
        "updates": lambda made, seen, epoch: made == size,
        "epochs": lambda made, seen, epoch: made >= epochs_wanted,
        "examples": lambda made, seen, epoch: seen >= size,
        "tokens": lambda made, seen, epoch: seen * 2.5 >= size,
    }
    counted = loop(question, stops[held])
    found = answer(question)
    made = counted["made"]
    assert found.updates == len(made)
    assert found.updates_per_epoch == per_epoch
    assert found.microbatches_per_epoch == counted["micro"]
    assert found.examples_seen == counted["seen"]
    assert found.examples_dropped == counted["dropped"]
    assert found.examples_repeated == counted["repeated"]
    assert found.last_update.examples == sum(sum(sizes) for sizes in made[-1])
    assert found.last_update.microbatches == len(made[-1][0])
    assert math.isclose(found.epochs, len(made) / per_epoch, abs_tol=1e-6)
    assert all(sizes == window[0] for window in made for sizes in window)
    assert list(windows(question)) == [window[0] for window in made]
    assert max(map(sum, map(itertools.chain.from_iterable, made))) <= found.effective_batch
    assert explain(found)
