"""The rows that one reason or one filter names, read from the audit as they come into view."""

from __future__ import annotations

from array import array

from tui_pilot.run_folder import RunFolder
from tui_pilot.ui.rooms import _tokens
from tui_pilot.ui.rooms._audit import Audit, Record

Key = tuple[str | None, str]
EVERY: Key = (None, "")
KEPT_RECORDS = 1000


class RowList:
    """``key`` is a reason's code and the words of a filter; without either every row is in the list, in file order.

    ``audited`` is the number of rows of the whole audit at the last look.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.audit = Audit(folder.examples)
        self.key: Key = EVERY
        self.stamp = (0, 0)
        self.audited = 0
        self.at = 0
        self.top = 0
        self._matched: tuple[Key, array[int]] | None = None
        self._records: dict[int, Record | None] = {}
        self._tokens: tuple[int, _tokens.TokenRow | None] | None = None

    def look(self) -> bool:
        """Whether the audit on disk changed since the last look; what was read before is then forgotten."""
        stamp = self.audit.stamp()
        if stamp == self.stamp:
            return False
        self.stamp = stamp
        self.audited = self.audit.count()
        self._records.clear()
        self._tokens = self._matched = None
        return True

    @property
    def known(self) -> bool:
        """False while the rows of this key are looked for."""
        return self.key == EVERY or (self._matched is not None and self._matched[0] == self.key)

    def matched(self, key: Key, rows: array[int]) -> bool:
        """The rows of a key were found; False if the person has gone on to another."""
        if key != self.key:
            return False
        self._matched = (key, rows)
        self.select(self.at)
        return True

    def choose(self, key: Key) -> None:
        """Another reason or filter; the list starts at its first row."""
        self.key = key
        self.at = self.top = 0

    def select(self, number: int) -> bool:
        """Put the cursor on a row of the list; True if it moved."""
        wanted = max(0, min(number, len(self) - 1))
        moved, self.at = wanted != self.at, wanted
        return moved

    def keep_in_view(self, room: int) -> None:
        """Scroll by as little as possible so that the selected row is among ``room`` lines."""
        self.top = max(0, self.at - room + 1, min(self.top, self.at))

    def __len__(self) -> int:
        if self.key == EVERY:
            return self.audited
        return len(self._matched[1]) if self._matched is not None and self.known else 0

    def number(self, place: int) -> int | None:
        """The audit's number of the n-th row of the list."""
        if not 0 <= place < len(self):
            return None
        return place if self.key == EVERY or self._matched is None else self._matched[1][place]

    def read(self, place: int) -> Record | None:
        """The record of the n-th row of the list."""
        number = self.number(place)
        if number is None:
            return None
        if number not in self._records:
            if len(self._records) >= KEPT_RECORDS:
                self._records.clear()
            self._records[number] = self.audit.record(number)
        return self._records[number]

    def tokens(self) -> _tokens.TokenRow | None:
        """The token view of the selected row, where one was kept."""
        number, record = self.number(self.at), self.read(self.at)
        if number is None or record is None:
            return None
        if self._tokens is None or self._tokens[0] != number:
            view = self.audit.tokens(record)
            self._tokens = (number, None if view is None else _tokens.read(view))
        return self._tokens[1]
