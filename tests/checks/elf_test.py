"""libcupool.so needs the C library of 2018 and the loader, and exports the table, dlsym and cupool_*; and the check can fail."""

import subprocess

import driver_api
import elf
import harness

SAMPLE = "int dlsym(void) { return 1; } int cuInit(void) { return 2; } int cupool_version(void) { return 3; }\n"

# What the headers of glibc 2.38 and later do to programs of today's C and C++. The first declaration names the symbol, so
# older headers that come after it change nothing.
NEW_HEADERS = """
extern "C" {
long strtol(const char*, char**, int) noexcept(true) asm("__isoc23_strtol");
unsigned long strtoul(const char*, char**, int) noexcept(true) asm("__isoc23_strtoul");
long long strtoll(const char*, char**, int) noexcept(true) asm("__isoc23_strtoll");
unsigned long long strtoull(const char*, char**, int) noexcept(true) asm("__isoc23_strtoull");
}
"""
PARSERS = ("strtol", "strtoul", "strtoll", "strtoull")


class ElfTest(harness.TestCase):
    def sample(self, text, *flags):
        """The faults of a library built from this text, of which dlsym and cuInit are promised."""
        library = harness.compile_shared(self.scratch, "sample.so", text, "-nostdlib", *flags)
        return elf.faults(library, {"dlsym", "cuInit"})

    def test_the_library_needs_and_exports_exactly_what_is_promised(self):
        self.need_no_sanitizer("a sanitized library needs and exports more than the one that is installed")
        promised = {n for n in driver_api.exported_names(harness.COMPILER, harness.SOURCE) if not n.startswith("cupool_")}
        self.assertIn("dlsym", promised)
        self.assertIn("cuMemAlloc_v2", promised)
        self.assertEqual([], elf.faults(harness.LIBRARY, promised))

    def test_the_library_and_the_command_need_no_library_but_the_c_library(self):
        self.need_no_sanitizer("a sanitized binary needs its runtime")
        for name in ("libcupool.so", "cupool"):
            needed = elf.needed(harness.BUILD / name)
            self.assertIn("libc.so.6", needed)
            self.assertEqual([], [one for one in needed if not elf.MAY_NEED.match(one)], name)

    def test_the_library_and_the_command_load_on_every_glibc_since_2_28(self):
        self.need_no_sanitizer("a sanitizer's runtime needs the glibc that it was built for")
        for name in ("libcupool.so", "cupool", "sim/libcuda.so.1", "tests/victims/churn"):
            with self.subTest(name=name):
                self.assertEqual([], elf.too_new(harness.BUILD / name))

    def test_the_elf_check_sees_a_function_of_a_newer_glibc(self):
        text = "int pthread_create(void); int dladdr(void); int f(void) { return pthread_create() + dladdr(); }\n"
        library = harness.compile_shared(self.scratch, "new.so", text)
        found = " ".join(elf.too_new(library, oldest=(2, 0)))
        self.assertIn("pthread_create of glibc", found)
        self.assertIn("needs GLIBC_", found)

    def with_new_headers(self, text):
        """The object file of this text, compiled as a system with glibc 2.38 would."""
        shim = self.scratch / "new_headers.hpp"
        shim.write_text(NEW_HEADERS)
        path = self.scratch / "sample.o"
        subprocess.run([harness.COMPILER, "-x", "c++", "-", "-std=c++20", "-O0", "-fPIC", "-ffunction-sections", "-include", shim, "-c",
                        "-o", path], input=text, text=True, check=True, capture_output=True)
        return path

    def test_no_replaced_function_calls_itself_whichever_headers_it_is_built_with(self):
        replaced = self.with_new_headers((harness.SOURCE / "src/glibc/replace.cpp").read_text())
        calls = elf.calls(replaced)
        for name in PARSERS:
            self.assertEqual({name}, calls[f"__isoc23_{name}"])
        self.assertEqual([], elf.endless(replaced))

    def test_the_elf_check_sees_a_replaced_function_that_calls_itself(self):
        text = (harness.SOURCE / "src/glibc/replace.cpp").read_text()
        for name in PARSERS:
            self.assertIn(f"return plain_{name}(", text)
            text = text.replace(f"return plain_{name}(", f"return {name}(")
        self.assertEqual(sorted(f"__isoc23_{name}" for name in PARSERS), elf.endless(self.with_new_headers(text)))

    def test_the_old_32_bit_allocation_calls_are_not_exported(self):
        old = {"cuMemAlloc", "cuMemFree", "cuMemAllocPitch", "cuMemGetInfo", "cuMemGetAddressRange"}
        self.assertEqual(set(), old & elf.exports(harness.LIBRARY))

    def test_the_elf_check_passes_a_library_as_promised(self):
        self.assertEqual([], self.sample(SAMPLE))

    def test_the_elf_check_sees_one_more_library_needed(self):
        other = harness.compile_shared(self.scratch, "libother.so", "int other(void) { return 1; }\n", "-nostdlib")
        self.assertEqual(["needs libother.so"],
                         self.sample(SAMPLE, "-Wl,--no-as-needed", f"-L{other.parent}", "-lother"))

    def test_the_elf_check_sees_one_export_too_many(self):
        self.assertEqual(["exports helper"], self.sample(SAMPLE + "int helper(void) { return 4; }\n"))

    def test_the_elf_check_sees_a_missing_export(self):
        self.assertEqual(["does not export cuInit"], self.sample(SAMPLE.replace("cuInit", "cupool_init")))

    def test_the_elf_check_sees_a_named_version_node(self):
        script = self.scratch / "named.map"
        script.write_text("CUPOOL_1 { global: *; };\n")
        found = self.sample(SAMPLE, f"-Wl,--version-script={script}")
        self.assertTrue(any("carries a version" in line for line in found), found)

    def machine(self):
        """What the tests' compiler builds for."""
        return subprocess.run([harness.COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True).stdout

    def test_both_binaries_are_hardened(self):
        self.need_no_sanitizer("a sanitized build is not the one that is installed")
        for binary in (harness.LIBRARY, harness.BUILD / "cupool"):
            self.assertEqual([], elf.weaknesses(binary, self.machine()), binary)

    def test_every_object_and_every_hook_of_ours_has_landing_pads(self):
        self.need_no_sanitizer("a sanitized build is not the one that is installed")
        objects = [path for folder in ("cupool", "cupool_core", "cupool_command", "glibc")
                   for path in (harness.BUILD / "src" / (folder if folder == "glibc" else f"CMakeFiles/{folder}.dir")).rglob("*.o")]
        self.assertGreater(len(objects), 50)
        self.assertEqual([], elf.unmarked(objects, self.machine()))
        self.assertEqual([], elf.without_pad(harness.LIBRARY, self.machine()))

    def test_the_hardening_check_sees_a_missing_landing_pad(self):
        flag = {"x86_64": "-fcf-protection=", "aarch64": "-mbranch-protection="}[self.machine().split("-")[0]]
        soft = harness.compile_shared(self.scratch, "soft.so", SAMPLE, "-nostdlib", flag + "none")
        self.assertEqual(["cuInit", "cupool_version", "dlsym"], elf.without_pad(soft, self.machine()))
        self.assertEqual([str(soft)], elf.unmarked([soft], self.machine()))
        hard = harness.compile_shared(self.scratch, "hard.so", SAMPLE, "-nostdlib",
                                      flag + ("full" if flag.startswith("-f") else "bti"))
        self.assertEqual([], elf.without_pad(hard, self.machine()) + elf.unmarked([hard], self.machine()))

    def test_the_library_carries_no_dead_code_of_the_runtime(self):
        self.need_no_sanitizer("a sanitized build is not the one that is installed")
        self.assertEqual([], elf.dead_runtime(harness.LIBRARY))

    def test_the_hardening_check_sees_a_soft_binary(self):
        soft = harness.compile_shared(self.scratch, "soft.so", SAMPLE, "-nostdlib", "-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,execstack",
                                      "-fno-stack-protector")
        self.assertEqual(["binds lazily", "has no read-only relocations", "has an executable stack", "has no stack protector"],
                         elf.weaknesses(soft, "aarch64"))


if __name__ == "__main__":
    harness.main()
