"""How often a token stream repeats itself: frequency and reliability of repeated cues.

At t with cue a = x[t-1] and successor b = x[t], n_a counts the earlier occurrences of a in the context
that have a successor, n_ab those with successor b. Over all t of a context of C ids,

    frequency F = P(n_a > 0)
    reliability, given n_a > 0: any = P(n_ab > 0), latest = P(b followed the last a), mean = E[n_ab / n_a]

so that the fraction of repeated bigrams is F x any. The two properties are those of Aoyama, Wilcox and
Schneider (arXiv 2511.16893). All depend on one number, the look-back m: how many positions before the
cue belong to the context. A histogram of the distance to the previous occurrence therefore gives every
m, and every C, in one pass:  F(m) = P(distance <= m),  F of contexts of C ids = mean of F(0 .. C-2).
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ContextStatistics",
    "Lookback",
    "context_statistics",
    "lookback_statistics",
    "token_chunks",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Stream = ArrayLike | Iterator[ArrayLike]

CHUNK = 1 << 20
LARGEST_ID = 2**31 - 1  # two ids make one 64-bit key


@dataclass(frozen=True, eq=False)
class Lookback:
    """Repetition as a function of the look-back m = 0 .. M: positions before the cue that count.

    Attributes
    ----------
    frequency : ndarray, shape (M + 1,)
        F(m), probability that the cue has occurred among them.
    bigram, latest : ndarray, shape (M + 1,)
        Joint probabilities: the bigram has occurred; the last occurrence of the cue had this successor.
    mean : ndarray, shape (M + 1,), optional
        E[n_ab / n_a; n_a > 0].
    positions : int
        Bigrams counted; 0 for an expectation.
    """

    frequency: FloatArray
    bigram: FloatArray
    latest: FloatArray
    mean: FloatArray | None = None
    positions: int = 0

    def contexts(
        self,
        context_sizes: Sequence[int] | IntArray,
        *,
        second_half: bool = False,
        denominator: Literal["bigrams", "tokens"] = "bigrams",
    ) -> ContextStatistics:
        """Averages over contexts of C ids, for every C in `context_sizes`.

        Parameters
        ----------
        context_sizes : sequence of int
            Each in 2 .. M + 2.
        second_half : bool
            Count only the successors at t >= C / 2 of their context.
        denominator : {"bigrams", "tokens"}
            C - 1 bigrams a context, or C tokens, of which the first repeats nothing.

        Raises
        ------
        ValueError
            If a context size is out of range.

        Examples
        --------
        >>> lookback_statistics([1, 2, 1, 2, 1, 3], 4).contexts([2, 4]).frequency.round(4).tolist()
        [0.0, 0.2]
        """
        sizes = _context_sizes(context_sizes)
        if sizes.max() > self.frequency.size + 1:
            raise ValueError(
                f"context_sizes up to {sizes.max()}: the look-back {self.frequency.size - 1} allows "
                f"at most {self.frequency.size + 1}"
            )
        if denominator not in ("bigrams", "tokens"):
            raise ValueError(f"denominator={denominator!r}: must be 'bigrams' or 'tokens'")

        def average(profile: FloatArray) -> FloatArray:
            first = [(size + 1) // 2 - 1 if second_half else 0 for size in sizes]
            # the first token of a context has no cue; it lies outside the second half
            unit = [1.0 if denominator == "bigrams" or second_half else (size - 1) / size for size in sizes]
            return np.array([u * profile[f : size - 1].mean() for u, f, size in zip(unit, first, sizes, strict=True)])

        mean = None if self.mean is None else average(self.mean)
        return ContextStatistics(
            sizes, average(self.frequency), average(self.bigram), average(self.latest), mean, self.positions
        )


@dataclass(frozen=True, eq=False)
class ContextStatistics:
    """Repetition in contexts of C ids, one entry for each context size.

    Attributes
    ----------
    context_size : ndarray of int, shape (k,)
        C.
    frequency : ndarray, shape (k,)
        F, the share of positions whose cue is repeated.
    bigram, latest : ndarray, shape (k,)
        Share of positions whose bigram is repeated, or follows the last occurrence of its cue.
    mean : ndarray, shape (k,), optional
        E[n_ab / n_a; n_a > 0].
    positions : int or ndarray of int, shape (k,)
        Positions counted; 0 for an expectation.
    """

    context_size: IntArray
    frequency: FloatArray
    bigram: FloatArray
    latest: FloatArray
    mean: FloatArray | None
    positions: int | IntArray

    def reliability(self, kind: Literal["any", "latest", "mean"] = "any") -> FloatArray:
        """Reliability given a repeated cue; NaN where no cue is repeated.

        Raises
        ------
        ValueError
            For another kind, or for "mean" when it was not counted.

        Examples
        --------
        >>> statistics = context_statistics([1, 2, 1, 2, 1, 3], [6])
        >>> float(statistics.reliability("any")[0].round(4))
        0.6667
        """
        joint = {"any": self.bigram, "latest": self.latest, "mean": self.mean}
        if kind not in joint:
            raise ValueError(f"kind={kind!r}: must be one of {', '.join(joint)}")
        chosen = joint[kind]
        if chosen is None:
            raise ValueError("kind='mean': was not counted; ask for it with mean=True")
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(chosen / self.frequency)


def lookback_statistics(
    stream: Stream,
    max_lookback: int,
    *,
    end_of_document: int | None = None,
    self_pairs: bool = True,
    mean: bool = False,
    vocabulary_size: int | None = None,
    progress: bool = False,
) -> Lookback:
    """Repetition of a token stream at every look-back up to a maximum, in one pass.

    This is the average over sliding contexts: every position is the end of one context of each length.
    Time is proportional to the stream and does not depend on `max_lookback` (with `mean` it grows with
    the number of repeats); memory is proportional to `max_lookback` and the vocabulary.

    Parameters
    ----------
    stream : array_like of int, shape (N,), or iterator of such arrays
        Token ids; a memory map is read in pieces, an iterator gives one stream in pieces (`token_chunks`).
    max_lookback : int
        M, at least 0; contexts of up to M + 2 ids can be averaged afterwards.
    end_of_document : int, optional
        Id that ends a document. Nothing before it counts after it, and bigrams with it are left out.
    self_pairs : bool
        Whether the bigrams a a count, as events and as earlier occurrences.
    mean : bool
        Also the mean reliability, E[n_ab / n_a].
    vocabulary_size : int, optional
        Ids must be smaller; by default tables grow with the largest id.
    progress : bool
        Show a bar (tqdm, when installed).

    Returns
    -------
    Lookback

    Raises
    ------
    TypeError
        If ids are not integers.
    ValueError
        If the stream is not one-dimensional, has no bigram, or holds an id out of range.

    Notes
    -----
    The look-back is cut at the start of the stream or document; a long stream hides it.

    Examples
    --------
    >>> lookback_statistics([1, 2, 1, 2, 1, 3], 4).frequency.tolist()
    [0.0, 0.0, 0.6, 0.6, 0.6]
    """
    scan = _scan_stream(
        stream,
        max_lookback,
        np.empty(0, np.int64),
        end_of_document,
        self_pairs,
        mean,
        False,
        vocabulary_size,
        progress,
    )
    total = int(scan.counted[0])
    cue, bigram, latest, ratio = (np.cumsum(row) / total for row in scan.histogram)
    return Lookback(cue, bigram, latest, ratio if mean else None, total)


def context_statistics(
    stream: Stream,
    context_sizes: Sequence[int] | IntArray,
    *,
    windows: Literal["disjoint", "sliding"] = "disjoint",
    second_half: bool = False,
    denominator: Literal["bigrams", "tokens"] = "bigrams",
    end_of_document: int | None = None,
    self_pairs: bool = True,
    mean: bool = False,
    vocabulary_size: int | None = None,
    progress: bool = False,
) -> ContextStatistics:
    """Repetition of a token stream in contexts of C ids, for several C in one pass.

    Parameters
    ----------
    stream, end_of_document, self_pairs, mean, vocabulary_size, progress
        As in `lookback_statistics`.
    context_sizes : sequence of int
        C, each at least 2.
    windows : {"disjoint", "sliding"}
        Contexts cut one after the other, as a training set is packed (each document starts a new one if
        `end_of_document` is given; a last, shorter one counts), or at every offset.
    second_half : bool
        Count only the successors at t >= C / 2 of their context.
    denominator : {"bigrams", "tokens"}
        C - 1 bigrams a context, or C tokens, of which the first repeats nothing.

    Returns
    -------
    ContextStatistics

    Raises
    ------
    TypeError, ValueError
        As `lookback_statistics`.

    Examples
    --------
    >>> context_statistics([1, 2, 1, 2, 1, 2, 1, 2], [4]).frequency.round(4).tolist()
    [0.3333]
    """
    sizes = _context_sizes(context_sizes)
    common: dict[str, Any] = {
        "end_of_document": end_of_document,
        "self_pairs": self_pairs,
        "mean": mean,
        "vocabulary_size": vocabulary_size,
        "progress": progress,
    }
    if windows == "sliding":
        profile = lookback_statistics(stream, int(sizes.max()) - 2, **common)
        return profile.contexts(sizes, second_half=second_half, denominator=denominator)
    if windows != "disjoint":
        raise ValueError(f"windows={windows!r}: must be 'disjoint' or 'sliding'")
    if denominator not in ("bigrams", "tokens"):
        raise ValueError(f"denominator={denominator!r}: must be 'bigrams' or 'tokens'")
    scan = _scan_stream(stream, int(sizes.max()) - 2, sizes, second_half=second_half, **common)
    firsts = scan.windows[:, 0] if denominator == "tokens" and not second_half else 0.0
    total = scan.windows[:, 1] + firsts
    with np.errstate(invalid="ignore"):
        cue, bigram, latest, ratio = (scan.windows[:, 2:] / total[:, None]).T
    return ContextStatistics(sizes, cue, bigram, latest, ratio if mean else None, total.astype(np.int64))


def token_chunks(
    path: str | os.PathLike[str], *, dtype: str | None = None, end_of_document: int | None = None
) -> Iterator[NDArray[np.integer[Any]]]:
    """Token ids of a file, piece by piece: .npy, .bin, or .jsonl with ``input_ids``.

    Parameters
    ----------
    path : path
        .npy (one-dimensional, mapped), .bin (headerless, mapped) or .jsonl (one document a line).
    dtype : {"uint16", "uint32"}, optional
        Of a .bin file, which does not say.
    end_of_document : int, optional
        Appended to a line of a .jsonl file that does not end with it.

    Yields
    ------
    ndarray of int

    Raises
    ------
    ValueError
        If the file is empty, truncated, of another format, or a line has no list of ids; the sentence
        names the file and, for .jsonl, the line.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ids.bin"
    >>> np.arange(5, dtype=np.uint16).tofile(path)
    >>> [chunk.tolist() for chunk in token_chunks(path, dtype="uint16")]
    [[0, 1, 2, 3, 4]]
    """
    file = Path(path)
    if file.suffix == ".jsonl":
        yield from _jsonl(file, end_of_document)
        return
    ids = _mapped(file, dtype)
    for start in range(0, ids.size, CHUNK):
        yield ids[start : start + CHUNK]


def _mapped(file: Path, dtype: str | None) -> NDArray[np.integer[Any]]:
    size = file.stat().st_size
    if size == 0:
        raise ValueError(f"{file}: is empty")
    if file.suffix == ".bin":
        if dtype not in ("uint16", "uint32"):
            raise ValueError(f"dtype={dtype!r}: {file} does not say its type; give uint16 or uint32")
        width = np.dtype(dtype).itemsize
        if size % width:
            raise ValueError(f"{file}: {size} bytes are not a whole number of {dtype} ids: truncated, or another type")
        return np.memmap(file, dtype=dtype, mode="r")
    if file.suffix != ".npy":
        raise ValueError(f"{file}: unknown format {file.suffix!r}; must be .npy, .bin or .jsonl")
    try:
        ids = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file}: is not a whole .npy file ({error})") from None
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{file}: {ids.dtype} of shape {ids.shape}; must be one-dimensional integers")
    return ids  # type: ignore[no-any-return]


def _jsonl(file: Path, end_of_document: int | None) -> Iterator[IntArray]:
    found = False
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                ids = json.loads(line)["input_ids"]
            except (json.JSONDecodeError, KeyError, TypeError):
                raise ValueError(f"{file}: line {number} is not an object with input_ids (truncated?)") from None
            if not isinstance(ids, list) or not all(type(i) is int and abs(i) < 2**63 for i in ids):
                raise ValueError(f"{file}: line {number}: input_ids must be a list of integers")
            if end_of_document is not None and ids[-1:] != [end_of_document]:
                ids.append(end_of_document)
            found = True
            yield np.array(ids, dtype=np.int64)
    if not found:
        raise ValueError(f"{file}: is empty")


def _context_sizes(context_sizes: Sequence[int] | IntArray) -> IntArray:
    sizes = np.atleast_1d(np.asarray(context_sizes))
    if sizes.ndim != 1 or sizes.size == 0 or not np.issubdtype(sizes.dtype, np.integer) or sizes.min() < 2:
        raise ValueError(f"context_sizes={context_sizes}: must be integers of at least 2")
    return sizes.astype(np.int64)


def _pieces(stream: Stream) -> Iterator[NDArray[np.integer[Any]]]:
    """Pieces of at most CHUNK ids, without reading a memory map whole."""
    if isinstance(stream, Iterator):
        for piece in stream:
            yield from _pieces(np.asarray(piece))
        return
    ids = np.asanyarray(stream)  # a memory map stays one
    if ids.ndim != 1:
        raise ValueError(
            f"stream of shape {ids.shape}: must be one-dimensional; give several documents as an iterator of arrays"
        )
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"stream of type {ids.dtype}: ids must be integers")
    for start in range(0, ids.size, CHUNK):
        yield ids[start : start + CHUNK]


@dataclass(frozen=True, eq=False)
class _Scan:
    histogram: FloatArray  # (4, M + 1): cue, bigram, latest, change of the ratio, by distance
    counted: FloatArray  # (1,): bigrams
    windows: FloatArray  # (k, 6): first tokens, bigrams, cue, bigram, latest, ratio, of disjoint contexts


def _scan_stream(
    stream: Stream,
    max_lookback: int,
    context_sizes: IntArray,
    end_of_document: int | None,
    self_pairs: bool,
    mean: bool,
    second_half: bool,
    vocabulary_size: int | None,
    progress: bool,
) -> _Scan:
    if end_of_document is not None and end_of_document < 0:
        raise ValueError(f"end_of_document={end_of_document}: must be an id, not negative")
    max_lookback = operator.index(max_lookback)
    if max_lookback < 0:
        raise ValueError(f"max_lookback={max_lookback}: must not be negative")
    if vocabulary_size is not None and not 1 <= vocabulary_size <= LARGEST_ID + 1:
        raise ValueError(f"vocabulary_size={vocabulary_size}: must lie in 1 .. 2**31")
    limit = LARGEST_ID if vocabulary_size is None else vocabulary_size - 1
    # A turn is longer than the look-back, so that two of them hold every bigram that counts
    turn_bits = max(max_lookback, 1023).bit_length()
    tables = np.full((2, 2 << turn_bits, 2), -1, dtype=np.int64)  # key, position
    ring = np.full((1 << turn_bits if mean else 1, 2), -1, dtype=np.int64)  # previous position, successor
    last = np.full((vocabulary_size or 0, 2), -1, dtype=np.int64)  # last position as a cue, its successor
    # tokens read, previous id, start of the document
    state = np.array([0, -1, 0], dtype=np.int64)
    scan = _Scan(np.zeros((4, max_lookback + 1)), np.zeros(1), np.zeros((context_sizes.size, 6)))
    phase = np.full(context_sizes.size, -1, dtype=np.int64)
    for piece in _with_progress(_pieces(stream), progress):
        low, high = int(piece.min()), int(piece.max())
        if low < 0 or high > limit:
            at = int(np.argmax((piece < 0) | (piece > limit)))
            raise ValueError(f"stream: id {piece[at]} at position {state[0] + at} is outside [0, {limit}]")
        if high >= last.shape[0]:
            larger = np.full((max(high + 1, min(2 * last.shape[0], limit + 1)), 2), -1, dtype=np.int64)
            larger[: last.shape[0]] = last
            last = larger
        _scan_ids(
            piece.astype(np.int64), state, last, tables, ring, turn_bits, max_lookback,
            -1 if end_of_document is None else end_of_document, self_pairs, mean, second_half,
            context_sizes, phase, scan.histogram, scan.counted, scan.windows,
        )  # fmt: skip
    if scan.counted[0] == 0:
        raise ValueError(f"stream: {state[0]} ids hold no bigram to count")
    return scan


def _with_progress(pieces: Iterator[Any], progress: bool) -> Iterator[Any]:
    if not progress:
        return pieces
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return pieces

    def shown() -> Iterator[Any]:
        with tqdm(unit="tokens", unit_scale=True) as bar:
            for piece in pieces:
                yield piece
                bar.update(len(piece))

    return shown()


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _slot(table: IntArray, key: int, oldest: int) -> int:
    """Slot of `key` among the entries not older than `oldest`, or the free slot where it belongs."""
    mask = table.shape[0] - 1
    # Fibonacci hashing: high bits of the product with 2^64 / golden ratio
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(34)) & mask
    while table[slot, 1] >= oldest and table[slot, 0] != key:
        slot = (slot + 1) & mask
    return slot  # type: ignore[no-any-return]


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _scan_ids(  # type: ignore[no-untyped-def]
    ids,
    state,
    last,
    tables,
    ring,
    turn_bits,
    max_lookback,
    end,
    self_pairs,
    mean,
    second_half,
    sizes,
    phase,
    histogram,
    counted,
    windows,
):
    """Count one piece. The bigram (a, b) starts at p; distances d = p - earlier position.

    Bigrams live in two open-addressed tables that take turns every 2^turn_bits positions. An entry
    older than its table's turn is free again, so nothing is ever cleared.
    """
    position, a, start = state[0], state[1], state[2]
    far = max_lookback + 1
    ring_mask = ring.shape[0] - 1
    for b in ids:
        p = position - 1  # of the cue
        position += 1
        for c in range(sizes.size):
            phase[c] += 1
            if phase[c] == sizes[c]:
                phase[c] = 0
            if b != end and phase[c] == 0:
                windows[c, 0] += 1.0
        if b == end:
            a = -1
            start = position
            phase[:] = -1
            continue
        if a < 0 or (a == b and not self_pairs):
            a = b
            continue
        counted[0] += 1.0
        since = max(start, p - max_lookback)

        previous = last[a, 0]
        d_cue = p - previous if previous >= since else far
        turn = (p >> turn_bits) << turn_bits  # where this turn began
        side = (p >> turn_bits) & 1
        key = (a << 32) | b
        slot = _slot(tables[side], key, turn)
        earlier = tables[side, slot, 1]
        tables[side, slot, 0] = key
        tables[side, slot, 1] = p
        if earlier < turn:
            earlier = -1
            if d_cue < far and turn > 0:  # a bigram is no nearer than its cue
                before = turn - (1 << turn_bits)
                other = _slot(tables[1 - side], key, before)
                if tables[1 - side, other, 1] >= before:
                    earlier = tables[1 - side, other, 1]
        d_bigram = p - earlier if earlier >= since else far
        match = d_cue < far and last[a, 1] == b
        if d_cue < far:
            histogram[0, d_cue] += 1.0
            if match:
                histogram[2, d_cue] += 1.0
            if d_bigram < far:
                histogram[1, d_bigram] += 1.0
        last[a, 0] = p
        last[a, 1] = b

        for c in range(sizes.size):
            m = phase[c] - 1  # look-back inside the context; -1 when the cue ended the context before
            if m < 0 or (second_half and 2 * phase[c] < sizes[c]):
                continue
            windows[c, 1] += 1.0
            if d_cue <= m:
                windows[c, 2] += 1.0
                if match:
                    windows[c, 4] += 1.0
                if d_bigram <= m:
                    windows[c, 3] += 1.0

        if mean:
            # walk back along the occurrences of the cue: the ratio changes at each
            n_a = 0
            n_ab = 0
            old = 0.0
            q = previous
            while q >= since:
                n_a += 1
                if ring[q & ring_mask, 1] == b:
                    n_ab += 1
                ratio = n_ab / n_a
                histogram[3, p - q] += ratio - old
                for c in range(sizes.size):
                    m = phase[c] - 1
                    if p - q <= m and not (second_half and 2 * phase[c] < sizes[c]):
                        windows[c, 5] += ratio - old
                old = ratio
                q = ring[q & ring_mask, 0]
            ring[p & ring_mask, 0] = previous
            ring[p & ring_mask, 1] = b
        a = b
    state[0], state[1], state[2] = position, a, start
