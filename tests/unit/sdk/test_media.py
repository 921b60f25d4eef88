"""Pictures and recordings as bytes or as files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hedgerow import InvalidArgument
from hedgerow._media import PIECE_BYTES, pieces, read, read_all
from hedgerow.channel import MAX_MESSAGE_BYTES


def test_bytes_and_paths_of_both_kinds_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"a")
    given = [b"x", bytearray(b"y"), tmp_path / "a.png", str(tmp_path / "a.png")]
    assert list(read_all("images", given)) == [b"x", b"y", b"a", b"a"]
    assert list(read_all("images", ())) == []
    for single in (b"a", str(tmp_path / "a.png"), tmp_path / "a.png"):
        assert list(read_all("images", single)) == [b"a"], "a single picture needs no sequence"


def test_a_recording_may_come_through_a_pipe_and_its_file_may_go_while_it_is_sent(tmp_path: Path) -> None:
    content, file, pipe = bytes(range(256)) * 2_000, tmp_path / "a.wav", tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writing.start()
    file.write_bytes(content)
    for given in (pipe, file):
        parts = pieces("audio", given)
        given.unlink()
        assert b"".join(parts) == content
    writing.join(5)


def test_a_recording_that_cannot_be_sent_is_refused_before_its_first_piece(tmp_path: Path) -> None:
    for given, problem in ((b"", "at least 1 byte, got 0"), (tmp_path / "none.wav", "a file that can be read, got")):
        with pytest.raises(InvalidArgument, match=f"audio: {problem}"):
            pieces("audio", given)


def test_a_file_that_cannot_be_sent_is_named_with_its_path(tmp_path: Path) -> None:
    large, empty = tmp_path / "large.png", tmp_path / "empty.png"
    empty.touch()
    with large.open("wb") as file:
        file.truncate(MAX_MESSAGE_BYTES + 1)
    for path, problem in (
        (large, f"at most {MAX_MESSAGE_BYTES} bytes, got {MAX_MESSAGE_BYTES + 1} ({large}); make it smaller"),
        (empty, f"at least 1 byte, got 0 ({empty})"),
        (tmp_path / "none.png", f"a file that can be read, got {tmp_path / 'none.png'} (No such file or directory)"),
        (tmp_path, f"a file that can be read, got {tmp_path} (Is a directory)"),
        ("", "a file that can be read, got no name (No such file or directory)"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            list(read_all("images", [b"x", path]))
        assert caught.value.message == f"images[1]: {problem}"
        assert caught.value.metadata["field"] == "images[1]"


def test_bytes_have_the_same_limits() -> None:
    assert len(read("audio", b"x" * MAX_MESSAGE_BYTES)) == MAX_MESSAGE_BYTES
    with pytest.raises(
        InvalidArgument, match=f"audio: at most {MAX_MESSAGE_BYTES} bytes, got {MAX_MESSAGE_BYTES + 1}; "
    ):
        read("audio", b"x" * (MAX_MESSAGE_BYTES + 1))


def test_a_recording_in_pieces_may_be_longer_than_a_message(tmp_path: Path) -> None:
    content, file = b"x" * (MAX_MESSAGE_BYTES + 1), tmp_path / "talk.wav"
    file.write_bytes(content)
    for given in (content, file):
        parts = list(pieces("audio", given))
        assert b"".join(parts) == content
        assert max(map(len, parts)) == PIECE_BYTES
