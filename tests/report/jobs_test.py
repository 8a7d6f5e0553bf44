"""A parallel job as docs/deploy.md starts it: every rank is served, every rank reports, and the reports merge."""

import json
import os
import shutil

import harness
import lab

COMMAND = harness.BUILD / "cupool"
RANKS = 4


class JobsTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()
        if shutil.which("mpirun") is None:
            self.skipTest("Open MPI is not installed")

    def mpirun(self, *words, env=None):
        """Four ranks on this machine."""
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HOME": str(self.scratch),
                   "TMPDIR": "/tmp", "OMPI_MCA_rmaps_base_oversubscribe": "1", **(env or {})}
        command = ["mpirun", "--oversubscribe", "-n", str(RANKS), *words]
        return harness.run(command, env={k: v for k, v in {**os.environ, **allowed}.items() if not k.startswith("CUPOOL_")
                                         or k in (env or {})}, driver="sim")

    def assert_job(self, done, reports):
        self.assertEqual(0, done.code, done.err)
        files = sorted(reports.iterdir())
        self.assertEqual([f"rank-{r}.json" for r in range(RANKS)], [f.name for f in files], done.err)
        for rank, file in enumerate(files):
            self.assertEqual(str(rank), json.loads(file.read_text())["rank"])
        merged = json.loads(harness.run([COMMAND, "merge", "--json", *files], driver="sim").out)
        self.assertEqual((RANKS, 5 * RANKS, 5 * 1024 * RANKS),
                         (merged["processes"], merged["allocations"], merged["live_bytes"]))

    def test_four_ranks_with_the_variables_passed_by_the_launcher(self):
        reports = self.scratch / "reports"
        reports.mkdir()
        sim = harness.BUILD / "sim"
        words = ["-x", f"LD_PRELOAD={harness.preloaded(harness.LIBRARY)}", "-x", f"LD_LIBRARY_PATH={sim}", "-x", "CUPOOL_STATS=json", "-x",
                 f"CUPOOL_STATS_FILE={reports}/rank-%r.json", lab.PROGRAM, *lab.fill(5, 1000)]
        self.assert_job(self.mpirun(*words), reports)

    def test_four_ranks_through_the_command(self):
        reports = self.scratch / "reports"
        reports.mkdir()
        words = [COMMAND, "run", "--json", "--set", f"stats_file={reports}/rank-%r.json", "--", lab.PROGRAM, *lab.fill(5, 1000)]
        self.assert_job(self.mpirun(*words), reports)


if __name__ == "__main__":
    harness.main()
