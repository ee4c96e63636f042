"""Area 11, several processes: rows apart, one gradient, replicas alike. Two gloo ranks where a rank can be at fault."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from area_8 import SMALL, plan
from lab import Lab, codes, pilot_tui, reason_of

from tui_pilot.gates.judge import judge
from tui_pilot.gates.ranks import full_norm, overlap
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.batch import replicas_of
from tui_pilot.plan.model import Batch, Launch, Optimizer, Plan
from tui_pilot.store.state import Row, RunState

TWO = "launch: {processes: 2, strategy: ddp}\n"
HEAD = "import os\nfrom small import *\nRANK = int(os.environ.get('RANK', 0))\n"
PLAN = Plan(batch=Batch(micro=2), optimizer=Optimizer(clip=1.0))


def two(lab: Lab, task: str, code: str, *names: str, more: str = "", skip: str = "checkpoint, export") -> RunState:
    """The state after these stages on two ranks."""
    text = plan(task, skip=f"stack, {skip}", more=TWO + more)
    lab.prepare(text, {"small.py": SMALL, "own.py": HEAD + code})
    state = lab.stage(*names, processes=2)  # type: ignore[call-arg]
    assert all("crash" not in codes(row) for row in state.rows), [row.reasons for row in state.rows if row.reasons]
    return state


def found(phase: str, seen: dict[str, Any], of: Plan = PLAN) -> dict[str, Reason]:
    return {reason.code: reason for reason in judge(phase, seen, of).reasons}


def quiet(row: Row) -> bool:
    """Passed, with nothing but notes."""
    return row.verdict == "pass" and codes(row) == codes(row, "note")


def test_two_ranks_that_do_everything_right_are_quiet(lab: Lab) -> None:
    state = two(lab, "small.py:Small", "", "peak", "train")
    for phase in ("load", "forward", "backward", "first_step", "steady_step", "evaluate", "batch"):
        assert quiet(state.row(phase)), state.row(phase).reasons
    assert state.row("batch").inputs["rows_per_update"] == [8, 4, 8]
    assert state.row("batch").inputs["gradient_error"] < 1e-5


# -- 11.02 -----------------------------------------------------------------------------------------------------------
SAMPLED = """
import random

class Sampled(Small):
    \"\"\"An order that each rank draws from a seed of its own.\"\"\"
    def order(self, split, epoch, seed):
        places = list(range(len(self.records(split))))
        random.Random(f"{seed} {epoch} {RANK if self.plan.options['by_rank'] else 0}").shuffle(places)
        return places
"""


def test_11_02_ranks_that_seed_their_order_apart(lab: Lab) -> None:
    row = two(lab, "Sampled", SAMPLED, "train", more="options: {by_rank: true}\n").row("batch")
    reason = reason_of(row, "ranks_see_same_rows")
    assert reason["severity"] == "fail" and reason["where"]["ranks"] == [0, 1]
    assert reason["where"]["rows"] and set(reason["where"]["rows"]) <= {f"train-{n}" for n in range(12)}
    assert f"row {reason['where']['rows'][0]} on ranks 0 and 1" in reason["text"]


def test_11_02_ranks_with_one_seed_pass(lab: Lab) -> None:
    row = two(lab, "Sampled", SAMPLED, "train", more="options: {by_rank: false}\n").row("batch")
    assert quiet(row), row.reasons


def test_11_02_one_row_on_both_ranks_and_one_on_none() -> None:
    rows = overlap([[0, 1, 4], [2, 3, 4]], range(6))
    reason = found("batch", {"epoch_rows": rows})["ranks_see_same_rows"]
    assert reason.severity == "fail" and reason.where["rows"] == [4] and reason.where["missing"] == [5]
    assert "1 row on more than one rank (row 4 on ranks 0 and 1) and 1 row on none (5)" in reason.text
    assert "batch" not in found("batch", {"epoch_rows": overlap([[0, 2, 4], [1, 3, 5]], range(6)), "updates": 1})
    assert judge("batch", {"epoch_rows": overlap([[0, 2, 4], [1, 3, 5]], range(6))}, PLAN).word == "pass"


def test_11_02_three_ranks_of_which_two_share_a_row() -> None:
    reason = found("batch", {"epoch_rows": overlap([[0, 3], [1, 4], [2, 4]], range(6))})["ranks_see_same_rows"]
    assert reason.where == {"rows": [4], "ranks": [1, 2], "missing": [5]}


def test_11_02_rows_that_drop_last_leaves_out_pass() -> None:
    rows = {**overlap([[0, 2], [1, 3]], range(5)), "dropped": 1}
    assert judge("batch", {"epoch_rows": rows}, PLAN).word == "pass"
    assert "ranks_miss_rows" in found("batch", {"epoch_rows": {**rows, "dropped": 0}})


SHARDED = """
class Sharded(Small):
    \"\"\"A loader that gives each rank its own half, in a loop that shares rows out too.\"\"\"
    def records(self, split):
        return super().records(split)[RANK::int(os.environ.get("WORLD_SIZE", 1))]
