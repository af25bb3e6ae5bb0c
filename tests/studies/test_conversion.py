"""Tests of the process that draws the figures of pages."""

import pytest

from studies.figures import Converter, convert

SPEC = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    "data": {"values": [{"x": 1 / 3, "y": "ε ≤ 1"}, {"x": 1e-9, "y": "</script>"}]},
    "mark": "point",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "nominal"}},
}


@pytest.fixture(scope="module", autouse=True)
def script():
    """Compile the script once, so that later converters do not wait for it."""
    with Converter() as converter:
        return converter.script()


@pytest.mark.slow
def test_images_are_those_of_the_own_process():
    with Converter() as converter:
        svg, png = converter.submit("svg", SPEC), converter.submit("png", SPEC)
        assert svg.result() == convert("svg", SPEC)
        assert "ε ≤ 1" in svg.result().decode()
        assert png.result()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_script_defines_the_function_that_pages_call_and_is_compiled_once(script):
    assert "window.vegaEmbed=" in script
    with Converter() as converter:
        assert converter.script() is script


def test_failed_conversion_raises_and_the_next_one_succeeds():
    with Converter() as converter:
        failed, drawn = converter.submit("svg", {**SPEC, "mark": "none"}), converter.submit("svg", SPEC)
        with pytest.raises(RuntimeError, match="cannot be drawn"):
            failed.result()
        assert drawn.result().startswith(b"<svg")


def test_end_of_the_process_is_an_error():
    with Converter() as converter:
        converter.submit("svg", SPEC).result()
        converter.process.kill()
        with pytest.raises(RuntimeError, match="ended with exit code -9"):
            converter.submit("svg", SPEC).result()


def test_process_ends_with_the_statement():
    with Converter() as converter:
        pass
    assert converter.process.returncode is not None


def test_error_drops_pending_conversions_and_ends_the_process():
    converter, waiting = Converter(), []

    def fail():
        with converter:
            waiting.extend(converter.submit("svg", SPEC) for _ in range(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert converter.process.returncode is not None
    assert waiting[-1].cancelled()
