"""The log files of a replica, written to a real folder: lines, masking, rotation, retention, and a disk that fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moorage.runtime.logs import logfile
from moorage.runtime.logs.logfile import LogFile

START = 1_767_225_600.0
DAY_MS = 86_400_000


class Time:
    """A clock controlled by the test, in seconds."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "17"


@pytest.fixture
def log(folder: Path, now: Time) -> LogFile:
    return LogFile(folder, "r1", ["hunter2-hunter2", "line-one\nline-two"], now)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def stored(folder: Path) -> list[tuple[str, str]]:
    """Return the letter and the text of every line."""
    lines = b"".join(path.read_bytes() for path in files(folder)).split(b"\n")
    assert lines.pop() == b""
    return [(parts[1], parts[3]) for parts in (line.decode().split(" ", 3) for line in lines)]


def texts(folder: Path) -> list[str]:
    return [text for _, text in stored(folder)]


def test_a_line_is_written_with_its_time_its_stream_and_its_replica(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"hello\n")
    log.write("stderr", b"oh no\n\n")
    log.write("system", b"The app ended with 1")

    (path,) = files(folder)
    assert path.name == "1767225600000-r1.log"
    assert path.read_bytes() == (
        b"1767225600000 o r1 hello\n"
        b"1767225600000 e r1 oh no\n"
        b"1767225600000 e r1 \n"
        b"1767225600000 s r1 The app ended with 1\n"
    )


def test_files_are_for_the_owner_and_the_group_only(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"hello\n")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert [stat.S_IMODE(path.stat().st_mode) for path in files(folder)] == [0o640]


def test_an_app_that_prints_nothing_has_no_file(log: LogFile, folder: Path) -> None:
    log.flush()
    log.close()

    assert files(folder) == []


def test_lines_are_put_together_from_pieces_for_each_stream(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"one, ")
    log.write("stderr", b"err")
    log.write("stdout", b"two\nthr")
    log.write("stderr", b"or\n")
    log.write("stdout", b"ee\n")

    assert stored(folder) == [("o", "one, two"), ("e", "error"), ("o", "three")]


