"""A command that explains its arguments, too."""

from __future__ import annotations

from inspect import unwrap
from typing import Any, get_type_hints

from typer.core import TyperCommand
from typer.models import ArgumentInfo


class Command(TyperCommand):
    """A command whose help explains its arguments: with click 8.5, typer 0.20 loses what it was told of them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        hints = get_type_hints(unwrap(self.callback), include_extras=True) if self.callback else {}
        for argument in self.params:
            for about in getattr(hints.get(argument.name or ""), "__metadata__", ()):
                if isinstance(about, ArgumentInfo):
                    argument.help = about.help
