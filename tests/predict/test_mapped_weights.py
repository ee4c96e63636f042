"""On a CPU, weights that a file holds in the planned dtype are mapped: torch's counter never sees them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
pytest.importorskip("peft", reason="peft is not installed: pip install '.[hf]'")

from real_pass import CPU, CounterMissing, measured, peaks  # noqa: E402

from tui_pilot.plan.model import Adapter, Batch, Data, Evaluate, Model, Plan  # noqa: E402
from tui_pilot.predict import passes  # noqa: E402
from tui_pilot.predict.inputs import rows_of  # noqa: E402
from tui_pilot.predict.passes import Target  # noqa: E402
from tui_pilot.tasks.sft import SftTask  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[1] / "tasks"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_llm import write_model

    place = tmp_path_factory.mktemp("mapped")
    write_model(place / "model")
    rows = [f'{{"prompt": "what is {n}", "completion": "the number {n}"}}' for n in range(8)]
    (place / "rows.jsonl").write_text("\n".join(rows) + "\n")
    return place


def task(folder: Path, precision: str) -> SftTask:
    data = Data(train=str(folder / "rows.jsonl"), validation=str(folder / "rows.jsonl"), max_length=64)
    model = Model(path=str(folder / "model"), adapter=Adapter(r=4, targets=("q_proj", "v_proj")))
    plan = Plan(
        task="sft", model=model, data=data, batch=Batch(micro=2, accumulation=2), evaluate=Evaluate(micro=2),
        precision=precision,
    )  # fmt: skip
    return SftTask(plan)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("precision", "mapped"), [("fp32", True), ("bf16", False)])
def test_what_is_mapped_is_in_no_figure(folder: Path, precision: str, mapped: bool) -> None:
    torch.set_num_threads(1)
    foretold = passes.run(task(folder, precision), rows_of(task(folder, precision), 4), CPU)
    assert foretold.missed == {}
    assert (foretold.mapped_bytes > 0) is mapped
    try:
        _, counter = measured(task(folder, precision), 4)
    except CounterMissing as why:
        pytest.skip(str(why))
    expected = peaks(foretold)
    for phase in ("forward", "backward", "steady_step"):
        assert expected[phase] == pytest.approx(counter[phase], rel=0.02), phase
    on_gpu = passes.run(task(folder, precision), rows_of(task(folder, precision), 4), Target((8, 0)))
    assert on_gpu.mapped_bytes == 0
    assert passes.parameter_bytes(on_gpu.model) < peaks(on_gpu)["load"] * 1.01