def test_a_line_that_does_not_end_is_shown_after_a_while(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", b"continue? ")
    log.flush()
    before = texts(folder) if folder.exists() else []

    now.now += 1
    log.flush()
    log.write("stdout", b"yes\n")

    assert (before, texts(folder)) == ([], ["continue? ", "yes"])


def test_a_character_is_not_divided_where_an_unfinished_line_is_shown(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", "caf\u00e9".encode()[:-1])
    now.now += 1
    log.flush()
    log.write("stdout", "\u00e9\n".encode()[1:])

    assert texts(folder) == ["caf", "\u00e9"]


def test_what_is_left_is_written_at_the_end(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"no end")
    log.close()
    log.close()
    log.write("stdout", b"too late\n")

    assert texts(folder) == ["no end"]


def test_a_secret_in_two_pieces_is_masked(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", b"it is hunter2")
    now.now += 1
    log.flush()
    log.write("stdout", b"-hunter2, you know\n")

    assert texts(folder) == ["it is ", "****, you know"]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_a_secret_is_masked_whatever_the_pieces_are(piece: int, log: LogFile, folder: Path, now: Time) -> None:
    data = b"a hunter2-hunter2 b\nline-one\nline-two\nhunter2-hunter2hunter2-hunter2\n"

    for start in range(0, len(data), piece):
        log.write("stdout", data[start : start + piece])
        now.now += 1
        log.flush()
    log.close()

    joined = "".join(texts(folder))
    assert "".join(joined.split("****")) == "a  b"
    assert joined.count("****") == 5


def test_a_secret_that_control_characters_divide_is_masked(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"hunter2\x00-\x1b[2Khunter2 hunter2-\xc2\x85hunter2\n")

    assert texts(folder) == ["**** ****"]


def test_a_line_that_breaks_off_within_a_secret_shows_nothing_of_it(log: LogFile, folder: Path) -> None:
    log.write("stdout", b"it is hunter2-hun")
    log.close()

    assert texts(folder) == ["it is ****"]


def test_a_secret_where_a_long_line_is_cut_shows_nothing_of_itself(log: LogFile, folder: Path) -> None:
    secret = b"hunter2-hunter2"
    for before in range(logfile.LINE_BYTES - 20, logfile.LINE_BYTES + 1):
        log.write("stdout", b"x" * before + secret + b"y" * 100 + b"\n")
        log.write("stderr", b"x" * before + secret)
        log.write("stderr", b"y" * 100)
        log.write("stderr", b"\n")
        # Masking shortens the line so much that text behind the cut moves in front of it.
        log.write("stderr", secret * 10 + b"x" * (before - 10) + secret[:-2])
        log.write("stderr", secret[-2:] + b"\n")

    assert [text for text in texts(folder) if "hun" in text] == []
    assert len(texts(folder)) == 63


def test_a_long_line_is_cut_and_the_next_one_is_whole(log: LogFile, folder: Path) -> None:
    for _ in range(100):
        log.write("stdout", b"a" * 1000)
    log.write("stdout", b"\nnext\n" + b"b" * 50_000 + b"\n" + b"\xc3\xa9" * 10_000 + b"x\nlast\n")

    cut = [text for text in texts(folder) if text.endswith(" [cut]")]
    assert cut == ["a" * 16_384 + " [cut]", "b" * 16_384 + " [cut]", "\u00e9" * 8_192 + " [cut]"]
    assert [text for text in texts(folder) if text not in cut] == ["next", "last"]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"tab\there", "tab\there"),
        (b"be\x07ll \x00\x7f", "bell "),
        (b"\x1b[31;1mred\x1b[0m", "\x1b[31;1mred\x1b[0m"),
        (b"\x1b[2K\x1b[1Gprompt\x1b[?25h", "prompt"),
        (b"\x1b]0;title\x07text", "text"),
        (b"windows\r", "windows"),
        (b"10%\r50%\r100%", "100%"),
        (b"not \xff UTF-8 \xc3", "not \ufffd UTF-8 \ufffd"),
        ("caf\u00e9 \u2028 \u0085 \u20ac".encode(), "caf\u00e9 \u2028  \u20ac"),
    ],
)
def test_a_line_is_made_fit_to_be_shown(printed: bytes, shown: str, log: LogFile, folder: Path) -> None:
    log.write("stdout", printed + b"\n")

    assert texts(folder) == [shown]


def test_a_progress_bar_without_an_end_of_line_is_not_a_long_line(log: LogFile, folder: Path) -> None:
    for number in range(5000):
        log.write("stdout", b"\rstep %d of 5000" % number)
    log.write("stdout", b"\n")

    assert texts(folder) == ["step 4999 of 5000"]


def test_a_full_file_is_followed_by_the_next(log: LogFile, folder: Path, now: Time) -> None:
    line = b"x" * 983 + b"\n"
    for _ in range(10):
        log.write("stdout", line * 1000)
        now.now += 1

    sizes = [path.stat().st_size for path in files(folder)]
    assert len(sizes) == 3
    assert max(sizes) <= logfile.FILE_BYTES
    assert texts(folder) == ["x" * 983] * 10_000


def test_files_of_one_moment_have_names_and_times_in_order(log: LogFile, folder: Path) -> None:
    for _ in range(12):
        log.write("stdout", b"x" * 1000 * 1000 + b"\n" + b"y\n" * 60_000)

    names = [path.name for path in files(folder)]
    firsts = [path.read_bytes()[:13].decode() for path in files(folder)]
    assert len(names) > 1
    assert [name[:13] for name in names] == firsts


def test_a_quiet_app_begins_a_file_now_and_then(log: LogFile, folder: Path, now: Time) -> None:
    for _ in range(4):
        log.write("stdout", b"still here\n")
        now.now += 4 * 3600

    assert len(files(folder)) == 2


