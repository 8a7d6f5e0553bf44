"""Traces of processes that run already (cupool trace PID), on the simulated driver."""

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time

import harness
import lab

COMMAND = harness.BUILD / "cupool"
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("CUPOOL_")}


class AttachTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        lab.needs_signals(self)
        os.chmod(self.scratch, 0o777)
        self.out = self.scratch / "out"

    def start(self, *steps, user=None, **env):
        """A program in a registry of this test, at its first step l."""
        env = {**PLAIN, "LD_PRELOAD": harness.preloaded(harness.LIBRARY), "LD_LIBRARY_PATH": str(harness.BUILD / "sim"),
               "CUPOOL_NEIGHBOURS_DIR": str(self.scratch), "CUPOOL_STATS": "off", **env}
        options = {} if user is None else {"user": user, "group": user}
        program = subprocess.Popen([lab.PROGRAM, *steps], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual("waiting\n", program.stdout.readline())
        # It joins the registry in a thread of its own.
        while program.poll() is None and f'"pid":{program.pid},' not in self.command("top", "--json").out.replace(" ", ""):
            time.sleep(0.02)
        return program

    def go_on(self, program):
        program.stdin.write("\n")
        program.stdin.flush()

    def command(self, *words):
        return harness.run([COMMAND, *words], env={"CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, driver="sim")

    def trace(self, program, *words):
        return self.command("trace", *words, "-o", self.out, str(program.pid))

    def record(self, program, between, user=None):
        """Records it until an interrupt, which comes after what `between` does."""
        options = {} if user is None else {"user": user, "group": user}
        with subprocess.Popen([COMMAND, "trace", "-o", self.out, str(program.pid)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**PLAIN, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, **options) as command:
            self.assertIn("Ctrl-C ends it", command.stderr.readline())
            between()
            command.send_signal(signal.SIGINT)
            out, err = command.communicate()
            self.assertEqual((0, ""), (command.returncode, err))
            self.assertIn("shows it", out)
        said = self.command("trace", self.out)
        self.assertEqual((0, ""), (said.code, said.err))
        return said.out

    def test_a_program_that_runs_can_be_recorded_and_what_it_had_before_is_in_the_trace(self):
        program = self.start("a:x:8000000", "a:y:3000", "g:m:40000", "l", "a:z:5000000", "f:x", "l", "f:y", "l")

        def between():
            self.go_on(program)
            self.assertEqual("waiting\n", program.stdout.readline())
        said = self.record(program, between)
        for line in ("  1 allocated", "  1 freed", "  1 ended"):
            self.assertIn(line, said)
        self.assertRegex(said, r"pool: 4.8 MiB in 2 blocks at the end")
        self.assertRegex(said, r"managed: 39.1 KiB in 1 block at the end")
        before = self.command("diff", self.out).out
        self.assertRegex(before, r"at the beginning: 7.7 MiB")
        # It is switched off again: nothing more is recorded, and it can be recorded once more.
        self.go_on(program)
        self.assertEqual("waiting\n", program.stdout.readline())
        self.out = self.scratch / "again"
        again = self.record(program, lambda: None)
        self.assertRegex(again, r"pool: 4.8 MiB in 1 block at the end")
        self.assertEqual([], [name for name in os.listdir("/tmp") if re.match(r"cupool-[0-9a-f]{16}\.trace", name)
                              and self.is_of(f"/tmp/{name}", program.pid)])

    def is_of(self, path, pid):
        """Whether it is this user's and names the process. (That of another test may go meanwhile.)"""
        try:
            return os.stat(path).st_uid == os.geteuid() and f"[{pid}]" in self.command("trace", path).out
        except FileNotFoundError:
            return False

    def test_a_trace_of_a_running_program_ends_after_the_time_that_was_asked_for(self):
        program = self.start("a:x:8000000", "l")
        done = self.trace(program, "--for", "200ms")
        self.assertEqual((0, ""), (done.code, done.err))
        said = self.command("trace", self.out)
        self.assertRegex(said.out, r"pool: 7.6 MiB in 1 block at the end")
        self.assertIn("why=it was switched off", self.command("trace", "--dump", self.out).out)
        self.assertIn("File exists", self.trace(program, "--for", "0.2").err)

    def test_top_says_who_holds_the_memory_of_a_program_that_is_recorded(self):
        program = self.start("a:x:8000000", "l", CUPOOL_TRACE=str(self.scratch / "own"))
        ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        with os.fdopen(ours, "r+b", buffering=0) as screen:
            top = subprocess.Popen([COMMAND, "top"], stdin=its, stdout=its, env={**PLAIN, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch)})
            os.close(its)
            self.addCleanup(top.wait)
            self.addCleanup(top.kill)
            shown = b""
            while str(program.pid).encode() not in shown:
                shown += screen.read(4096)
            screen.write(b"1")
            while b"Who holds the memory of script" not in shown or b"cuMemAlloc_v2" not in shown:
                shown += screen.read(4096)
            screen.write(b"q")
            self.assertEqual(0, top.wait(timeout=60))
        self.assertIn(b"7.6 MiB in 1 block, pool", shown)

    def test_a_program_that_is_recorded_already_says_where(self):
        program = self.start("a:x:1000", "l", CUPOOL_TRACE=str(self.scratch / "own"))
        done = self.trace(program)
        self.assertEqual(1, done.code)
        self.assertIn(f"records a trace already: {self.scratch / 'own'}", done.err)
        self.assertFalse(self.out.exists())

    def test_what_a_program_has_kept_in_memory_is_written_at_once(self):
        program = self.start("a:x:8000000", "l", CUPOOL_TRACE=str(self.scratch / "own"), CUPOOL_TRACE_KEEP="1M")
        done = self.trace(program)
        self.assertEqual((0, ""), (done.code, done.err))
        self.assertRegex(self.command("trace", self.out).out, r"pool: 7.6 MiB in 1 block at the end")

    def test_only_its_user_and_root_can_record_a_program(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        program = self.start("a:x:8000000", "l", user=12345)
        self.out = self.scratch / "others"
        stranger = subprocess.run([COMMAND, "trace", "-o", self.out, "--for", "1", str(program.pid)], user=12346, group=12346, text=True,
                                  capture_output=True, env={**PLAIN, "CUPOOL_NEIGHBOURS_DIR": str(self.scratch)}, check=False)
        self.assertEqual(1, stranger.returncode)
        self.assertRegex(stranger.stderr, "is not in the registry|no process|registry")
        self.assertFalse(self.out.exists())
        self.out = self.scratch / "roots"
        self.assertRegex(self.record(program, lambda: None), r"pool: 7.6 MiB in 1 block at the end")
        self.out = self.scratch / "users"
        self.assertRegex(self.record(program, lambda: None, user=12345), r"pool: 7.6 MiB in 1 block at the end")

    def test_a_program_that_does_not_run_cannot_be_recorded_and_a_time_is_a_time(self):
        self.start("a:x:1000", "l")
        self.assertIn("is not in the registry", self.command("trace", "-o", self.out, str(os.getpid())).err)
        self.assertFalse(self.out.exists())
        self.assertIn("is no time", self.command("trace", "--for", "soon", "-o", self.out, str(os.getpid())).err)


if __name__ == "__main__":
    harness.main()
