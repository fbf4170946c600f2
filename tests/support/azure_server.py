"""A stand-in for Azure's blob storage on this machine: lists and ranges, with the shared key checked as its documentation says, or a token of a query."""

import base64
import hashlib
import hmac
import http.server
import threading
import urllib.parse
from xml.sax.saxutils import escape

ACCOUNT, KEY, SAS = "acme", base64.b64encode(b"a key of thirty-two bytes or so.").decode(), "sv=2021-08-06&sp=rl&sig=c2ln%2Bc2ln%3D"
TOKEN = "eyJ0.identity.token"


class AzureServer:
    """`blobs` is {container: {name: bytes}}. Lists come in pages of two. The next GETs answer 503 while `busy` is above 0."""

    def __init__(self, blobs):
        azure = self
        self.blobs, self.busy, self.requests = blobs, 0, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def is_allowed(self, path, query):
                if dict(query).get("sig") == "c2ln+c2ln=":
                    return True
                given = self.headers.get("Authorization") or ""
                if given == f"Bearer {TOKEN}":
                    return True
                names = ["Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"]
                lines = [self.command] + [self.headers.get(name) or "" for name in names]
                lines += sorted(f"{name.lower()}:{value}" for name, value in self.headers.items() if name.lower().startswith("x-ms-"))
                lines += [f"/{ACCOUNT}{path}"] + [f"{name}:{value}" for name, value in sorted(query)]
                digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
                return given == f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                path, _, text = self.path.partition("?")
                query = urllib.parse.parse_qsl(text, keep_blank_values=True)
                azure.requests.append((self.command, self.path))
                if self.command == "GET" and azure.busy > 0:
                    azure.busy -= 1
                    return self.answer(503)
                if not self.is_allowed(path, query):
                    return self.answer(403, x_ms_error_code="AuthenticationFailed")
                container, _, name = urllib.parse.unquote(path).lstrip("/").partition("/")
                if container not in azure.blobs:
                    return self.answer(404, x_ms_error_code="ContainerNotFound")
                if not name:
                    return self.list(azure.blobs[container], dict(query))
                if name not in azure.blobs[container]:
                    return self.answer(404, x_ms_error_code="BlobNotFound")
                content = azure.blobs[container][name]
                tag = hashlib.md5(content).hexdigest()
                if self.command == "HEAD" or not self.headers.get("Range"):
                    return self.answer(200, content, ETag=tag)
                begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                self.answer(206, content[begin:end + 1], ETag=tag, Content_Range=f"bytes {begin}-{end}/{len(content)}")

            def list(self, blobs, query):
                names = sorted(name for name in blobs if name.startswith(query.get("prefix", "")) and name > query.get("marker", ""))
                page = "".join(f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{len(blobs[name])}</Content-Length></Properties></Blob>" for name in names[:2])
                marker = names[1] if len(names) > 2 else ""
                self.answer(200, f"<?xml version='1.0'?><EnumerationResults><Blobs>{page}</Blobs><NextMarker>{escape(marker)}</NextMarker></EnumerationResults>".encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
