# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of a run: the record streams of each module as Arrow tables."""

from __future__ import annotations

import datetime
import html
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _tool
from ._summary import ModuleSummary, Summary

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Rows that a notebook shows of each table.
_ROWS_SHOWN = 10
#: The stream in which a module says what it has found. Its columns are the same for all modules.
_FINDINGS = "findings"


class Result:
    """Records of one module in a run.

    The object can be given to anything that takes Arrow data (`__arrow_c_stream__`), such as `polars.DataFrame` or a query
    of DuckDB: it then stands for `table`.
    """

    def __init__(self, module: ModuleSummary, summary: Summary, read: Callable[[str], pyarrow.Table]) -> None:
        #: Label of the module in the run: its name, with a number if it ran more than once.
        self.name = module["name"]
        #: Part of the summary about this module.
        self.module: ModuleSummary = module
        #: Summary of the whole run.
        self.summary: Summary = summary
        #: Paths of the Parquet files of `run(..., out=FOLDER)` by their streams; empty without `out`.
        self.files: dict[str, Path] = {}
        self._read = read
        self._tables: dict[str, pyarrow.Table] = {}

    @property
    def streams(self) -> list[str]:
        """Names of the module's record streams, in the order of its manifest."""
        return [stream["name"] for stream in self.module["streams"]]

    @property
    def ended(self) -> bool:
        """True if the module did not start, or was ended before the last packet."""
        return self.module["ended"]

    @property
    def tables(self) -> dict[str, pyarrow.Table]:
        """All record streams by their names, also those without rows."""
        return {name: self[name] for name in self.streams}

    @property
    def table(self) -> pyarrow.Table:
        """The only record stream apart from findings. Raises `Error` if there are several."""
        return self[self._only()]

    @property
    def findings(self) -> pyarrow.Table | None:
        """The findings of the module; None if it has no such stream."""
        return self[_FINDINGS] if _FINDINGS in self.streams else None

    def __getitem__(self, stream: str) -> pyarrow.Table:
        if stream not in self.streams:
            raise KeyError(f"{self.name} has no stream {stream!r}; it has {', '.join(self.streams) or 'none'}")
        if stream not in self._tables:
            self._tables[stream] = self._read(stream)
        return self._tables[stream]

    def to_pandas(self, stream: str | None = None, **options: Any) -> pandas.DataFrame:
        """A stream, by default the one of `table`, as a pandas.DataFrame.

        Integers and booleans of fields that can be null get pandas' types with nulls, such as `UInt16`; without them a
        port would become a float. `options` go to `pyarrow.Table.to_pandas`.
        """
        table = self.table if stream is None else self[stream]
        if options:
            return table.to_pandas(**options)
        import pandas
        import pyarrow

        optional = [
            field.name
            for field in table.schema
            if field.nullable and (pyarrow.types.is_integer(field.type) or pyarrow.types.is_boolean(field.type))
        ]
        frame = table.drop_columns(optional).to_pandas()
        for name in optional:
            column = table.column(name)
            kind = (
                "boolean" if pyarrow.types.is_boolean(column.type) else str(column.type).replace("i", "I").replace("u", "U")
            )
            frame.insert(
                table.column_names.index(name),
                name,
                column.to_pandas(types_mapper={column.type: pandas.api.types.pandas_dtype(kind)}.get),
            )
        return frame

    def to_polars(self, stream: str | None = None) -> polars.DataFrame:
        """A stream, by default the one of `table`, as a polars.DataFrame."""
        import polars

        frame = polars.from_arrow(self.table if stream is None else self[stream])
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        streams = ", ".join(f"{stream['name']} {stream['rows']}" for stream in self.module["streams"])
        return f"<weir.Result {self.name}: rows of {streams or 'no stream'}{', ended' if self.ended else ''}>"

    def _repr_html_(self) -> str:
        return f"<div><p><strong>{html.escape(self.name)}</strong></p>{''.join(map(self._html, self.streams))}</div>"

    def _html(self, stream: str) -> str:
        # Cells hold texts of packets, so all of them are escaped.
        table = self[stream]
        shown = table.slice(0, _ROWS_SHOWN)
        columns = [[_cell(value) for value in column] for column in shown.columns]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown.column_names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in zip(*columns, strict=True)
        )
        left = table.num_rows - shown.num_rows
        more = f"<p>… {left} more rows</p>" if left else ""
        caption = f"<caption>{html.escape(stream)}: {table.num_rows} rows</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _only(self) -> str:
        streams = [stream for stream in self.streams if stream != _FINDINGS] or self.streams
        if len(streams) != 1:
            raise _tool.Error(
                f"{self.name} has {len(streams)} record streams{': ' if streams else ''}{', '.join(streams)}; "
                f"name one, as in result[{(streams or ['STREAM'])[0]!r}]"
            )
        return streams[0]


class Results(dict[str, Result]):
    """Results of a run by the labels of its modules."""

    def __init__(self, results: Mapping[str, Result], summary: Summary) -> None:
        super().__init__(results)
        #: Summary of the run.
        self.summary: Summary = summary

    @property
    def tables(self) -> dict[str, pyarrow.Table]:
        """All record streams of all modules, by `MODULE.STREAM`."""
        return {f"{name}.{stream}": table for name, result in self.items() for stream, table in result.tables.items()}

    def __repr__(self) -> str:
        return f"<weir.Results {', '.join(map(repr, self.values()))}>"

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self.values())


def _cell(value: Any) -> str:
    """A cell's text, cut, with escapes for control characters and those that change the direction of writing."""
    if not value.is_valid:
        return ""
    text = _time(value.value) if type(value).__name__ == "TimestampScalar" else str(value)
    cut = text if len(text) <= 100 else text[:99] + "…"
    return "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in cut)


def _time(ns: int) -> str:
    """A time in UTC to the nanosecond. pyarrow has no object for it without pandas."""
    second = datetime.datetime.fromtimestamp(ns // 10**9, datetime.timezone.utc)
    return f"{second:%Y-%m-%d %H:%M:%S}.{ns % 10**9:09}"
