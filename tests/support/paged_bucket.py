"""A stand-in for a bucket whose lists come in pages of three, for whoever brings the right token."""

import http.server
import threading
import urllib.parse


class PagedBucket:
    def __init__(self, objects, token):
        bucket = self
        self.lists = []  # the queries

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                path, _, text = self.path.partition("?")
                key = urllib.parse.unquote(path).split("/", 2)[2]
                allowed = self.headers.get("Authorization") == f"Bearer {token}"
                body = b"" if not allowed else objects.get(key, b"") if key else self.list(dict(urllib.parse.parse_qsl(text)))
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def list(self, query):
                bucket.lists.append(query)
                prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
                entries = set()
                for key in objects:
                    if key.startswith(prefix):
                        cut = key.find(delimiter, len(prefix)) if delimiter else -1
                        entries.add(key if cut < 0 else key[: cut + 1])
                after = query.get("continuation-token") or query.get("start-after", "")
                entries = sorted(entry for entry in entries if entry > after)
                xml = "".join(f"<CommonPrefixes><Prefix>{urllib.parse.quote(entry)}</Prefix></CommonPrefixes>" if entry.endswith("/") else f"<Contents><Key>{urllib.parse.quote(entry)}</Key><Size>{len(objects[entry])}</Size></Contents>" for entry in entries[:3])
                more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{entries[2]}</NextContinuationToken>" if len(entries) > 3 else "<IsTruncated>false</IsTruncated>"
                return f"<ListBucketResult>{xml}{more}</ListBucketResult>".encode()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
