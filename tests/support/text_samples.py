"""Text for tests: real text of many languages from this machine, and random strings that cover all of Unicode."""

import gettext
import pathlib
import random
import sysconfig
import unicodedata

# Characters and pieces that pre-tokenizers treat specially.
TROUBLE = [
    " ", "  ", "   ", " " * 17, "\t", "\n", "\n\n", "\r\n", "\r", " \n ", "\u00a0", "\u0085", "\u180e", "\u200b", "\u2003",
    "\u2028", "\u202f", "\u3000", "\ufeff", "\x00", "\x1c", "\x7f", "'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'LL", "'d",
    "'ſ", "'", "’s", "don't", "I'LL", "it'ſ", "0", "12", "123", "1234", "12345678", "٣٤٥", "²³", "½", "Ⅷ", "𝟘𝟙", "一二三",
    "a", "B", "ab", "AbC", "HTTPServer", "camelCase", "éa", "e\u0301", "a\u0323\u0301", "a\u0301\u0323", "ñ", "n\u0303", "Å",
    "ﬁ", "ß", "ẞ", "İ", "ı", "Ǆ", "ǅ", "ʰ", "ª", "中文字", "日本語ひらがなカタカナ", "한국어", "각", "ᄀ\u1161\u11a8", "العربية",
    "עברית", "ไทย", "हिन्दी", "தமிழ்", "Ελληνικά", "Русский", "ქართული", "አማርኛ", "👍", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "☕️", "…", "—", "?!",
    ".", ",", "/", "//", "\\", "_", "__init__", "-", "--", "(", ")", "[", "]", "{", "}", "<", ">", "<|", "|>", "#", "$", "%",
    "&", "*", "+", "=", "^", "~", "`", "|", "\"", "€", "√", "∑", "->", "==", "https://example.org/a?b=c#d", "\ufffd", "\U0010ffff",
    "\U0001c89a", "\u1c89", "\ua7cb", "\U00010d40", "\U0001e5d0", "\u0897", "\u0898", "a\u0898\u0323", "\U00011935\U00011930",
]


def real_text(limit):
    """About `limit` characters of documentation, source code and translated messages, in a fixed order."""
    parts = [message for message in translated_messages()]
    size = sum(map(len, parts))
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        if size >= limit:
            break
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
    return parts


def translated_messages():
    shared = pathlib.Path("/usr/share")
    for path in [shared / "mime/packages/freedesktop.org.xml", *sorted((shared / "i18n/locales").glob("*_*"))[::5]]:
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")[:1_500_000]
    for path in sorted(shared.glob("locale/*/LC_MESSAGES/*.mo"))[::40]:
        try:
            with path.open("rb") as file:
                catalogue = gettext.GNUTranslations(file)
        except (OSError, UnicodeDecodeError):
            continue
        yield "\n".join(text for text in catalogue._catalog.values() if isinstance(text, str))[:20_000]


def script_samples():
    """One string per block of 128 code points that holds assigned characters."""
    for start in range(0, 0x32000, 128):
        text = "".join(chr(c) for c in range(start, start + 128) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co"))
        if text:
            yield text
            yield " ".join(text[i : i + 5] for i in range(0, len(text), 5))


def random_strings(count, seed, pieces=()):
    """Random mixtures of trouble, `pieces`, letters of one script, and code points from anywhere."""
    rng = random.Random(seed)
    trouble = TROUBLE + list(pieces)
    for _ in range(count):
        block = rng.randrange(0, 0x600) * 128 if rng.random() < 0.5 else rng.randrange(0, 0x40) * 32
        text = []
        for _ in range(rng.randint(1, 14)):
            kind = rng.random()
            if kind < 0.5:
                text.append(rng.choice(trouble))
            elif kind < 0.75:
                text.append("".join(chr(rng.randrange(97, 123)) for _ in range(rng.randint(1, 8))))
            elif kind < 0.95:
                text.append("".join(chr(c) for c in (block + rng.randrange(128) for _ in range(rng.randint(1, 6))) if not 0xD800 <= c < 0xE000))
            else:
                code = rng.randrange(0x110000)
                text.append("" if 0xD800 <= code < 0xE000 else chr(code))
        yield "".join(text)
