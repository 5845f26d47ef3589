"""How figures are written in texts and tables."""

from collections.abc import Sequence


def _scaled(number: float, base: float, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        digits = 0 if unit == units[0] else 1
        if round(abs(number), digits) < base:
            return f"{number:.{digits}f} {unit}"
        number /= base
    return f"{number:.1f} {units[-1]}"


def byte_text(number: float) -> str:
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB"))


def flop_text(number: float) -> str:
    return _scaled(number, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"))


def millisecond_text(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def second_text(seconds: float) -> str:
    """Returns a time with three digits, such as "12.3 ms"."""
    if seconds <= 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Returns the rows as text in columns, of which the first ``left`` begin at the left."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
