"""A proxy that drops answers: the call is executed, and the caller gets no answer."""

import contextlib
import socket
import threading


class LossyProxy:
    """A TCP proxy to another port that can drop answers."""

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
        for socket_ in self._open:
            _cut(socket_)
        for thread in self._threads:
            thread.join(60)
        for socket_ in self._open:
            socket_.close()

    def _start(self, act: object, *args: object) -> None:
        thread = threading.Thread(target=act, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                upstream = socket.create_connection(("127.0.0.1", self._to))
                for socket_ in (client, upstream):  # the parts of a request go on without a pause
                    socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [client, upstream]
                doomed = threading.Event()
                self._start(self._forth, client, upstream, doomed)
                self._start(self._back, upstream, client, doomed)

    def _forth(
        self, client: socket.socket, upstream: socket.socket, doomed: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._is_lost(data):
                    doomed.set()
                upstream.sendall(data)
        _cut(client, upstream)

    def _back(
        self, upstream: socket.socket, client: socket.socket, doomed: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while (data := upstream.recv(1 << 16)) and not doomed.is_set():
                client.sendall(data)
        _cut(client, upstream)

    def _is_lost(self, data: bytes) -> bool:
        with self._lock:
            for begin, times in self._lose.items():
                if times and begin in data:
                    self._lose[begin] -= 1
                    self.lost += 1
                    return True
        return False


def _cut(*sockets: socket.socket) -> None:
    for socket_ in sockets:
        with contextlib.suppress(OSError):
            socket_.shutdown(socket.SHUT_RDWR)
