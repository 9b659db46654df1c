"""Sends a job to a queue on NATS JetStream, with the standard library of Python only.

    python3 enqueue.py nats://localhost:4222 orders '{"id": "7"}' Nats-Msg-Id=order-7 Yardmaster-Kind=charge
    python3 enqueue.py nats://localhost:4222 orders '{"id": "8"}' Yardmaster-Job-Id=order-8 --at 2030-01-01T00:00:00Z

In a program that sends many jobs, use the package nats-py, which reconnects and supports TLS.
"""
import json
import os
import socket
import sys
import urllib.parse

TIMEOUT_SECONDS = 10
# The errors "wrong last sequence": a delayed job with this ID is not due yet.
NOT_DUE_YET = (10071, 10164)


def enqueue(url, queue, payload, headers, priority="default", at=None):
    """Returns the answer of the server, or raises an error if it did not store the job."""
    subject, headers = f"yardmaster.{queue}.ready.{priority}", dict(headers)
    if at:
        job_id = headers["Yardmaster-Job-Id"]
        subject = f"yardmaster.{queue}.delayed.{job_id}"
        headers |= {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": f"yardmaster.{queue}.due.{priority}.{job_id}",
                    "Nats-Expected-Last-Subject-Sequence": "0"}
    address = urllib.parse.urlsplit(url)
    with socket.create_connection((address.hostname, address.port or 4222), TIMEOUT_SECONDS) as connection:
        stream = connection.makefile("rb")
        stream.readline()  # INFO
        inbox = "_INBOX." + os.urandom(12).hex()
        login = {"user": address.username, "pass": address.password} if address.username else {}
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "version": "0", **login}
        head = ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode()
        connection.sendall(
            f"CONNECT {json.dumps(options)}\r\nSUB {inbox} 1\r\n"
            f"HPUB {subject} {inbox} {len(head)} {len(head) + len(payload)}\r\n".encode() + head + payload + b"\r\n")
        while True:
            line = stream.readline().split()
            if not line:
                raise ConnectionError("the server closed the connection")
            if line[0] == b"PING":
                connection.sendall(b"PONG\r\n")
            elif line[0] == b"-ERR":
                raise PermissionError(b" ".join(line).decode())
            elif line[0] == b"HMSG":  # without a body: no stream has the subject
                raise LookupError(f"no queue {queue} with the priority {priority} accepts the job")
            elif line[0] == b"MSG":
                answer = json.loads(stream.read(int(line[-1])))
                if answer.get("error", {}).get("err_code") in NOT_DUE_YET:
                    return {"stream": answer["stream"], "duplicate": True}
                if "error" in answer:
                    raise RuntimeError(answer["error"]["description"])
                return answer


if __name__ == "__main__":
    arguments, due = sys.argv[1:], None
    if "--at" in arguments:
        index = arguments.index("--at")
        due = arguments[index + 1]
        del arguments[index:index + 2]
    job_headers = dict(argument.split("=", 1) for argument in arguments[3:])
    print(json.dumps(enqueue(arguments[0], arguments[1], arguments[2].encode(), job_headers, at=due)))