"""


def test_11_02_rows_shared_out_twice_are_lost(lab: Lab) -> None:
    state = two(lab, "Sharded", SHARDED, "peak", "train")
    reason = reason_of(state.row("batch"), "ranks_miss_rows")
    assert reason["severity"] == "fail" and "6 rows on none" in reason["text"] and len(reason["where"]["rows"]) == 6
    reason = reason_of(state.row("evaluate"), "ranks_miss_rows")
    assert "Evaluation: 2 rows on none" in reason["text"] and set(reason["where"]["rows"]) == {
        "validation-2",
        "validation-1",
    }


# -- 11.03 -----------------------------------------------------------------------------------------------------------
STREAMED = """
class Streamed(Small):
    \"\"\"A stream that every rank reads from its beginning: each row comes once for every rank.\"\"\"
    def order(self, split, epoch, seed):
        return [place for place in range(len(self.records(split))) for _ in range(2)]
"""


def test_11_03_every_rank_reads_the_same_rows(lab: Lab) -> None:
    row = two(lab, "Streamed", STREAMED, "train").row("batch")
    reason = reason_of(row, "ranks_see_same_rows")
    assert reason["severity"] == "fail" and len(reason["where"]["rows"]) == 4
    assert "4 rows seen by more than one rank in the first update, expected 0" in reason["text"]
    assert "4 different rows instead of 8" in reason["text"]


def test_11_03_two_loader_workers_of_one_process() -> None:
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __init__(self, shares: bool) -> None:
            self.shares = shares

        def __iter__(self) -> Any:
            worker = torch.utils.data.get_worker_info()
            rows = range(6)[worker.id :: worker.num_workers] if self.shares else range(6)
            return iter([(worker.id, row) for row in rows])

    for shares, code in ((False, ["ranks_see_same_rows"]), (True, [])):
        ids: list[list[int]] = [[], []]
        for worker, row in torch.utils.data.DataLoader(Stream(shares), batch_size=None, num_workers=2):
            ids[worker].append(row)
        seen = {"first_update": overlap(ids), "epoch_rows": overlap(ids, range(6))}
        assert list(found("batch", seen)) == code
        if code:
            assert found("batch", seen)[code[0]].where["rows"] == list(range(6))


# -- 11.05 -----------------------------------------------------------------------------------------------------------
MEANS = """
class Means(Small):
    \"\"\"Rows of two and of eight supervised tokens; each rank divides by its own count.\"\"\"
    def encode(self, record):
        number = int(record["id"].rpartition("-")[2])
        ids = [1 + (number + step) % (LETTERS - 1) for step in range(9 if number % 2 else 3)]
        return {"input_ids": ids, "labels": [IGNORE, *ids[1:]]}

class OwnMeans(Means):
    def loss(self, model, batch):
        return super().loss(model, batch) / self.count(batch)

class Scaled(Means):
    def loss(self, model, batch):
        return super().loss(model, batch) / 2
"""


def test_11_05_ranks_that_divide_by_their_own_tokens(lab: Lab) -> None:
    row = two(lab, "OwnMeans", MEANS, "train").row("batch")
    reason = reason_of(row, "loss_not_token_weighted")
    assert reason["severity"] == "fail" and reason["where"]["rows"]


def test_11_05_sums_over_unequal_ranks_pass(lab: Lab) -> None:
    row = two(lab, "Means", MEANS, "train").row("batch")
    assert quiet(row), row.reasons
    assert row.inputs["gradient_error"] < 1e-5


def test_11_05_by_hand_two_tokens_on_one_rank_and_eight_on_the_other() -> None:
    """A mean over ranks of each rank's mean, against the sum over all tokens divided once."""
    torch = pytest.importorskip("torch")
    from tui_pilot.observe.gradients import distance

    torch.manual_seed(0)
    weight = torch.randn(4, requires_grad=True)
    shards = [torch.randn(2, 4) * 3, torch.randn(8, 4)]

    def gradient(losses: list[Any]) -> dict[str, Any]:
        return {"weight": torch.autograd.grad(sum(losses), weight)[0]}

    each = [(shard @ weight) ** 2 for shard in shards]
    reference = gradient([loss.sum() / 10 for loss in each])
    own_means = gradient([loss.mean() / 2 for loss in ((shard @ weight) ** 2 for shard in shards)])
    sums = gradient([loss.sum() * 2 / 10 / 2 for loss in ((shard @ weight) ** 2 for shard in shards)])
    for real, code in ((own_means, ["loss_not_token_weighted"]), (sums, [])):
        error, ratio, direction = distance(real, reference)
        seen = {"error": error, "ratio": ratio, "direction": direction, "microbatches": 1, "rows": [0, 1]}
        assert list(found("batch", {"gradient": {**seen, "rows_per_micro": 1}})) == code
        assert (error > 0.3) if code else (error < 1e-6)


