"""Conversion of figures to images by vl-convert, in a process of its own.

vl-convert holds Python's lock while it draws. A page therefore starts this file as a program, which draws figures while
the page reads stores. The program imports nothing else of the project. It ends with its input.
"""

import base64
import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, Self

Kind = Literal["svg", "png", "script"]

_VERSION = "6.4"  # of Vega-Lite
_PIXELS = 2  # pixels of a PNG image per pixel of the figure
_compiled: list[str] = []  # the script, which is compiled once per process


def convert(kind: Kind, spec: dict[str, Any]) -> bytes:
    """Return a Vega-Lite specification as an image, or the JavaScript libraries that draw specifications.

    Parameters
    ----------
    kind : str
        ``"svg"``, ``"png"``, or ``"script"`` for Vega, Vega-Lite and Vega-Embed, which define ``vegaEmbed``.
    spec : dict
        Specification of the image; not used for the libraries.
    """
    import vl_convert  # slow import

    if kind == "script":
        return str(vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=_VERSION)).encode()
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(spec, vl_version=_VERSION)).encode()
    return bytes(vl_convert.vegalite_to_png(spec, vl_version=_VERSION, scale=_PIXELS))


class Converter:
    """Process that converts specifications in order, from the start to the end of a ``with`` statement.

    Attributes
    ----------
    process : subprocess.Popen
        The process.

    Examples
    --------
    >>> with Converter() as converter:
    ...     image = converter.submit("svg", {"mark": "point", "data": {"values": [{}]}})
    ...     image.result()[:4]
    b'<svg'
    """

    def __enter__(self) -> Self:
        """Start the process; compile the script first, unless it is known."""
        # a new session: the process does not receive the interrupts of a terminal
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._thread = ThreadPoolExecutor(1, "dpstudies-figures")
        self._script = None if _compiled else self.submit("script", {})
        return self

    def __exit__(self, *raised: object) -> None:
        """Drop pending conversions, and end the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if any(raised):
            self.process.kill()
        self._thread.shutdown()
        self.process.communicate()

    def submit(self, kind: Kind, spec: dict[str, Any]) -> Future[bytes]:
        """Return the future result of `convert`; it raises RuntimeError if the conversion fails."""
        return self._thread.submit(self._convert, json.dumps([kind, spec]).encode() + b"\n")

    def script(self) -> str:
        """Return the JavaScript libraries."""
        if self._script is not None and not _compiled:
            _compiled.append(self._script.result().decode())
        return _compiled[0]

    def _convert(self, line: bytes) -> bytes:
        reading, writing = self.process.stdout, self.process.stdin
        assert reading is not None
        assert writing is not None
        try:
            writing.write(line)
            writing.flush()
            answer = reading.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise RuntimeError(f"the process that draws figures ended with exit code {self.process.wait()}")
        converted, error = json.loads(answer)
        if error:
            raise RuntimeError(f"a figure cannot be drawn: {error}")
        return base64.b64decode(converted)


def main() -> None:
    """Convert the specifications on standard input, one per line, and write one result or error per line."""
    for line in sys.stdin.buffer:
        try:
            answer = base64.b64encode(convert(*json.loads(line))).decode(), ""
        except Exception as error:  # raised again by the process that reads the answer
            answer = "", " ".join(str(error).split()) or type(error).__name__
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
