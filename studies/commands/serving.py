"""The command that serves the page of a store or a folder to a browser on this machine."""

from typing import Annotated

import typer

from pipeline.errors import BadInputError
from studies.commands.shared import StudyOption, named_study, say


def serve(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A result store, or a folder of 'run all'.")],
    port: Annotated[
        int | None, typer.Option("--port", help="Port on the loopback interface; by default a free one.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    study: StudyOption = None,
) -> None:
    """Serve the page of 'report' while a study runs; figures follow the committed results until Ctrl-C."""
    import asyncio
    import secrets

    from studies.commands.pages import open_address
    from studies.folders import is_folder
    from studies.report import live

    if study is not None and is_folder(store):
        raise BadInputError(f"--study is for one store, got the folder {store}; omit it")
    page = live.LivePage(store, named_study(study))
    listening, token = live.listen(port), secrets.token_urlsafe()
    address = f"http://{live.LOOPBACK}:{listening.getsockname()[1]}/{token}/"
    say(f"serving {store} at {address} until Ctrl-C")
    if show:
        open_address(address)
    asyncio.run(live.serve(page, token, listening))
