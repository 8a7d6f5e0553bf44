"""What the process loads or is linked to is known before memory is handed out again: networks, unknown functions."""

import harness
import lab

# Says that a device is there which this machine does not have. Preloaded behind cupool.
PRETEND = """
#include <string.h>
int access(const char* path, int mode) {
  (void)mode;
  return strcmp(path, "DEVICE") == 0 ? 0 : -1;
}
"""


class LoadsTest(harness.TestCase):
    def network(self, library, device, steps, *, dependency=False):
        """Plays the steps with LIBRARY standing for a network library (or one that needs it), and that one device."""
        fake = harness.compile_shared(self.scratch, library, "int fake;", f"-Wl,-soname,{library}")
        loaded = fake
        if dependency:
            loaded = harness.compile_shared(self.scratch, "libplugin.so", "int plugin;", "-Wl,--no-as-needed", "-x",
                                            "none", fake,
                                            f"-Wl,-rpath,{self.scratch}")
        pretend = harness.compile_shared(self.scratch, "libpretend.so", PRETEND.replace("DEVICE", device))
        preload = harness.preloaded(harness.LIBRARY, pretend)
        return lab.play(*[step.replace("LIBRARY", str(loaded)) for step in steps],
                        driver_env={"LD_PRELOAD": preload})

    def assert_seen(self, reason, *network, **how):
        """It is known at the first allocation after the load."""
        played = self.network(*network, ["a:x:1000", "L:LIBRARY", "a:y:1000"], **how)
        self.assertEqual(("exact", reason), (played.counters["mode"], played.counters["mode_reason"]), played.out)

    def test_a_network_library_is_noticed_by_the_load_that_brings_it(self):
        self.assert_seen("libibverbs is loaded", "libibverbs.so.1", "/dev/infiniband")

    def test_a_network_library_is_noticed_where_another_library_needs_it(self):
        self.assert_seen("libibverbs is loaded", "libibverbs.so.1", "/dev/infiniband", dependency=True)

    def test_a_network_library_that_a_package_renamed_is_noticed(self):
        self.assert_seen("libibverbs is loaded", "libibverbs-3f2a1b.so.1", "/dev/infiniband")

    def test_slingshot_and_omni_path_count_as_networks(self):
        self.assert_seen("libfabric is loaded", "libfabric.so.1", "/dev/cxi0")
        self.assert_seen("libfabric is loaded", "libfabric.so.1", "/dev/hfi1_3")
        self.assert_seen("libcxi is loaded", "libcxi.so.1", "/dev/cxi1")
        self.assert_seen("libpsm2 is loaded", "libpsm2.so.2", "/dev/hfi1_0")

    def test_a_network_library_without_its_device_changes_nothing(self):
        played = self.network("libfabric.so.1", "/dev/nothing", ["a:x:1000", "L:LIBRARY", "a:y:1000"])
        self.assertEqual("lanes", played.counters["mode"])

    def unknown(self, *command):
        """The report of a victim that gets at what cupool does not know; the same run bare has the same results."""
        bare = harness.run([harness.victim(command[0]), *command[1:]], driver="sim")
        result = harness.with_cupool([harness.victim(command[0]), *command[1:]], driver="sim",
                                     env={"CUPOOL_STATS": "json"})
        counters = result.take_counters()
        self.assertEqual((0, bare.out), (result.code, result.out), result.err)
        return counters[0]["mode"], counters[0]["mode_reason"], result.err.count("cupool does not know")

    def test_a_function_that_cupool_does_not_know_ends_lanes_however_it_was_reached(self):
        for way in ("dlsym", "next", "getproc"):
            with self.subTest(way=way):
                self.assertEqual(("fences", "an entry point that cupool does not know was handed out", 1),
                                 self.unknown("tomorrow", way))
        self.assertEqual(("fences", "an entry point that cupool does not know was handed out", 1),
                         self.unknown("tomorrow_linked"))

    def test_a_capture_that_a_newer_function_began_is_left_alone(self):
        self.assertEqual("fences", self.unknown("tomorrow", "capture")[0])

    def test_a_private_table_that_cupool_does_not_know_ends_lanes(self):
        self.assertEqual(("fences", "a private table that cupool does not know was handed out", 1),
                         self.unknown("tomorrow", "table"))

    def test_a_program_that_only_runs_on_a_newer_driver_keeps_its_lanes(self):
        self.assertEqual(("lanes", "", 0), self.unknown("tomorrow", "none"))


if __name__ == "__main__":
    harness.main()