def test_times_in_a_file_never_go_back(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", b"one\n")
    now.now -= 1
    log.write("stdout", b"a little earlier\n")
    now.now -= 3600
    log.write("stdout", b"much earlier\n")

    by_name = [[int(line[:13]) for line in path.read_text().splitlines()] for path in files(folder)]
    assert by_name == [[1_767_221_999_000], [1_767_225_600_000] * 2]


def test_old_files_are_removed_by_age_and_not_when_a_file_is_begun(log: LogFile, folder: Path) -> None:
    start = int(START * 1000)
    folder.mkdir(parents=True)
    old = folder / f"{start - 8 * DAY_MS}-r0.log"
    young = folder / f"{start - 6 * DAY_MS}-r0.log"
    foreign = folder / "notes.txt"
    for path in (old, young, foreign):
        path.write_bytes(b"x\n")

    log.write("stdout", b"hello\n")  # The clock of the writing machine may have just been set forward.
    begun = old.exists()
    logfile.trim_each(folder.parent, start)

    assert begun
    assert (old.exists(), young.exists(), foreign.exists()) == (False, True, True)


def test_the_oldest_files_of_all_replicas_make_room(log: LogFile, folder: Path) -> None:
    folder.mkdir(parents=True)
    paths = [folder / f"{int(START * 1000) - 1000 + number}-r{number % 3}.log" for number in range(30)]
    for path in paths:
        path.touch()
        os.truncate(path, 4_000_000)

    log.write("stdout", b"hello\n")

    assert [path.exists() for path in paths] == [False] * 7 + [True] * 23


def test_an_app_goes_on_in_a_new_file_when_its_own_was_removed(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", b"one\n")
    files(folder)[0].unlink()
    now.now += 1
    log.write("stdout", b"two\n")

    assert texts(folder) == ["two"]


def test_lines_that_cannot_be_written_are_counted(folder: Path, now: Time) -> None:
    folder.parent.mkdir(parents=True)
    folder.touch()  # A file is in the place of the folder.
    log = LogFile(folder, "r1", [], now)
    log.write("stdout", b"one\ntwo\n")
    log.write("system", b"three\n")

    folder.unlink()
    now.now += 2
    log.flush()
    log.write("stdout", b"four\n")

    assert stored(folder) == [("s", "3 lines were lost: File exists"), ("o", "four")]


def test_a_full_disk_leaves_whole_lines_and_a_count(folder: Path, now: Time) -> None:
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    import resource
    import signal

    log = LogFile(folder, "r1", [], now)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        log.write("stdout", b"".join(b"line %03d\n" % number for number in range(100)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, kept)

    now.now += 2
    log.write("stdout", b"works again\n")

    shown = texts(folder)
    assert shown[:-2] == [f"line {number:03d}" for number in range(len(shown) - 2)]
    assert shown[-2:] == [f"{100 - len(shown) + 2} lines were lost: File too large", "works again"]
    assert 2 < len(shown) < 100


def test_what_floods_is_dropped_with_a_count_and_other_streams_go_on(log: LogFile, folder: Path, now: Time) -> None:
    line = b"x" * 99 + b"\n"
    for _ in range(500):
        log.write("stdout", line * 1000)
    log.write("stderr", b"the reason\n")
    log.write("system", b"The app ended")
    now.now += 2
    log.flush()

    found = stored(folder)
    printed = sum(1 for letter, _ in found if letter == "o")
    lost = [text for letter, text in found if letter == "s" and "lost" in text]
    assert printed * 100 < 2 * logfile.BURST_BYTES
    assert sum(int(text.split()[0]) for text in lost) == 500_000 - printed
    assert ("e", "the reason") in found
    assert ("s", "The app ended") in found


def test_an_app_that_prints_less_than_the_limit_loses_nothing(log: LogFile, folder: Path, now: Time) -> None:
    line = b"x" * 75 + b"\n"
    for _ in range(400):
        log.write("stdout", line * 500)
        now.now += 0.02

    assert [text for letter, text in stored(folder) if letter != "o"] == []


def test_empty_lines_count_as_what_they_take(log: LogFile, folder: Path, now: Time) -> None:
    log.write("stdout", b"\n" * 20_000_000)
    log.close()

    assert sum(path.stat().st_size for path in files(folder)) < 1.2 * logfile.BURST_BYTES
