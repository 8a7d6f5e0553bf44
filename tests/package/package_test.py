"""The packages: what is in them, that they meet the glibc floor, and that installing and removing the .deb leaves no trace.

A root made by debootstrap under CUPOOL_TEST_ROOTS (scripts/test-roots makes them) is used where there is one; in it the installed
command and library run the demo's program on the simulated driver.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import harness

sys.path.insert(0, str(harness.SOURCE / "tests" / "checks"))
import elf  # noqa: E402

FILES = ("bin/cupool", "lib/libcupool.so", "include/cupool/cupool.h", "lib/cmake/cupool/cupoolConfig.cmake", "lib/pkgconfig/cupool.pc",
         "share/man/man1/cupool.1", "share/bash-completion/completions/cupool", "share/zsh/site-functions/_cupool",
         "share/doc/cupool/LICENSE", "share/doc/cupool/README.md", "share/doc/cupool/docs/options.md")


def listing(root):
    """Every path under a root, but for what the package manager and the loader write themselves."""
    own = ("var/lib/dpkg", "var/cache", "var/log", "etc/ld.so.cache", "proc", "sys", "dev")
    found = {str(p.relative_to(root)) for p in Path(root).rglob("*")}
    return {p for p in found if not p.startswith(own)}


class PackageTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.need_no_sanitizer("packages are made of a plain build")

    def package(self, generator, ending):
        """Makes one package of this build in the scratch folder."""
        done = subprocess.run(["cpack", "-G", generator, "-B", self.scratch / "made"], cwd=harness.BUILD, capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        (made,) = (self.scratch / "made").glob(f"*{ending}")
        return made

    def test_the_archive_holds_everything_that_is_promised(self):
        archive = self.package("TGZ", ".tar.gz")
        subprocess.run(["tar", "-xzf", archive, "-C", self.scratch], check=True)
        (top,) = self.scratch.glob("cupool-*")
        for name in FILES:
            self.assertTrue((top / "usr" / name).exists() or (top / name).exists(), name)
        for name in ("bin/cupool", "lib/libcupool.so"):
            (path,) = [p for p in (top / "usr" / name, top / name) if p.exists()]
            self.assertEqual([], elf.too_new(path))

    def test_the_rpm_holds_everything_that_is_promised(self):
        if shutil.which("rpmbuild") is None:
            self.skipTest("no rpmbuild here")
        held = subprocess.run(["rpm", "-qlp", self.package("RPM", ".rpm")], capture_output=True, text=True, check=True).stdout
        for name in FILES:
            self.assertIn(f"/usr/{name}", held)

    def test_the_deb_is_installed_in_an_empty_root_and_removed_without_a_trace(self):
        if shutil.which("dpkg") is None or os.getuid() != 0:
            self.skipTest("needs dpkg and root")
        deb = self.package("DEB", ".deb")
        self.assertIn("libc6 (>= 2.28)", subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout)
        root = self.scratch / "root"
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "usr/bin", "usr/lib", "usr/share/doc"):
            (root / folder).mkdir(parents=True)
        for name in ("status", "available"):
            (root / "var/lib/dpkg" / name).write_text("")
        before = listing(root)
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless"]
        subprocess.run([*dpkg, "--install", deb], check=True, capture_output=True)
        for name in FILES:
            self.assertTrue((root / "usr" / name).exists(), name)
        churn = harness.BUILD / "tests/victims/churn"
        done = harness.run([root / "usr/bin/cupool", "run", "--", churn, 20, 100000], driver="sim")
        self.assertEqual(0, done.code, done.err)
        self.assertIn("21 allocations", done.err)
        subprocess.run([*dpkg, "--purge", "cupool"], check=True, capture_output=True)
        self.assertEqual(set(), listing(root) - before)

    def roots(self):
        """Roots of other distributions, by name."""
        folder = os.environ.get("CUPOOL_TEST_ROOTS", "")
        if not folder or os.getuid() != 0:
            self.skipTest("CUPOOL_TEST_ROOTS names no folder with roots: scripts/test-roots makes them")
        return {path.name: path for path in Path(folder).iterdir() if (path / "bin").exists()}

    def test_the_deb_serves_the_demo_in_roots_of_other_distributions(self):
        roots = self.roots()
        deb = self.package("DEB", ".deb")
        for name, root in roots.items():
            with self.subTest(root=name):
                before = listing(root)
                place = root / "opt" / "demo"
                place.mkdir(parents=True)
                # A root serves again after a failure.
                self.addCleanup(shutil.rmtree, place, ignore_errors=True)
                self.addCleanup(subprocess.run, ["chroot", root, "dpkg", "--purge", "cupool"], capture_output=True, check=False)
                shutil.copy(deb, place / "cupool.deb")
                shutil.copy(harness.BUILD / "tests/victims/churn", place)
                shutil.copy(harness.BUILD / "sim/libcuda.so.1", place)

                def inside(*words):
                    done = subprocess.run(["chroot", root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=/opt/demo", *words], capture_output=True, text=True, check=False)
                    self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                    return done.stdout + done.stderr

                inside("dpkg", "--install", "/opt/demo/cupool.deb")
                # README's first line, as it is printed there.
                for words in (["env", "LD_PRELOAD=libcupool.so"], ["cupool", "run", "--"]):
                    said = inside(*words, "/opt/demo/churn", "200", "1048576")
                    self.assertIn("wrong=0", said)
                    self.assertRegex(said, r"cupool: churn\[\d+\]: 201 allocations, 99\.5 % reused; lanes")
                    self.assertIn("peak live 1 MiB,", said)
                self.assertIn("verdict: cupool works here.", inside("cupool", "doctor"))
                self.assertEqual("", inside("env", "LD_PRELOAD=libcupool.so", "/bin/true"))
                inside("dpkg", "--purge", "cupool")
                shutil.rmtree(place)
                self.assertEqual(set(), listing(root) - before)


if __name__ == "__main__":
    harness.main()
