"""Numbers and sentences as a page prints them: what belongs together is not parted at the end of a line."""

import re

from markupsafe import Markup, escape


def typeset(number: str) -> str:
    """A number as a page prints it: with a minus sign, and in one piece at the end of a line."""
    return unbroken(number.replace("-", "−"))


def unbroken(text: str) -> str:
    """The same text, with no-break spaces inside an interval and before a per cent sign."""
    whole = re.sub(r"\[[^\[\]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", whole)


def printed(value: object) -> object:
    """What a template puts in: texts are kept in one piece where they must be, markup stays as it is."""
    return unbroken(value) if type(value) is str else value


def prose(text: str) -> Markup:
    """A sentence of ours as HTML: what stands between backticks is code, and numbers have their minus signs."""
    signed = re.sub(r"(?<![\w-])-(?=\d)", "−", text)
    parts = unbroken(signed).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )
