"""A stand-in for the Hugging Face hub on this machine: its API for one repository, and a second server, on another port, to which large
files are redirected. Both remember the requests that they got. Faults can be ordered for the next answers."""

import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.requests.append((self.command, self.path, {name.title(): value for name, value in self.headers.items()}))
        if self.server.faults and self.command == "GET":
            fault = self.server.faults.pop(0)
            if fault == 503:
                return self.answer(503)
            if fault == "reset":
                self.close_connection = True
                return None
            if isinstance(fault, dict):  # the status and the headers of an answer
                return self.answer(fault.pop("status"), **fault)
        self.server.respond(self, urllib.parse.urlsplit(self.path))

    def send_content(self, content, **headers):
        """With ranges, and cut short or changed where a fault says so."""
        fault = self.server.content_faults.pop(0) if self.command == "GET" and self.server.content_faults else None
        begin, end, status = 0, len(content), 200
        if "Range" in self.headers and fault != "no range":
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            begin, end, status = int(first), int(last) + 1 if last else end, 206
            headers["Content_Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        part = content[begin:end]
        if fault == "wrong":
            part = bytes(part[:-1]) + bytes([part[-1] ^ 1])
        if fault == "short":
            self.close_connection = True
            return self.answer(status, part[: len(part) // 2], Content_Length=str(len(part)), **headers)
        return self.answer(status, part, Content_Length=str(len(part)), **headers)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, respond):
        super().__init__(("127.0.0.1", 0), Handler)
        self.respond = respond
        self.requests, self.faults, self.content_faults = [], [], []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Hub:
    """`files`: path -> content; `large`: the paths that the second server holds. `token` is wanted where it is not None."""

    def __init__(self, repo, files, large=(), kind="models", token=None):
        self.repo, self.files, self.large, self.kind, self.token = repo, files, set(large), kind, token
        self.cdn = Server(self.respond_cdn)
        self.hub = Server(self.respond_hub)
        self.url = self.hub.url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.stop()
        self.cdn.stop()

    def etag(self, path):
        content = self.files[path]
        return hashlib.sha256(content).hexdigest() if path in self.large else git_hash(content)

    def respond_cdn(self, handler, url):
        path = urllib.parse.unquote(url.path).lstrip("/")
        if path not in self.files:
            return handler.answer(404)
        handler.send_content(self.files[path], ETag=f'"{self.etag(path)}"')

    def tree(self, folder):
        for path, content in sorted(self.files.items()):
            if not path.startswith(folder):
                continue
            entry = {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}
            if path in self.large:
                entry["lfs"] = {"oid": self.etag(path), "size": len(content), "pointerSize": 130}
            yield entry

    def respond_hub(self, handler, url):
        if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return handler.answer(401 if "Authorization" not in handler.headers else 403, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
        api = f"/api/{self.kind}/{self.repo}"
        path = urllib.parse.unquote(url.path)
        prefix = f"/{self.repo}" if self.kind == "models" else f"/{self.kind}/{self.repo}"
        if path.startswith(f"{api}/revision/") or path == api:
            if path.rsplit("/", 1)[1] not in ("main", COMMIT, self.repo.split("/")[-1]):
                return handler.answer(404, X_Error_Code="RevisionNotFound")
            info = {"id": self.repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in sorted(self.files)], "private": False, "tags": [], "downloads": 0, "likes": 0}
            return handler.answer(200, json.dumps(info).encode(), Content_Type="application/json")
        if path.startswith(f"{api}/tree/"):
            folder = path.removeprefix(f"{api}/tree/").partition("/")[2]
            entries = list(self.tree(folder and folder + "/"))
            if not entries:
                return handler.answer(404, X_Error_Code="EntryNotFound")
            query = urllib.parse.parse_qs(url.query)
            start = int(query.get("cursor", ["0"])[0])
            headers = {}
            if start + 3 < len(entries):  # small pages, so that there are several
                headers["Link"] = f'<{self.url}{url.path}?recursive=true&cursor={start + 3}>; rel="next"'
            return handler.answer(200, json.dumps(entries[start : start + 3]).encode(), Content_Type="application/json", **headers)
        for revision in ("main", COMMIT):
            begin = f"{prefix}/resolve/{revision}/"
            if path.startswith(begin) and path.removeprefix(begin) in self.files:
                return self.respond_file(handler, path.removeprefix(begin))
        return handler.answer(404, X_Error_Code="EntryNotFound" if path.startswith(prefix + "/") else "RepoNotFound")

    def respond_file(self, handler, path):
        if path not in self.large:
            return handler.send_content(self.files[path], ETag=f'"{self.etag(path)}"', X_Repo_Commit=COMMIT)
        location = f"{self.cdn.url}/{urllib.parse.quote(path)}"
        return handler.answer(302, X_Repo_Commit=COMMIT, X_Linked_Etag=f'"{self.etag(path)}"', X_Linked_Size=str(len(self.files[path])), ETag='"x"', Location=location)
