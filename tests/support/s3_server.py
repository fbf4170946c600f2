"""A real S3 server (SeaweedFS's wheel) on this machine, and a proxy before it that makes mistakes when it is told to."""

import contextlib
import datetime
import hashlib
import hmac
import http.client
import http.server
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import sysconfig
import threading
import time
import urllib.parse

from free_ports import free_ports

KEY, SECRET = "AKIATITANIUMTEST", "secret/secret+secret"
READER_KEY, READER_SECRET = "AKIAREADERTEST", "readerreader"  # may only list and read the bucket `open`, and `texts/sub` of the bucket `corpus`


def weed():
    """The program, or None."""
    path = pathlib.Path(sysconfig.get_paths()["scripts"]) / "weed"
    return str(path) if path.exists() else shutil.which("weed")


def signed_headers(method, host, path, body=b"", key=KEY, secret=SECRET, query=""):
    """Amazon's signature, written down here a second time so that it checks ours."""
    now = datetime.datetime.now(datetime.timezone.utc)
    moment, date, payload = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d"), hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": moment}
    canonical = "\n".join([method, urllib.parse.quote(path), query, *(f"{name}:{value}" for name, value in sorted(headers.items())), "", ";".join(sorted(headers)), payload])
    scope = f"{date}/us-east-1/s3/aws4_request"
    signing = f"AWS4{secret}".encode()
    for part in (date, "us-east-1", "s3", "aws4_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={';'.join(sorted(headers))}, Signature={signature}"}


class S3Server:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        names = ("master.port", "volume.port", "filer.port", "master.port.grpc", "volume.port.grpc", "filer.port.grpc", "s3.port.grpc")
        self.port, *ports = free_ports(1 + len(names))
        self.host = f"127.0.0.1:{self.port}"
        identities = [
            {"name": "all", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "Write", "List"]},
            {"name": "reader", "credentials": [{"accessKey": READER_KEY, "secretKey": READER_SECRET}], "actions": ["Read:open", "List:open", "Read:corpus/texts/sub*", "List:corpus/texts/sub*"]},
        ]
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": identities}))
        (self.folder / "data").mkdir()
        command = [weed(), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder / 'data'}", "-s3", f"-s3.port={self.port}", f"-s3.config={config}", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=64", "-volume.max=60"]
        command += [f"-{name}={port}" for name, port in zip(names, ports)]
        self.log = open(self.folder / "weed.log", "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder)

    def wait(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("PUT", "/probe") in (200, 409):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.3)
        raise RuntimeError("the S3 server does not answer: " + (self.folder / "weed.log").read_text(errors="replace")[-2000:])

    def answer(self, method, path, body=b"", query=""):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            target = urllib.parse.quote(path) + (f"?{query}" if query else "")
            connection.request(method, target, body, signed_headers(method, self.host, path, body, query=query))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def request(self, method, path, body=b""):
        return self.answer(method, path, body)[0]

    def put(self, bucket, key, content):
        self.request("PUT", f"/{bucket}")
        assert self.request("PUT", f"/{bucket}/{key}", content) == 200, key

    def get(self, bucket, key):
        status, content = self.answer("GET", f"/{bucket}/{key}")
        assert status == 200, key
        return content

    def names(self, bucket, prefix):
        """Of the objects below a prefix, without it."""
        status, listed = self.answer("GET", f"/{bucket}", query=f"list-type=2&prefix={urllib.parse.quote(prefix, safe='')}")
        assert status == 200, prefix
        return {name.removeprefix(prefix) for name in re.findall(r"<Key>(.*?)</Key>", listed.decode())}

    def stop(self):
        self.process.kill()  # it takes 15 s to say good-bye, and nobody needs its files
        self.process.wait()
        self.log.close()


class FaultyProxy:
    """Passes requests on to `target` (host:port). `faults` is a list that each GET takes one from: None, 503, "reset", "short", "stall",
    "less" (a whole answer of fewer bytes than asked for), "wrong range" or "wrong bytes"; `write_faults` is the same for PUT, POST and DELETE: None, 503, "reset"
    or "lost" (it is done, and the answer does not come). While `down` is set, connections are closed at once. `on_write` gets each of these requests, `on_read` each GET and HEAD, to which it may give a fault.
    What `denies` says of the former is answered with 403. With `certificate`, a file with a key, it speaks HTTPS."""

    def __init__(self, target, certificate=None):
        proxy = self
        self.target, self.faults, self.write_faults, self.down, self.requests = target, [], [], False, []
        self.on_write = self.on_read = self.denies = lambda method, path: None
        self.lock = threading.Lock()
        self.released = threading.Event()  # ends answers that stall

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_PUT(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy.lock:
                    proxy.requests.append((self.command, self.path, None))
                    fault = proxy.write_faults.pop(0) if proxy.write_faults else None
                proxy.on_write(self.command, self.path)
                if proxy.down or fault == "reset":
                    self.close_connection = True
                    return
                if proxy.denies(self.command, self.path):
                    fault = 403
                status, headers, answer = fault, [], b""
                if fault not in (403, 503):
                    connection = http.client.HTTPConnection(*proxy.target.split(":"), timeout=30)
                    connection.request(self.command, self.path, body, headers=dict(self.headers))
                    response = connection.getresponse()
                    status, headers, answer = response.status, response.getheaders(), response.read()
                    connection.close()
                if fault == "lost":
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers:
                    if name.lower() in ("etag", "content-type"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_DELETE = do_PUT

            def do_GET(self):
                with proxy.lock:
                    proxy.requests.append((self.command, self.path, self.headers.get("Range")))
                    fault = proxy.faults.pop(0) if self.command == "GET" and proxy.faults else None
                fault = proxy.on_read(self.command, self.path) or fault
                if proxy.down or fault == "reset":
                    self.close_connection = True
                    return
                if fault == 503:
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                connection = http.client.HTTPConnection(*proxy.target.split(":"), timeout=30)
                connection.request(self.command, self.path, headers=dict(self.headers))
                response = connection.getresponse()
                body = response.read()
                length = response.getheader("Content-Length") or str(len(body))
                if fault == "less":
                    body = body[: len(body) // 2]
                    length = str(len(body))
                if fault == "wrong range":
                    body = body[::-1]
                if fault == "wrong bytes":
                    body = body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1 :]
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                        self.send_header(name, "bytes 7-8/9" if fault == "wrong range" and name.lower() == "content-range" else value)
                self.send_header("Content-Length", length)
                self.end_headers()
                connection.close()
                if self.command == "HEAD":
                    return
                if fault == "stall":
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = proxy.released.wait(40)
                    return
                if fault == "short":
                    body = body[: len(body) // 2]
                    self.close_connection = True
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.server.handle_error = lambda *_: None  # whoever gets wrong bytes says so and hangs up
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
