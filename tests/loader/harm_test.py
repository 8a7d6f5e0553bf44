"""Programs that are fine alone are fine under cupool: odd stacks, signals, descriptors, limits and rights.

Each runs bare, with default settings and with full reports, and ends the same way with the same output."""

import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import harness
import sanitizer

HARM = harness.victim("harm")
REFUSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_memalign(size_t, size_t);
static volatile int refusing;
static char *begin, *end;

void refuse_memory(void) { refusing = 1; }

static void find_library(void) {
  Dl_info info;
  void* inside = dlsym(RTLD_DEFAULT, "cupool_version");
  if (inside == 0 || dladdr(inside, &info) == 0) { begin = end = (char*)1; return; }
  begin = info.dli_fbase;
  end = (char*)begin + (2 << 20);
}
static int is_refused(void* caller) {
  if (!refusing) return 0;
  if (begin == 0) find_library();
  return (char*)caller >= begin && (char*)caller < end;
}
#define REFUSE if (is_refused(__builtin_return_address(0))) { errno = ENOMEM; return 0; }
void* malloc(size_t n) { REFUSE return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { REFUSE return __libc_calloc(n, m); }
int posix_memalign(void** out, size_t a, size_t n) {
  if (is_refused(__builtin_return_address(0))) return ENOMEM;
  return (*out = __libc_memalign(a, n)) == 0 ? ENOMEM : 0;
}
void* mmap(void* at, size_t n, int p, int f, int d, off_t o) {
  static void* (*next)(void*, size_t, int, int, int, off_t);
  if (is_refused(__builtin_return_address(0))) { errno = ENOMEM; return MAP_FAILED; }
  if (next == 0) next = dlvsym(RTLD_NEXT, "mmap", VERSION);
  return next(at, n, p, f, d, o);
}
"""


class HarmTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        self.registry = self.own_registry()

    def full(self, **more):
        """Settings under which everything is written."""
        return {"CUPOOL_STATS": "json", "CUPOOL_STATS_FILE": str(self.scratch / "report.json"), "CUPOOL_STATS_SIGNAL": "USR2", **self.registry, **more}

    def assert_unharmed(self, *words, code=0, env=None):
        """Bare, with defaults, with full reports; what it prints is the bare program's."""
        bare = harness.run([HARM, *words], env=env, driver="sim")
        self.assertEqual(code, bare.code, bare.err)
        for settings in ({"CUPOOL_STATS": "summary", **self.registry}, self.full()):
            done = harness.with_cupool([HARM, *words], env={**settings, **(env or {})}, driver="sim")
            self.assertEqual((bare.code, bare.out), (done.code, done.out), (settings, done.err[:2000]))
            self.assertEqual([], [name for name in os.listdir(self.scratch) if name.endswith(".part")])
        return bare

    def report(self):
        """What the last run left."""
        return json.loads((self.scratch / "report.json").read_text())

    # ---- Descriptors.

    def test_a_program_whose_stderr_has_no_reader_ends_as_it_would(self):
        self.assert_unharmed("lost-reader")
        for settings in ({"CUPOOL_STATS": "summary"}, {"CUPOOL_STATS": "json"}):
            environment = {**os.environ, "LD_PRELOAD": harness.preloaded(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **self.registry,
                           **settings}
            with subprocess.Popen([HARM, "wait"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as child:
                self.assertEqual(b"ready\n", child.stdout.readline())
                child.stderr.close()
                child.stdin.close()
                self.assertEqual(b"ends well\n", child.stdout.read())
            self.assertEqual(0, child.returncode)

    def test_a_data_file_that_got_descriptor_2_gets_no_line_of_ours(self):
        for what in ("data-file", "early-data-file"):
            data = self.scratch / what
            for settings in ({"CUPOOL_STATS": "text"}, {"CUPOOL_STATS": "summary"}):
                done = harness.with_cupool([HARM, what, data], env={**settings, **self.registry}, driver="sim")
                self.assertEqual((0, "data"), (done.code, data.read_text()))

    def test_a_program_without_descriptors_left_ends_as_it_would(self):
        self.assert_unharmed("no-descriptors")

    # ---- Names.

    def test_a_new_title_is_not_taken_for_the_programs_name(self):
        self.assert_unharmed("title")
        self.assertEqual("harm", self.report()["program"])

    # ---- Stacks and signals.

    def test_a_signal_handler_of_ours_uses_a_kibibyte_of_stack(self):
        self.need_no_sanitizer("instrumented code needs more stack")
        self.assert_unharmed("signal-stack")

    def test_signals_on_threads_with_little_stack_act_as_they_would(self):
        self.need_no_sanitizer("instrumented code needs more stack")
        for number, code in ((signal.SIGUSR2, 0), (signal.SIGTERM, -15), (signal.SIGINT, -2), (signal.SIGHUP, -1)):
            self.assert_unharmed("thread-stack", str(int(number)), "16384", code=code)
            self.assertGreater(self.report()["allocations"], 0)

    def test_an_exit_in_a_signal_handler_ends_the_program(self):
        self.need_no_sanitizer("it accuses the handler, and the simulated driver that ends in it", "thread")
        for turn in range(12):
            for settings in ({"CUPOOL_STATS": "summary", **self.registry}, self.full()):
                done = harness.with_cupool([HARM, "exit-in-handler", str(20000 + 1300 * turn)], env=settings, driver="sim")
                self.assertEqual(3, done.code, done.err)
        self.assertGreater(self.report()["allocations"], 0)

    def test_an_exit_amid_the_allocations_of_others_leaves_a_whole_report(self):
        for _ in range(10):
            self.assert_unharmed("exit-amid", code=3)
            self.assertGreater(self.report()["allocations"], 0)

    def test_threads_that_exit_at_once_end_the_program_and_leave_a_whole_report(self):
        self.need_no_sanitizer("the C library frees its list of handlers twice before 2.41", "address")
        for _ in range(20):
            # The simulated driver is not made for this, and would leave half a report of its own.
            self.assert_unharmed("exit-at-once", code=3, env={"CUPOOL_SIM_REPORT": ""})
            self.assertGreater(self.report()["allocations"], 0)
            (self.scratch / "report.json").unlink()

    def test_the_first_process_of_a_container_keeps_its_report_after_a_signal(self):
        self.need_no_sanitizer("its runtime calls the handler only once the read that the process sleeps in has returned", "thread")
        probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest("no process namespaces here")
        report = self.scratch / "report.json"
        environment = {**os.environ, **sanitizer.options(), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **self.full()}
        script = f"LD_PRELOAD='{harness.preloaded(harness.LIBRARY)}' exec {HARM} wait"
        with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            self.assertEqual(b"ready\n", child.stdout.readline())
            (inner,) = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True, check=True).stdout.split()
            os.kill(int(inner), signal.SIGTERM)
            while not report.exists():
                self.assertIsNone(child.poll())
            first = json.loads(report.read_text())
            self.assertEqual((1, 1), (first["pid"], first["allocations"]))
            report.unlink()
            child.stdin.close()
            self.assertEqual(b"ends well\n", child.stdout.read())
        self.assertEqual(0, child.returncode)
        self.assertEqual(1, self.report()["pid"])

    # ---- Nothing left.

    def test_a_program_that_took_all_thread_keys_keeps_its_own(self):
        self.assertIn("foreign values 0", self.assert_unharmed("no-keys").out)

    def test_destructors_that_use_cuda_late_lose_nothing(self):
        self.need_no_sanitizer("its runtime has left the thread by then, and crashes without cupool too", "thread")
        self.assert_unharmed("late")

    def test_a_limit_on_file_sizes_kills_nobody_and_leaves_no_half_file(self):
        # The simulated driver's own report would be the first to die of it.
        self.assert_unharmed("small-files", env={"CUPOOL_SIM_REPORT": "/dev/null"})

    def test_threads_can_be_cancelled_amid_allocations(self):
        self.need_no_sanitizer("a sanitizer's runtime does not bear cancellation")
        # Bare, the simulated driver itself does not bear it.
        for settings in ({"CUPOOL_STATS": "summary", **self.registry}, self.full()):
            done = harness.with_cupool([HARM, "cancel"], env=settings, driver="sim")
            self.assertEqual((0, "goes on\n"), (done.code, done.out), done.err)

    def test_without_host_memory_allocations_are_answered_and_the_report_comes(self):
        self.need_no_sanitizer("the sanitizer has a malloc of its own")
        machine = subprocess.run([harness.COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
        version = "GLIBC_2.17" if machine.startswith("aarch64") else "GLIBC_2.2.5"
        library = harness.compile_shared(self.scratch, "librefusing.so", REFUSING, f'-DVERSION="{version}"', "-ldl")
        for settings in ({}, {"CUPOOL_SPLIT": "0"}, {"CUPOOL_BACKEND": "native"}, {"CUPOOL_FREE": "sync"}):
            done = harness.with_cupool([HARM, "no-memory"], env=self.full(**settings), driver="sim", more=[library])
            self.assertEqual((0, "odd answers 0\nends well\n"), (done.code, done.out), done.err)
            self.assertGreater(self.report()["allocations"], 0)

    # ---- Rights.

    def privileged(self):
        """A copy of the program, linked with the library, that runs as another user: AT_SECURE."""
        if os.geteuid() != 0:
            self.skipTest("only root can make a set-uid program of another user")
        self.need_no_sanitizer("a sanitizer's runtime is preloaded, which a privileged program ignores")
        program = self.scratch / "privileged"
        sim = harness.BUILD / "sim"
        subprocess.run([harness.COMPILER, "-std=c++20", harness.SOURCE / "tests/victims/harm.cpp", "-o", program,
                        f"-I{harness.CUDA_INCLUDE}", harness.LIBRARY, sim / "libcuda.so.1", f"-Wl,-rpath,{harness.BUILD}:{sim}",
                        "-Wl,--disable-new-dtags", "-lpthread"], check=True, capture_output=True)
        os.chmod(self.scratch, 0o777)
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        return program

    def test_a_privileged_program_reads_no_setting_and_writes_no_file(self):
        program = self.privileged()
        done = harness.run([program, "rights"], env=self.full(CUPOOL_HELP="1", CUPOOL_LIMT="1"), driver="unit")
        if "secure 1" not in done.out:
            self.skipTest(f"set-uid programs are not honoured here: {done.out} {done.err}")
        self.assertEqual((0, "secure 1\nends well\n"), (done.code, done.out), done.err)
        self.assertNotIn("CUPOOL_", done.err)
        self.assertEqual(["privileged"], os.listdir(self.scratch))

    def test_a_library_in_the_current_directory_takes_nothing_over(self):
        harness.compile_shared(self.scratch, "libunwind.so.8", '#include <unistd.h>\n__attribute__((constructor)) static void taken(void)'
                               ' { if (write(1, "taken over\\n", 11)) {} }\nint unw_backtrace(void** f, int n) { (void)f; (void)n; return 0; }\n')
        script = harness.BUILD / "tests" / "report" / "script"
        env = {"CUPOOL_CHECK": "yes", "LD_LIBRARY_PATH": f":{harness.BUILD / 'sim'}:."}
        done = harness.with_cupool([script, "w"], env=env, driver="sim", cwd=self.scratch)
        self.assertIn("free of 0x10", done.err)
        self.assertNotIn("taken over", done.out)

    # ---- Files.

    def steps(self, **settings):
        """A small run that reports."""
        return harness.with_cupool([HARM, "title"], env={"CUPOOL_STATS": "json", **settings}, driver="sim")

    def test_a_pipe_at_the_place_of_the_report_is_refused(self):
        place = self.scratch / "pipe.json"
        os.mkfifo(place)
        done = self.steps(CUPOOL_STATS_FILE=str(place))
        self.assertIn("it is a pipe", done.err)
        self.assertIn('"allocations"', done.err)
        self.assertTrue(stat.S_ISFIFO(place.stat().st_mode))

    def test_a_file_of_another_user_is_not_replaced(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a file of another user")
        place = self.scratch / "theirs.json"
        place.write_text("theirs")
        os.chown(place, 65534, 65534)
        done = self.steps(CUPOOL_STATS_FILE=str(place))
        self.assertIn("it belongs to another user", done.err)
        self.assertEqual("theirs", place.read_text())

    def test_processes_with_one_report_name_leave_a_report_each(self):
        environment = {**os.environ, "LD_PRELOAD": harness.preloaded(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **self.full()}
        children = [subprocess.Popen([HARM, "wait"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(6)]
        for child in children:
            self.assertEqual(b"ready\n", child.stdout.readline())
        for child in children:
            child.stdin.close()
        for child in children:
            child.stdout.read()
            self.assertEqual(0, child.wait())
            child.stdout.close()
        names = os.listdir(self.scratch)
        self.assertEqual(6, len(names), names)
        reports = [json.loads((self.scratch / name).read_text()) for name in names]
        self.assertEqual(sorted(child.pid for child in children), sorted(report["pid"] for report in reports))
        merged = json.loads(harness.run([harness.BUILD / "cupool", "merge", "--json", *[self.scratch / n for n in names]], driver="sim").out)
        self.assertEqual((6, 6), (merged["processes"], merged["allocations"]))

    def test_a_name_with_control_characters_stays_on_its_line(self):
        odd = self.scratch / "a\x1b[31m\nforged"
        shutil.copy(HARM, odd)
        for form in ("summary", "text"):
            done = harness.with_cupool([odd, "wait"], env={"CUPOOL_STATS": form, "CUPOOL_ONLY": "*", "CUPOOL_STATS_FILE": ""}, driver="sim", stdin="")
            self.assertIn("a?[31m?forged", done.err)
            self.assertNotIn("\x1b", done.err)
            self.assertTrue(all(line.startswith("cupool: ") for line in done.err.splitlines()), done.err)

    def test_an_interrupted_doctor_leaves_nothing_behind(self):
        def folder_of(doctor):
            """The folder that this doctor made: doctors of other tests come and go in /tmp."""
            (program,) = Path(f"/proc/{doctor}/task/{doctor}/children").read_text().split()
            words = Path(f"/proc/{program}/environ").read_bytes().split(b"\0")
            (counts,) = [word for word in words if word.startswith(b"CUPOOL_COUNTS_FILE=")]
            return Path(os.fsdecode(counts.partition(b"=")[2])).parent
        environment = {**os.environ, **sanitizer.options(), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"), **self.registry}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen([harness.BUILD / "cupool", "doctor", "--", HARM, "wait"], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                self.assertEqual(b"ready\n", child.stdout.readline())
                folder = folder_of(child.pid)
                self.assertTrue(folder.name.startswith("cupool-doctor-") and folder.exists(), folder)
                child.send_signal(number)
                child.communicate()
            self.assertEqual(-number, child.returncode)
            self.assertFalse(folder.exists(), folder)


if __name__ == "__main__":
    harness.main()
