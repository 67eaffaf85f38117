"""What looks alike is one name: compatibility forms, case, accents, letters of other alphabets that are drawn like Latin ones.

The table holds the letters of [UTS 39] confusables.txt that a reader takes for an ASCII letter or digit, alphabet by alphabet.
"""

from __future__ import annotations

import unicodedata

# Latin letter or digit -> what is drawn like it, after compatibility folding and case folding.
_DRAWN_ALIKE = {
    "a": "\u0430\u0251\u03b1\u1d00\uab7a",
    "b": "\u044c\u0185\u0299\u0432\u03b2\u13cf",
    "c": "\u0441\u03f2\u1d04\u217d\uabaf\u1d04",
    "d": "\u0501\u0257\u1d05\uabb7",
    "e": "\u0435\u04bd\u0454\u03b5\u1d07\uab7c\u212e",
    "f": "\u017f\ua799\u1e9d\u03dd",
    "g": "\u0261\u0581\u0262\uab90",
    "h": "\u04bb\u0570\u029c\u043d\uab8b",
    "j": "\u0458\u03f3\u1d0a",
    "k": "\u043a\u03ba\u1d0b\u0138\u049d\uabb6",
    "l": "1i\u0456\u0131\u03b9\u0269\u04cf\u013e\ua647|!\u0269\u1c80\u026a\uabae\u029f\u01c0",
    "m": "\u043c\u1d0d\uab87",
    "n": "\u043f\u0578\u03b7\u0274",
    "o": "0\u043e\u03bf\u0585\u03c3\u1d0f\u0585\u1d0f\u0d20\u0c66\u0966\u06f0\u0660\u07c0\u3007\u2d54",
    "p": "\u0440\u03c1\u1d18\u03f1\uabb2\u2374",
    "q": "\u051b\u0563\u0566",
    "r": "\u0433\uab47\u1d26\u0280\uab81",
    "s": "5\u0455\ua731\u01bd\u10fd",
    "t": "\u0442\u03c4\u1d1b\uab72",
    "u": "\u03c5\u057d\u028b\u1d1c\uab4e",
    "v": "\u0475\u03bd\u1d20\uaba9",
    "w": "\u051d\u0561\u0461\u03c9\u026f\u1d21\uab83",
    "x": "\u0445\u03c7\u00d7",
    "y": "\u0443\u03b3\u04af\u10e7\u028f\u1eff",
    "z": "2\u1d22\uab93\u0290",
    "6": "\u0431",
    "3": "\u0437\u0499\u044d\u025c",
}
_TO_LATIN = {ord(other): latin for latin, others in _DRAWN_ALIKE.items() for other in others}
_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_SEPARATORS = dict.fromkeys(map(ord, "_-.:=,+ '@()[]"))

# Characters that are "printable" for Python and still leave no ink: fillers, joiners, variation selectors, a blank pattern.
_INKLESS = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


def invisible_in(text: str) -> str | None:
    """Return the first character of a text that a reader does not see or that turns the text round, None where there is none."""
    for character in text:
        if not character.isprintable() or any(low <= ord(character) <= high for low, high in _INKLESS):
            return character
    return None


def check_visible(text: str) -> str:
    """Return a text of which a reader sees every character, in its order. Raises ValueError, for validators."""
    hidden = invisible_in(text)
    if hidden is not None:
        raise ValueError(f"holds the control, invisible or direction-changing character U+{ord(hidden):04X}")
    return text


def folded(text: str) -> str:
    """Return the one form of all texts that look alike; it is for comparing, not for showing."""
    form = unicodedata.normalize("NFKC", text).casefold()
    letters = (c for c in unicodedata.normalize("NFD", form) if not unicodedata.combining(c))
    plain = "".join(letters).translate(_TO_LATIN).translate(_SEPARATORS)
    for pair, single in _PAIRS:
        plain = plain.replace(pair, single)
    return plain
