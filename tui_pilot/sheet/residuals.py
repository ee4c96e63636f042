"""What earlier runs beside the given ones teach about predictions, by GPU of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence

from tui_pilot.predict.catalogue import catalogue, class_of
from tui_pilot.predict.residuals import Residuals, learn
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.earlier import documents


def of_runs(folders: Sequence[RunFolder]) -> dict[str, Residuals]:
    """Residuals of every GPU of the catalogue that a run in the same folders measured."""
    earlier = [each for root in dict.fromkeys(folder.path.parent for folder in folders) for each in documents(root)]
    learned = {gpu.name: learn(earlier, gpu.name, class_of) for gpu in catalogue()} if earlier else {}
    return {name: known for name, known in learned.items() if known.runs}
