"""Results in Python and notebooks: one mixin gives a table of rows its ``pandas.DataFrame`` and its HTML."""

from __future__ import annotations

from typing import Any, ClassVar

from ccenv.base.errors import require_extra
from ccenv.base.figure import table


class TableResult:
    """A result that is a table. Classes say its rows, and which column names them."""

    row_name: ClassVar[str] = ""  # column with the name of a row; empty: rows are numbered
    shown: ClassVar[int] = 200  # largest number of rows in a notebook

    def to_frame(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``. Raises MissingExtraError without pandas."""
        require_extra("pandas", "bench")
        import pandas

        return self._make_frame(pandas)

    def _make_frame(self, pandas: Any) -> Any:
        rows = self._rows()
        frame = pandas.DataFrame(rows)
        return frame.set_index(self.row_name) if rows and self.row_name else frame

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows: column -> value."""
        raise NotImplementedError

    def _picture(self) -> str:
        """Return what stands below the table in a notebook, as HTML."""
        return ""

    def _repr_html_(self) -> str:
        """Show the table and the picture in a notebook."""
        rows = self._rows()
        columns = list(dict.fromkeys(column for row in rows for column in row))
        return table(repr(self), columns, [list(map(row.get, columns)) for row in rows[: self.shown]]) + self._picture()
