"""A command that explains its arguments, too, and a group of commands that answers a typo once."""

from __future__ import annotations

from inspect import unwrap
from typing import Any, get_type_hints

from typer.core import TyperCommand, TyperGroup
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


class Group(TyperGroup):
    """Commands of which a mistyped one is answered once: click 8.5 says what may be meant, as typer 0.20 does."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            refusal: Any = error
            if getattr(refusal, "possibilities", None):
                # They follow the message when it is shown.
                refusal.message = refusal.message.partition(" Did you mean")[0]
            raise
