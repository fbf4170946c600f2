"""Stand-ins for the services that give credentials to machines, containers and pods: Amazon's, Google's and Azure's, all on one server of this machine."""

import datetime
import http.server
import json
import threading
import time
import urllib.parse


class RoleServer:
    """Hands out `key` and `secret`, valid for `seconds`, or `token`. `requests` has methods and paths. The next requests answer 503 while `busy` is above 0. Paths that are `silent` get no answer, others after `delay` seconds."""

    def __init__(self, key="", secret="", token="", seconds=3600):
        role = self
        self.requests, self.busy, self.delay, self.silent = [], 0, 0, lambda path: False

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, status, text="", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def has(self, name, value):
                return self.headers.get(name) == value

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                path, _, query = self.path.partition("?")
                role.requests.append((self.command, path))
                if role.silent(path):
                    return
                if role.busy > 0:
                    role.busy -= 1
                    return self.answer(503)
                time.sleep(role.delay)
                until = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
                credentials = json.dumps({"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Expiration": until})
                machine = "/latest/meta-data/iam/security-credentials/"
                bearer = {"access_token": token, "token_type": "Bearer"}
                if (self.command, path) == ("PUT", "/latest/api/token") and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                    return self.answer(200, "session")
                if path.startswith(machine) and self.has("X-aws-ec2-metadata-token", "session"):
                    return self.answer(200, "the role" if path == machine else credentials) if path in (machine, machine + "the%20role") else self.answer(404)
                if path == "/container" and self.has("Authorization", "container token"):
                    return self.answer(200, credentials)
                form = dict(urllib.parse.parse_qsl(body))
                if self.command == "POST" and (form.get("RoleArn"), form.get("WebIdentityToken")) == ("arn:aws:iam::1:role/r+s", "pod token"):
                    return self.answer(200, f"<R><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken></SessionToken><Expiration>{until}</Expiration></R>")
                if self.command == "POST" and path == "/oauth2" and form == {"grant_type": "refresh_token", "client_id": "the id", "client_secret": "a&b", "refresh_token": "long"}:
                    return self.answer(200, json.dumps({**bearer, "expires_in": seconds}))
                if path == "/computeMetadata/v1/instance/service-accounts/default/token" and self.has("Metadata-Flavor", "Google"):
                    return self.answer(200, json.dumps({**bearer, "expires_in": seconds}), Metadata_Flavor="Google")
                if path == "/metadata/identity/oauth2/token" and self.has("Metadata", "true") and dict(urllib.parse.parse_qsl(query)).get("resource") == "https://storage.azure.com/":
                    return self.answer(200, json.dumps({**bearer, "expires_in": str(seconds)}))
                self.answer(403, "{}")

            do_PUT = do_POST = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.host}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
