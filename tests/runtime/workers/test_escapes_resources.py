"""Exhaustion of shared resources: processes, disk, memory, time, descriptors, logs.

Tried from inside a function, as root and as an ordinary user.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.runtime.workers.invoker_support import Host, Lab, lab_on, node_lab_on, until

pytestmark = [
    pytest.mark.group("cells-escapes"),
    pytest.mark.boundary(
        "tenant-to-tenant",
        "A function uses no more processes, disk, memory, time, descriptors and logs than its limits.",
    ),
]

MB = 2**20


@pytest.mark.usefixtures("is_healthy")
def test_a_fork_bomb_is_bounded_and_goes_with_its_sandbox(host: Host, lab: Lab) -> None:
    bomb = lab_on(host)
    code = """
    started = 0
    while started < 1000:
        try:
            if os.fork() == 0:
                signal.pause()
            started += 1
        except OSError as error:
            answer = [started, errno.errorcode[error.errno]]
            break
    """

    before = len(host.sandboxes())
    started, why = bomb.run(code)

    assert why == "EAGAIN"
    assert 8 <= started < 150
    assert lab.run("answer = 'fine'") == "fine"
    host.drop(bomb.number)
    until(lambda: len(host.sandboxes()) <= before + 8, "the bomb's end")


@pytest.mark.usefixtures("is_healthy")
def test_threads_are_bounded_as_well(host: Host) -> None:
    code = """
    hold, started = threading.Event(), 0
    try:
        for _ in range(1000):
            threading.Thread(target=hold.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        answer = started
    hold.set()
    """

    assert 8 <= lab_on(host).run(code) < 150


@pytest.mark.usefixtures("is_healthy")
def test_the_private_disk_is_full_at_64_mb_shared_memory_included(host: Host) -> None:
    lab = lab_on(host, memory_mb=512)
    code = """
    written, number = 0, 0
    try:
        while written < 200 * 2**20:
            with open(f"{args['folders'][number % 2]}/file{number}", "wb", buffering=0) as file:
                written += file.write(bytes(2**20))
            number += 1
    except OSError as error:
        answer = [written, errno.errorcode[error.errno]]
    """

    written, why = lab.run(code, folders=["/tmp", "/dev/shm"])

    assert why == "ENOSPC"
    assert 60 * MB <= written <= 64 * MB


def test_one_file_is_bounded_and_so_are_their_names(host: Host) -> None:
    lab = lab_on(host, memory_mb=512)
    code = """
    with open("/tmp/long", "wb") as file:
        answer = [attempt(os.ftruncate, file.fileno(), 65 * 2**20)]
    try:
        for number in range(100_000):
            os.mkdir(f"/tmp/{number}")
    except OSError as error:
        answer += [number, errno.errorcode[error.errno]]
    """

    why, count, then = lab.run(code)

    assert (why, then) == ("EFBIG", "ENOSPC")
    assert count < 20_001


@pytest.mark.usefixtures("is_healthy")
def test_memory_is_bounded_and_the_caller_is_told(host: Host) -> None:
    lab = lab_on(host, memory_mb=128)
    code = "held = []\nfor _ in range(80): held.append(b'x' * (8 * 2**20)); time.sleep(0.01)\ntime.sleep(3)\n"

    errors = [lab.error(code) for _ in range(2)]

    assert errors == ["the function used more than its 128 MB of memory"] * 2
    assert lab.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_memory_of_children_counts_as_well(host: Host) -> None:
    lab = lab_on(host, memory_mb=128)
    code = """
    for _ in range(4):
        if os.fork() == 0:
            held = [b"x" * (5 * 2**20) for _ in range(16)]
            time.sleep(20)
            os._exit(0)
    while True:
        if os.waitpid(-1, 0)[1]:
            os._exit(3)
    """

    told = host.call(lab.number, lab.params(code))

    assert told["status"] == "error"
    assert "128 MB of memory" in told["error"] or "exit" in told["error"]


HELD = {
    "a file in memory": """
        for _ in range(20):
            file = os.memfd_create("x")
            for _ in range(16):
                os.write(file, bytes(1 << 20))
        """,
    "shared memory that is not in the page tables": """
        import mmap
        for _ in range(20):
            piece = mmap.mmap(-1, 16 << 20)
            for _ in range(16):
                piece.write(bytes(1 << 20))
            piece.madvise(mmap.MADV_DONTNEED)
            __builtins__.setdefault("held", []).append(piece)
            time.sleep(0.3)
        """,
    "a segment of System V": """
        libc = ctypes.CDLL(None, use_errno=True)
        for _ in range(20):
            segment = libc.shmget(0, ctypes.c_size_t(16 << 20), 0o1600)
            if segment < 0:
                raise OSError(ctypes.get_errno(), "shmget")
            libc.shmat.restype = ctypes.c_void_p
            address = libc.shmat(segment, None, 0)
            ctypes.memset(ctypes.c_void_p(address), 1, 16 << 20)
            libc.shmdt(ctypes.c_void_p(address))
        """,
}


@pytest.mark.boundary("tenant-to-tenant", "A function cannot hold memory that no process of it has mapped.")
@pytest.mark.parametrize("how", HELD)
@pytest.mark.usefixtures("is_healthy")
def test_memory_that_is_not_mapped_is_refused_or_counted(host: Host, how: str) -> None:
    lab = lab_on(host, memory_mb=128, timeout_ms=20_000)

    error = lab.error(HELD[how] + "time.sleep(5)\n")

    refused = ["[Errno 38]", "[Errno 28]", "128 MB of memory", "ended before it answered"]
    if host.mode == "root":  # The cgroup gets no more pages, and the call may time out while it waits.
        refused.append("ran past its 20000 ms timeout")
    assert any(each in error for each in refused), error
    assert lab.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_the_memory_of_node_is_bounded_too(host: Host) -> None:
    node = node_lab_on(host, memory_mb=128)
    code = "const held = []; for (let n = 0; n < 60; n++) { held.push(Buffer.alloc(8e6, 1)); await 0 }"

    error = node.error(code + "; await new Promise(done => setTimeout(done, 3000))")

    assert error == "the function used more than its 128 MB of memory"
    assert node.run("return 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_one_organization_s_endless_loops_do_not_keep_another_from_its_answers(host: Host, lab: Lab) -> None:
    hogs = [lab_on(host, org="66", timeout_ms=3000) for _ in range(4)]
    quiet = lab_on(host, org="2")

    with ThreadPoolExecutor(len(hogs)) as threads:
        endless = [threads.submit(hog.error, "while True: pass") for hog in hogs]
        answers = [quiet.run("answer = 'fine'") for _ in range(50)]
        still_running = sum(not each.done() for each in endless)

    assert answers == ["fine"] * 50
    assert still_running > 0
    assert {each.result() for each in endless} == {"the function ran past its 3000 ms timeout"}


@pytest.mark.usefixtures("is_healthy")
def test_descriptors_on_their_way_to_nowhere_do_not_keep_others_from_a_sandbox(host: Host) -> None:
    lab, other = lab_on(host), lab_on(host, org="2")
    code = """
    pairs, null = [], os.open("/dev/null", os.O_RDONLY)
    try:
        while len(pairs) < 400:
            pairs.append(socket.socketpair())
            socket.send_fds(pairs[-1][0], [b"x"], [null] * 250)
    except OSError as error:
        sys.hold, answer = pairs, errno.errorcode[error.errno]
    """

    why = lab.run(code)

    assert why in {"ETOOMANYREFS", "EMFILE"}
    assert other.run("answer = 'fine'") == "fine"


@pytest.mark.usefixtures("is_healthy")
def test_what_a_function_says_late_is_bounded(host: Host) -> None:
    lab = lab_on(host)
    code = """
    import struct
    text = b"x" * 1_000_000
    entry = struct.pack("<BqI", 1, 0, len(text)) + text
    frame = struct.pack("<IB", 33 + len(entry), 19) + b"a" * 32 + entry
    sock = edge_socket()
    for _ in range(40):
        sock.sendall(frame)
    """

    lab.run(code)
    lab.run("answer = 1")

    written = sum(len(record.log) for record in host.records() if record.function_id == lab.number)
    assert 0 < written <= 21 * MB
