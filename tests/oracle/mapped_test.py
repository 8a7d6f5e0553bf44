"""The simulated driver finds memory that is unmapped under work, refuses what it is told to, and counts what mapping costs."""

import harness
from sanitizer import fewer

HAZARD = 86
OUT_OF_MEMORY = 2
OBSERVER = harness.BUILD / "sim" / "libcupool_observer.so"
PROGRAM = harness.BUILD / "tests" / "oracle" / "mapped"


def play(how, seed=1, preload=(), **settings):
    return harness.run([PROGRAM, how], preload=preload, env={"CUPOOL_SIM_SEED": str(seed), **settings}, driver="sim")


class MappedTest(harness.TestCase):
    def assert_ends(self, code, how, story="^", **settings):
        for seed in range(1, 1 + fewer(20, least=3)):
            for preload in ((), (OBSERVER,)):
                result = play(how, seed, preload, **settings)
                self.assertEqual(code, result.code, f"{how}, seed {seed}, {preload}\n{result.err}")
                self.assertRegex(result.err, story)

    def test_memory_that_is_unmapped_under_work_is_a_hazard_whatever_the_schedule_did(self):
        for how in ("at-once", "ordered", "remapped", "host"):
            self.assert_ends(HAZARD, how, "hazard: unmapped under work")

    def test_work_whose_memory_is_unmapped_fails(self):
        for seed in range(1, 1 + fewer(5, least=2)):
            result = play("fails", seed)
            self.assertEqual((HAZARD, "cuStreamSynchronize 700\n"), (result.code, result.out), result.err)

    def test_memory_unmapped_under_work_tells_both_sides_story(self):
        result = play("at-once")
        self.assertRegex(result.err, r"hazard: unmapped under work: cuMemUnmap by the application, thread \d+ takes \[0x\w+, 0x\w+\) "
                                     r"away\n +and nobody has seen the end of\n +fill on non-blocking stream #\d+ "
                                     r"\(its operation 1\) of life \d+ \(cuMemMap, 2097152 bytes at .*\)\n +on bytes \[0x\w+, 0x\w+\)")

    def test_memory_unmapped_after_its_work_was_seen_to_end_is_no_hazard(self):
        for how in ("seen", "waited", "apart", "broken"):
            self.assert_ends(0, how)

    def test_an_unmapping_that_a_preloaded_library_makes_is_told_to_be_its_own(self):
        source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n" \
                 "int cuMemUnmap(unsigned long long p, size_t n) {\n" \
                 "  int (*next)(unsigned long long, size_t) = dlsym(RTLD_NEXT, \"cuMemUnmap\");\n" \
                 "  return next(p + 2097152, n) || next(p, n);\n" \
                 "}\n"
        library = harness.compile_shared(self.scratch, "libunmaps.so", source, "-ldl")
        result = play("apart", 1, (OBSERVER, library))
        self.assertEqual(HAZARD, result.code, result.err)
        self.assertRegex(result.err, r"cuMemUnmap by the preloaded library inside the application's cuMemUnmap, thread \d+")

    def test_the_oracle_can_be_switched_off(self):
        self.assert_ends(0, "at-once", CUPOOL_SIM_ORACLE="0")

    def test_every_call_for_mapped_memory_can_be_refused(self):
        for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
                     "cuMemAddressFree"):
            result = play("calls", CUPOOL_SIM_FAULTS=f"{name}@1={OUT_OF_MEMORY}")
            answers = [line.split() for line in result.out.splitlines()]
            first = next(code for call, code in answers if call == name)
            self.assertEqual(str(OUT_OF_MEMORY), first, f"{name}\n{result.out}")

    def test_calls_for_mapped_memory_and_the_chunks_in_them_are_counted(self):
        device = play("calls").device
        costs = {"reserve_calls": 1, "create_calls": 2, "map_calls": 2, "access_calls": 1, "access_chunks": 2,
                 "unmap_calls": 1, "unmap_chunks": 2, "release_calls": 2}
        self.assertEqual(costs, {name: device[name] for name in costs})
        self.assertEqual((2 << 20, 2 << 20, 0, 0), (device["peak_bytes"], device["peak_host_chunk_bytes"],
                                                    device["current_bytes"], device["host_chunk_bytes"]))


if __name__ == "__main__":
    harness.main()
