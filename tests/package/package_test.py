"""The packages: what is in them, that they meet the glibc floor, and that installing and removing the .deb leaves no trace.

A root made by debootstrap under CUPOOL_TEST_ROOTS (scripts/test-roots makes them) is used where there is one; in it the installed
command and library run the demo's program on the simulated driver.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import harness

sys.path.insert(0, str(harness.SOURCE / "tests" / "checks"))
import elf  # noqa: E402

FILES = ("bin/cupool", "LIB/libcupool.so", "include/cupool/cupool.h", "LIB/cmake/cupool/cupoolConfig.cmake", "LIB/pkgconfig/cupool.pc",
         "share/bash-completion/completions/cupool", "share/zsh/site-functions/_cupool",
         "share/doc/cupool/LICENSE", "share/doc/cupool/README.md", "share/doc/cupool/docs/options.md")
PACKAGED = ("share/man/man1/cupool.1.gz", "share/doc/cupool/copyright", "share/doc/cupool/changelog.gz")
DEB_LIB = f"lib/{platform.machine()}-linux-gnu"


def files(folder, *more):
    """What a package has under /usr, with its own folder of libraries."""
    return [name.replace("LIB/", folder + "/") for name in (*FILES, *more)]


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
        for name in files("lib", "share/man/man1/cupool.1"):
            self.assertTrue((top / "usr" / name).exists(), name)
        for name in ("bin/cupool", "lib/libcupool.so"):
            self.assertEqual([], elf.too_new(top / "usr" / name))

    def test_the_rpm_holds_everything_that_is_promised(self):
        if shutil.which("rpmbuild") is None:
            self.skipTest("no rpmbuild here")
        held = subprocess.run(["rpm", "-qlp", self.package("RPM", ".rpm")], capture_output=True, text=True, check=True).stdout.splitlines()
        for name in files("lib64", *PACKAGED):
            self.assertIn(f"/usr/{name}", held)
        self.assertEqual([], [name for name in held if name.startswith("/usr/lib/")])

    def test_lintian_and_rpmlint_object_to_nothing(self):
        for tool, generator, ending, words in (("lintian", "DEB", ".deb", ["--fail-on", "error,warning"]),
                                               ("rpmlint", "RPM", ".rpm", ["-c", harness.SOURCE / "cmake/package/rpmlint.toml"])):
            with self.subTest(tool=tool):
                if shutil.which(tool) is None or (generator == "RPM" and shutil.which("rpmbuild") is None):
                    self.skipTest(f"no {tool} here")
                done = subprocess.run([tool, *words, self.package(generator, ending)], capture_output=True, text=True, check=False)
                said = done.stdout + done.stderr
                self.assertEqual(0, done.returncode, said)
                self.assertEqual([], re.findall(r"(?m)^.*\b[EW]: .*$", said))

    def fresh_tree(self):
        """What a clone of this working tree holds."""
        place = self.scratch / "clone"
        listed = subprocess.run(["git", "-C", harness.SOURCE, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=False)
        if listed.returncode != 0:
            self.skipTest("not a git checkout")
        for name in listed.stdout.decode().split("\0"):
            if name and (harness.SOURCE / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(harness.SOURCE / name, place / name)
        return place

    def readme_lines(self):
        """The commands that README's chapter about installing shows."""
        chapter = (harness.SOURCE / "README.md").read_text().split("## Install\n")[1].split("\n## ")[0]
        return re.search(r"```\n(.*?)```", chapter, re.DOTALL).group(1).splitlines()

    def test_the_lines_of_the_readme_configure_a_build_without_tests_and_simulator(self):
        install, configure, build, use = self.readme_lines()
        self.assertEqual("cmake --build build-package -j 4 --target package", build)
        self.assertEqual("sudo apt install ./build-package/packages/cupool_*.deb", use)
        needed = re.search(r"^packages=\((.*)\)$", (harness.SOURCE / "scripts/setup").read_text(), re.MULTILINE).group(1)
        self.assertEqual(f"sudo apt install {needed}", install)
        place = self.fresh_tree()
        words = [*shlex.split(configure), "-DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Python3=ON",
                 "-DCUPOOL_MAINTAINER=Ada Example <ada@cupool.example>", f"-DCUPOOL_CUDA_INCLUDE={harness.CUDA_INCLUDE}"]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        targets = subprocess.run(["cmake", "--build", "build-package", "--target", "help"], cwd=place, capture_output=True, text=True, check=True).stdout
        names = set(re.findall(r"[\w.]+", targets))
        self.assertLessEqual({"cupool", "cupool_command", "package"}, names)
        self.assertFalse({"cupool_sim", "test", "victim_churn"} & names, targets)
        self.assertIn('"Ada Example <ada@cupool.example>"', (place / "build-package/CPackConfig.cmake").read_text())

    def test_the_pages_name_the_paths_of_the_packages(self):
        page = (harness.SOURCE / "docs/deploy.md").read_text()
        for path in ("/usr/lib/x86_64-linux-gnu/libcupool.so", "/usr/lib64/libcupool.so", "/usr/bin/cupool", "/usr/local/lib/libcupool.so"):
            self.assertIn(f"`{path}`", page)

    def test_what_finds_the_library_for_other_builds_finds_it_in_every_package(self):
        if shutil.which("dpkg-deb") is None:
            self.skipTest("no dpkg here")
        root = self.scratch / "root"
        subprocess.run(["dpkg-deb", "-x", self.package("DEB", ".deb"), root], check=True)
        for folder, config in ((root / "usr", DEB_LIB),):
            script = self.scratch / "find.cmake"
            script.write_text(f'include("{folder}/{config}/cmake/cupool/cupoolConfig.cmake")\n'
                              'message("${CUPOOL_LIBRARY} ${CUPOOL_INCLUDE_DIR}")\n'
                              'if(NOT EXISTS "${CUPOOL_LIBRARY}")\n message(FATAL_ERROR "no library")\nendif()\n')
            # (A script has no targets; the part before them is what is asked.)
            text = (folder / config / "cmake/cupool/cupoolConfig.cmake").read_text().split("if(NOT TARGET")[0]
            (folder / config / "cmake/cupool/cupoolConfig.cmake").write_text(text)
            done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=False)
            self.assertEqual(0, done.returncode, done.stderr)
            prefix = (folder / config / "pkgconfig/cupool.pc").read_text().splitlines()[0].removeprefix("prefix=${pcfiledir}/")
            self.assertTrue((folder / config / "pkgconfig" / prefix / "include/cupool/cupool.h").exists(), prefix)

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
        for name in files(DEB_LIB, *PACKAGED, "share/doc/cupool/changelog.Debian.gz"):
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
                    self.assertRegex(said, r"cupool: churn\[\d+\]: 201 allocations, 9[89]\.\d % reused; lanes")
                    self.assertIn("peak live 1 MiB,", said)
                self.assertIn("verdict: cupool works here.", inside("cupool", "doctor"))
                self.assertEqual("", inside("env", "LD_PRELOAD=libcupool.so", "/bin/true"))
                inside("dpkg", "--purge", "cupool")
                shutil.rmtree(place)
                self.assertEqual(set(), listing(root) - before)


if __name__ == "__main__":
    harness.main()
