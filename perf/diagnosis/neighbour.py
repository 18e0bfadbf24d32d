#!/usr/bin/env python3
"""neighbour.py: another job's traffic on an emulated tree: bytes from one host to another for a while. Run by faults.py
as every rank of a command on the tree; ranks on other hosts end at once.

usage: neighbour.py FROM TO SECONDS [CONNECTIONS]
"""

import socket
import sys
import threading
import time

PORT = 9977


def receive(server):
    connection, _ = server.accept()
    while connection.recv(1 << 20):
        pass


def send(to, end):
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((to, PORT))
            break
        except OSError:  # it does not listen yet
            time.sleep(0.05)
    else:
        return
    data = bytes(1 << 18)
    while time.monotonic() < end:
        connection.sendall(data)
    connection.close()


def main():
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    source, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    connections = int(sys.argv[4]) if len(sys.argv) == 5 else 4
    here = socket.gethostname()
    if here == target:
        server = socket.create_server(("", PORT), backlog=connections)
        threads = [threading.Thread(target=receive, args=(server,)) for _ in range(connections)]
    elif here == source:
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=send, args=(target, end)) for _ in range(connections)]
    else:
        return
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
