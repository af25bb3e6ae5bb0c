"""Headings under which the help of ``dpstudies`` lists its commands."""

from typing import Any

from typer.core import TyperGroup

OWN_NUMBERS = "Releases of your own numbers"
"""Heading of the commands on private data of the user, the ``rich_help_panel`` of their registration."""


class HeadedGroup(TyperGroup):
    """Group whose help lists the commands under their headings, as typer does only with rich markup."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading, in the order of the registration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                rows = sections.setdefault(heading if isinstance(heading, str) else "Commands", [])
                rows.append((name, command.get_short_help_str(limit)))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
