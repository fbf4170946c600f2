"""How a Python test says that it cannot run here: run_tests.sh lists it with its reason."""

import os


def skip(test, reason):
    path = os.environ.get("TITANIUM_SKIPPED")
    if path:
        with open(path, "a") as file:
            file.write(f"{type(test).__name__}.{test._testMethodName}: {reason}\n")
    test.skipTest(reason)
