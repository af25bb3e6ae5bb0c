"""Help of groups of commands."""

from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperGroup


class HeadedGroup(TyperGroup):
    """Group whose help lists its commands first, under headings, with whole texts, which Typer cuts to one line."""

    headings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Heading -> names of commands in order; by default, all commands under one heading."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the text of the group, and a section per heading."""
        super().format_help_text(ctx, formatter)
        for heading, names in (self.headings or {"Commands": tuple(self.commands)}).items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing below the options; `format_help_text` lists the commands."""


_WHOLE = 10_000  # characters, more than any text has
