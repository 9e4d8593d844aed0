"""Bars of long calls. The extension makes a bar of a call, shows it about ten times a second, and closes it at the end."""

from __future__ import annotations

import functools
import numbers
import signal
import sys
import time
import traceback
from typing import Any, Optional, TextIO

from . import _napier


class progress:
    """Shows a bar on stderr for each call that takes more than a second, from now on; as a context, for its block. Of calls in
    several threads, one at a time has a bar. A call works in steps; the bar is that of the present step. It is drawn by tqdm
    if that is installed, and removed when the call ends. Results do not change.

    Parameters
    ----------
    show : False turns the bars off.
    delay : seconds from the start of a call to its bar.
    file : where to draw; by default stderr, if it is a terminal or a notebook's.

    Examples
    --------
    >>> import napier
    >>> with napier.progress():
    ...     probs = napier.softmax([0.0, 0.0])  # so short that it gets no bar
    """

    def __init__(self, show: bool = True, *, delay: float = 1.0, file: Optional[TextIO] = None) -> None:
        if not isinstance(delay, numbers.Real) or not delay >= 0:
            raise ValueError(f"delay: expected seconds, 0 or more, got {delay!r}")
        if file is not None and not callable(getattr(file, "write", None)):
            raise TypeError(f"file: {type(file).__name__} has no write")
        self._before: Any = _napier._set_progress(functools.partial(_CallBar, _drawer(), delay, file) if show else None)

    def __enter__(self) -> progress:
        return self

    def __exit__(self, *_: object) -> None:
        _napier._set_progress(self._before)


class _CallBar:
    """The bar of one call. Its own errors end it, not the call."""

    def __init__(self, make, delay, file):
        self._make, self._due, self._file, self._drawn = make, time.monotonic() + delay, file, None

    def show(self, stage, share):
        if self._make is not None and time.monotonic() >= self._due:
            self._guarded(self._draw, f"napier: {stage}", share)

    def close(self):
        if self._drawn is not None:
            self._guarded(self._drawn.close)

    def _draw(self, stage, share):
        if self._drawn is None:
            if self._file is None and not _is_watched(sys.stderr):
                self._make = None
                return
            self._drawn = self._make(self._file or sys.stderr)
        self._drawn.draw(stage, share)

    def _guarded(self, function, *arguments):
        try:
            function(*arguments)
        except Exception as error:
            self._make = None
            if _is_of_handler(error):
                raise


def _is_watched(stream):
    return stream is not None and (stream.isatty() or "ipykernel" in sys.modules)


def _is_of_handler(error):
    """Whether a signal handler raised the error, which then ends the call."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


class _Tqdm:
    """tqdm's refresh() would keep its lock where Ctrl-C ends it, and other threads would wait for ever. So this never
    calls it, nor does tqdm, which begins without because of the delay."""

    def __init__(self, tqdm, file):
        self._open = functools.partial(
            tqdm, total=1.0, file=file, leave=False, delay=1e-9, bar_format="{l_bar}{bar}| [{elapsed}<{remaining}]"
        )
        self._stage, self._bar = None, None

    def draw(self, stage, share):
        if stage != self._stage:
            self.close()
            self._stage, self._bar = stage, self._open(desc=stage, initial=share)
        self._bar.n = share
        with self._bar.get_lock():
            self._bar.display()

    def close(self):
        if self._bar is not None:
            self._bar.close()


class _Line:
    """A bar without tqdm."""

    def __init__(self, file):
        self._file, self._width = file, 0

    def draw(self, stage, share):
        self._write(f"{stage}: {int(100 * share):3d}% |{'#' * int(30 * share):30}|")

    def close(self):
        self._write("")
        self._write("")

    def _write(self, text):
        self._file.write(f"\r{text:{self._width}}")
        self._file.flush()
        self._width = len(text)


def _drawer():
    """What makes a bar for a file."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line
    return functools.partial(_Tqdm, tqdm)
