"""Files that were cut, flipped, stuffed and spliced, at random but the same for the same seed."""

import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

NUMBERS = (0, 1, 2**7 - 1, 2**8 - 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
TOKENS = (
    b"", b"nan", b"NaN", b"-inf", b"inf", b"1e308", b"-1e308", b"1e999", b"1e-320", b"1e38", b"0", b"-1",
    b"0.0", b"1_0", b"0x10", b"99999999999999999999999999", b"true", b"null", b"None", b"[]", b"[[[[", b"{}",
    b"{" * 50, b'"', b"'", b'"""', b"\\", b"\\u0000", b"\0", b"\xff\xfe", "é".encode(), "💥".encode(), b",",
    b",,,", b";", b"\t", b"\r", b"\n", b"#", b"=", b"..", b"../../etc/passwd", b"%s%s%n", b"q1", b"t", b"run",
    b"__import__('os').system('true')", b"A" * 5000, b"9" * 5000, b"[" * 3000, b"a." * 300,
    b"2024-01-01T00:00:00Z", b"1:2",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z_]+|-?[0-9][0-9.eE+-]*|\"[^\"\n]*\"|[^\sA-Za-z0-9_]")


def _place(generator: random.Random, content: bytes) -> int:
    """Anywhere; more often near the ends, where formats keep what matters."""
    size = len(content)
    near = min(size, 200)
    choice = generator.random()
    if choice < 0.3:
        return generator.randint(0, near)
    if choice < 0.5:
        return size - generator.randint(0, near)
    return generator.randint(0, size)


def _range(generator: random.Random, content: bytes) -> tuple[int, int]:
    start = _place(generator, content)
    length = generator.choice((1, 1, 2, 4, 8, 16, 64, 1000, len(content)))
    return start, min(len(content), start + length)


def flip(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    place = min(_place(generator, content), max(len(content) - 1, 0))
    if not content:
        return content
    return content[:place] + bytes([content[place] ^ (1 << generator.randrange(8))]) + content[place + 1 :]


def delete(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(generator, content)
    return content[:start] + content[end:]


def repeat(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(generator, content)
    return content[:end] + content[start:end] * generator.choice((1, 1, 2, 20)) + content[end:]


def insert(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(generator, content)
    return content[:start] + generator.randbytes(generator.choice((1, 2, 8, 100))) + content[start:]


def overwrite(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(generator, content)
    return content[:start] + generator.randbytes(end - start) + content[end:]


def put_number(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    start = _place(generator, content)
    width, number = generator.choice((1, 2, 4, 8)), generator.choice(NUMBERS)
    order = generator.choice(("little", "big"))
    return content[:start] + (number % 256**width).to_bytes(width, order) + content[start + width :]


def truncate(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    return content[: _place(generator, content)]


def splice(generator: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    other = generator.choice(others)
    return content[: _place(generator, content)] + other[_place(generator, other) :]


def replace_token(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    found = [match.span() for match in _TOKEN.finditer(content)]
    if not found:
        return content
    start, end = generator.choice(found)
    return content[:start] + generator.choice(TOKENS) + content[end:]


def swap_tokens(generator: random.Random, content: bytes, _: Sequence[bytes]) -> bytes:
    found = [match.span() for match in _TOKEN.finditer(content)]
    if len(found) < 2:
        return content
    (a, b), (c, d) = sorted(generator.sample(found, 2))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def change_lines(generator: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    place = generator.randrange(len(lines))
    change = generator.randrange(5)
    if change == 0:
        del lines[place]
    elif change == 1:
        lines.insert(place, generator.choice(lines))
    elif change == 2:
        lines.insert(place, generator.choice(generator.choice(others).split(b"\n")))
    elif change == 3:
        lines.insert(place, generator.choice(TOKENS))
    else:
        generator.shuffle(lines)
    return b"\n".join(lines)


BINARY: tuple[Mutation, ...] = (flip, delete, repeat, insert, overwrite, put_number, truncate, splice)
TEXT: tuple[Mutation, ...] = (replace_token, replace_token, swap_tokens, change_lines, *BINARY)


def inside_safetensors(generator: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """The header of a safetensors file, or only what Carom keeps in it, changed and its length put right."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header, tensors = content[8 : 8 + length], content[8 + length :]
        if generator.random() < 0.7:
            whole = json.loads(header)
            inner = whole["__metadata__"]["carom"].encode()
            inner = generator.choice(TEXT)(generator, inner, [inner])
            whole["__metadata__"]["carom"] = inner.decode("utf-8", "replace")
            header = json.dumps(whole).encode()
        else:
            header = generator.choice(TEXT)(generator, header, [header])
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        return generator.choice(BINARY)(generator, content, others)
    if generator.random() < 0.3:
        tensors = generator.choice(BINARY)(generator, tensors, [tensors])
    return struct.pack("<Q", len(header)) + header + tensors


def inside_zip(generator: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """A member of a zip changed, and its checksum put right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = generator.choice(list(members))
    except Exception:
        return generator.choice(BINARY)(generator, content, others)
    method = generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name are meant
        for member, inside in members.items():
            if member == name:
                inside = generator.choice(TEXT)(generator, inside, list(members.values()))
                if generator.random() < 0.1:
                    member = generator.choice(("q9.npy", "t.npy", "../x.npy", ".npy", "q1", "v1.npy"))
            archive.writestr(member, inside)
    return made.getvalue()


def mutated(
    seeds: Sequence[bytes], mutations: Sequence[Mutation], number: int, *, limit: int = 2**20
) -> bytes:
    """The file of a number: one of the seeds, changed once or several times; `limit` keeps disks in peace."""
    generator = random.Random(number)
    content = generator.choice(seeds)
    for _ in range(generator.choice((1, 1, 1, 2, 3, 8))):
        content = generator.choice(mutations)(generator, content, seeds)[:limit]
    return content
