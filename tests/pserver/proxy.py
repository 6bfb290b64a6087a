"""A wire that loses answers: what was asked is done, and the caller does not hear of it."""

import contextlib
import socket
import threading


class Proxy:
    """Listens at a port of its own and hands on to another."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._lock = threading.Lock()
        self._lose: dict[bytes, int] = {}
        self.lost = 0
        """Answers so far."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lose(self, path: str, times: int) -> None:
        """The next answers of a path get lost."""
        with self._lock:
            self._lose[f"POST {path} ".encode()] = times

    def close(self) -> None:
        """Cuts everything."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            _cut(one)
        for thread in self._threads:
            thread.join(25)
        for one in self._open:
            one.close()

    def _start(self, act: object, *args: object) -> None:
        thread = threading.Thread(target=act, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._open += [here, there]
                doomed = threading.Event()
                self._start(self._forth, here, there, doomed)
                self._start(self._back, there, here, doomed)

    def _forth(self, here: socket.socket, there: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                if self._is_lost(data):
                    doomed.set()
                there.sendall(data)
        _cut(here, there)

    def _back(self, there: socket.socket, here: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := there.recv(1 << 16)) and not doomed.is_set():
                here.sendall(data)
        _cut(here, there)

    def _is_lost(self, data: bytes) -> bool:
        with self._lock:
            for begin, times in self._lose.items():
                if times and begin in data:
                    self._lose[begin] -= 1
                    self.lost += 1
                    return True
        return False


def _cut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
