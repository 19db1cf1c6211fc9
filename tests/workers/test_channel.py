"""What crosses a socket arrives whole and in order, in whatever pieces it comes, and nothing is read too early."""

from __future__ import annotations

import random
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from evo.workers.channel import HEADER, PART, Channel, Packed

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def framed(message: object, rest: bytes = b"") -> bytes:
    body = Packed.of(message).body
    return HEADER.pack(len(body), len(rest)) + body + rest


def filling(part: int) -> bytes:
    """Return a message that is so many bytes on its way."""
    return bytes(next(size for size in range(part, 0, -1) if len(framed(bytes(size))) <= part))


@pytest.mark.parametrize("trial", range(8))
def test_messages_in_any_pieces_arrive_whole_and_the_end_is_seen(pair: Pair, trial: int) -> None:
    drawn = random.Random(trial)
    if trial % 2:
        pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)  # so that whole parts are read
    sizes = [drawn.choice([0, 1, PART, PART + 1, 3 * PART, drawn.randrange(5000)]) for _ in range(10)]
    said = [*(bytes([number]) * size for number, size in enumerate(sizes)), filling(PART)]
    stream = b"".join(map(framed, said))

    def send() -> None:
        begin = 0
        while begin < len(stream):
            count = drawn.choice([1, HEADER.size, 99, PART, 2 * PART])
            pair[0].sendall(stream[begin : begin + count])
            begin += count
        pair[0].shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    channel, heard, gone, until = Channel(pair[1]), [], False, time.monotonic() + 30
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while not gone:
            assert selector.select(10), "bytes were left behind that nobody is told of"
            assert time.monotonic() < until, "nothing is read"
            messages, gone = channel.arrived()
            heard += messages
    sender.join()
    assert heard == said
    assert channel.bytes_received == len(stream)


@pytest.mark.parametrize("large", [0, 2 * PART])
def test_what_is_to_stay_packed_stands_last(pair: Pair, large: int) -> None:
    sent = []
    sender = threading.Thread(target=lambda: sent.append(Channel(pair[0]).send((7, "seven"), Packed.of(bytes(large)))))
    sender.start()
    channel = Channel(pair[1])
    ticket, name, result = channel.receive()
    sender.join()
    assert (ticket, name, result.unpacked(), [channel.bytes_received]) == (7, "seven", bytes(large), sent)


def test_a_message_that_is_waited_for_is_all_that_is_read(pair: Pair) -> None:
    pair[0].sendall(framed("one") + b"+")
    assert Channel(pair[1]).receive() == "one"
    pair[1].setblocking(False)
    assert pair[1].recv(9) == b"+"


def test_what_had_come_before_time_was_up_is_not_lost(pair: Pair) -> None:
    channel, stream = Channel(pair[1], timeout=0.05), framed(b"x" * 100)
    pair[0].sendall(stream[:50])
    with pytest.raises(TimeoutError):
        channel.receive()
    pair[0].sendall(stream[50:])
    assert channel.receive() == b"x" * 100


def test_the_end_in_the_middle_of_a_message_is_an_end(pair: Pair) -> None:
    pair[0].sendall(framed(b"x" * 100)[:50])
    pair[0].close()
    with pytest.raises(EOFError):
        Channel(pair[1]).receive()


def test_more_than_is_allowed_is_not_sent(pair: Pair) -> None:
    channel = Channel(pair[0])
    assert channel.send(bytes(1000), most=100) == channel.send(1, Packed(bytes(1000)), most=100) == 0
    assert channel.send(1, most=100) > 0
    assert Channel(pair[1]).receive() == 1
