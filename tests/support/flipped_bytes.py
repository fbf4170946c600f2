"""A relay before a server of this machine that changes a byte of what it passes on, as a broken router would."""

import contextlib
import socket
import threading


class FlippedBytes:
    """Relays connections to `target` (host:port). On the first `count` connections that bring so much, the byte at `place` of the answers is changed."""

    def __init__(self, target, place, count):
        self.target, self.place, self.left = target.split(":"), place, count
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # when it is stopped
            while True:
                client, _ = self.socket.accept()
                server = socket.create_connection(self.target)
                threading.Thread(target=self.relay, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self.relay, args=(server, client, True), daemon=True).start()

    def relay(self, source, sink, is_answer):
        passed = 0
        with contextlib.suppress(OSError):
            while piece := bytearray(source.recv(65536)):
                if is_answer and passed <= self.place < passed + len(piece):
                    with self.lock:
                        if self.left > 0:
                            self.left -= 1
                            piece[self.place - passed] ^= 1
                passed += len(piece)
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            if is_answer:
                end.close()

    def stop(self):
        self.socket.close()