# -- 11.06 -----------------------------------------------------------------------------------------------------------
def test_11_06_model_parallel_ranks_are_no_replicas(lab: Lab) -> None:
    assert replicas_of(8, tensor_parallel=2, context_parallel=2) == 2
    launch = Launch(processes=8, strategy="ddp", tensor_parallel=2)
    assert dataclasses.replace(PLAN, launch=launch).replicas == 4
    arguments = ["calc", "--world", "8", "--tensor-parallel", "2", "--context-parallel", "2", "--micro", "4"]
    arguments += ["--accumulation", "3", "--examples", "2400"]
    right = pilot_tui([*arguments, "--json"], lab.folder)
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["effective_batch"] == 4 * 3 * 2
    wrong = pilot_tui([*arguments, "--replicas", "8"], lab.folder)
    assert wrong.returncode != 0 and "8 processes make 2 replicas, not 8" in wrong.stderr


def test_11_06_a_loop_that_counts_every_rank_as_a_replica() -> None:
    launch = Launch(processes=8, strategy="ddp", tensor_parallel=4)
    of = dataclasses.replace(PLAN, launch=launch)
    reason = found("batch", {"planned_rows_per_update": [4], "rows_per_update": [16]}, of)["effective_batch_differs"]
    assert "Update 1 saw 16 rows, planned 4 = micro 2 x accumulation 1 x replicas 2" in reason.text


# -- 11.08 -----------------------------------------------------------------------------------------------------------
def test_11_08_norms_of_the_local_shard() -> None:
    right = full_norm([3.0, 4.0])
    assert right == 5.0
    reason = found("batch", {"rank_norms": [[3.0, 4.0]], "full_norms": [right]})["norm_local"]
    assert reason.severity == "fail" and reason.where == {"update": 1, "rank": 1}
    assert "rank 0: 3, rank 1: 4; the norm over all ranks is 5 (factors 0.333, 0.25)" in reason.text
    # without the right norm the ranks still differ
    assert "norm_local" in found("batch", {"rank_norms": [[3.0, 4.0]]})


def test_11_08_what_every_rank_holds_whole_is_counted_once() -> None:
    twice = math.sqrt(3.0**2 + 3.0**2)
    right = full_norm([0.0, 0.0], replicated=3.0)
    reason = found("batch", {"rank_norms": [[3.0, 3.0], [twice, twice]], "full_norms": [right, right]})["norm_local"]
    assert reason.where == {"update": 2} and "(x1.41)" in reason.text
    assert found("batch", {"rank_norms": [[5.0, 5.0], [None, None]], "full_norms": [5.0, 5.0]}) == {}
    assert found("batch", {"rank_norms": [[5.0, 5.0 + 1e-5]]}) == {}


# -- 11.09 -----------------------------------------------------------------------------------------------------------
LATE = """
class ByRank(Small):
    def build_model(self):
        torch.manual_seed(RANK)
        return Net()

class Late(Adapted):
    \"\"\"The adapter comes with the optimizer: after the model was wrapped.\"\"\"
    def build_model(self):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return Net()

    def build_optimizer(self, model):
        torch.manual_seed(RANK if self.plan.options["by_rank"] else 0)
        model.head = Low(model.head)
        model.head.base.requires_grad_(True)  # what was wrapped must go on taking gradients
        return super().build_optimizer(model)
"""


def test_11_09_tensors_that_each_rank_draws_for_itself(lab: Lab) -> None:
    row = two(lab, "ByRank", LATE, "peak", skip="steady_step, evaluate").row("load")
    reason = reason_of(row, "replicas_differ")
    assert reason["severity"] == "fail" and reason["where"]["rank"] == 1
    assert reason["where"]["tensors"] == ["embed.weight", "head.weight", "head.bias"]
    assert "Rank 1 built other tensors than rank 0 from seed 0: embed.weight and 2 more" in reason["text"]


def test_11_09_adapters_added_after_wrapping_start_apart(lab: Lab) -> None:
    row = two(lab, "Late", LATE, "peak", skip="steady_step, evaluate", more="options: {by_rank: true}\n").row("load")
    reason = reason_of(row, "replicas_differ")
    assert reason["where"]["tensors"] == ["head.lora_A"] and "before the first update" in reason["text"]


def test_11_09_adapters_added_after_wrapping_drift_from_one_start(lab: Lab) -> None:
    row = two(lab, "Late", LATE, "train", more="options: {by_rank: false}\n").row("batch")
    reason = reason_of(row, "replicas_drift")
    assert reason["severity"] == "fail" and reason["where"]["rank"] == 1 and reason["where"]["update"] == 1
    assert "head.lora_B" in reason["where"]["tensors"] and "after update 1" in reason["text"]


def test_11_09_adapters_added_before_wrapping_and_batch_statistics_pass(lab: Lab) -> None:
    code = """
class Normed(Adapted):
    \"\"\"Running means are each rank's own: no weight differs by them.\"\"\"
    def build_model(self):
        model = super().build_model()
        model.norm = nn.BatchNorm1d(WIDTH)
        plain = model.embed.forward
        model.embed.forward = lambda ids: model.norm(plain(ids).transpose(1, 2)).transpose(1, 2)
        return model
"""
    row = two(lab, "Normed", code, "train").row("batch")
    assert row.verdict == "unchecked" and "replicas_drift" not in codes(row), row.reasons
    assert "batch normalization" in row.reasons[0]["text"]
