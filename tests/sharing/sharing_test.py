"""Memory shared between processes: whoever has cupool opens the block it was offered, nobody ever sees other data."""

import json
import os

import harness

SHARE = harness.BUILD / "tests" / "sharing" / "share"
BLOCKS = 39


class SharingTest(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.need_native()

    def share(self, *words, env=None, bare=False):
        quiet = {"CUPOOL_STATS": "json", **(env or {})}
        result = harness.run([SHARE, *words]) if bare else harness.with_cupool([SHARE, *words], env=quiet)
        self.assertEqual(0, result.code, result.out + result.err)
        return result.tally("share"), result

    def test_two_processes_without_cupool_share_every_block(self):
        self.assertEqual(BLOCKS, self.share(bare=True)[0]["opened"])

    def test_two_processes_with_cupool_share_every_block(self):
        tally, result = self.share()
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))
        exporter = max(result.take_counters(), key=lambda counters: json.dumps(counters).count("ipc_exports"))
        self.assertIn("sealed_handles", json.dumps(exporter))

    def test_two_processes_share_every_block_with_fences_alone(self):
        self.assertEqual(BLOCKS, self.share(env={"CUPOOL_STREAMS": "fences"})[0]["opened"])

    def test_a_process_without_cupool_is_refused_a_cut_block_and_opens_a_whole_one(self):
        tally, _ = self.share("bare")
        self.assertEqual(BLOCKS, tally["opened"] + tally["refused"])
        self.assertGreater(tally["opened"], 0)
        self.assertGreater(tally["refused"], 0)
        self.assertEqual(0, tally["wrong"])

    def test_a_process_with_cupool_switched_off_opens_every_block(self):
        self.assertEqual(BLOCKS, self.share("off")[0]["opened"])

    def test_without_cutting_every_block_is_open_to_anyone(self):
        tally, _ = self.share("bare", env={"CUPOOL_SPLIT": "0"})
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))

    def test_an_altered_handle_opens_its_block_or_nothing(self):
        count = os.environ.get("CUPOOL_TEST_ALTERATIONS", "10000" if harness.DRIVER == "gpu" else "20000")
        done = harness.with_cupool([harness.BUILD / "tests" / "sharing" / "alter", count])
        tally = done.tally("alter")
        self.assertEqual((0, 0, 0), (done.code, tally["opened"], tally["wrong"]), done.out + done.err)
        self.assertGreater(tally["tried"], int(count) // 2)

    def test_switched_off_every_block_is_open_to_anyone(self):
        self.assertEqual(BLOCKS, self.share("bare", env={"CUPOOL_BACKEND": "off"})[0]["opened"])


LEND = harness.BUILD / "tests" / "sharing" / "lend"
# Small chunks, so that blocks have many.
MAPPED = {"CUPOOL_SEGMENTS": "mapped", "CUPOOL_CHUNK": "2M"}


class MappedSharingTest(harness.TestCase):
    """The same with mapped memory, for which the driver has no handle: processes with cupool share it under export tokens."""

    def setUp(self):
        super().setUp()
        self.need_native()

    def share(self, *words, env=None):
        result = harness.with_cupool([SHARE, *words], env={"CUPOOL_STATS": "json", **MAPPED, **(env or {})})
        self.assertEqual(0, result.code, result.out + result.err)
        return result.tally("share"), result

    def story(self, *words, env=None, driver=None):
        """What both processes said, line by line; the second line of a pair is what the importer did."""
        result = harness.with_cupool([LEND, *words], env={"CUPOOL_STATS": "off", **MAPPED, **(env or {})},
                                     driver=driver)
        self.assertEqual((0, ""), (result.code, result.err), result.out)
        return [tuple(line.split(": ", 1)) for line in result.out.splitlines()]

    def assert_all_well(self, said):
        self.assertEqual([], [line for line in said if line[1] != "0"], said)
        self.assertGreater(len(said), 2)

    def test_two_processes_share_every_mapped_block(self):
        tally, result = self.share()
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))
        self.assertIn(BLOCKS, [counters["tickets"] for counters in result.take_counters()])

    def test_two_processes_share_every_mapped_block_with_fences_alone(self):
        self.assertEqual(BLOCKS, self.share(env={"CUPOOL_STREAMS": "fences"})[0]["opened"])

    def test_two_processes_share_what_has_spilled_to_host_memory(self):
        tally, result = self.share(env={"CUPOOL_LIMIT": "2M", "CUPOOL_SPILL": "1G"})
        self.assertEqual((BLOCKS, 0, 0), (tally["opened"], tally["refused"], tally["wrong"]))
        self.assertGreater(max(counters["spilled_allocations"] for counters in result.take_counters()), 0)

    def test_a_process_without_cupool_is_refused_every_mapped_block(self):
        tally, _ = self.share("bare")
        self.assertEqual((0, BLOCKS, 0), (tally["opened"], tally["refused"], tally["wrong"]))

    def test_a_process_with_cupool_switched_off_opens_every_mapped_block(self):
        self.assertEqual(BLOCKS, self.share("off")[0]["opened"])

    def test_an_altered_export_token_opens_nothing(self):
        count = os.environ.get("CUPOOL_TEST_ALTERATIONS", "10000")
        done = harness.with_cupool([harness.BUILD / "tests" / "sharing" / "alter", count], env=MAPPED)
        tally = done.tally("alter")
        self.assertEqual((0, 0, 0), (done.code, tally["opened"], tally["wrong"]), done.out + done.err)
        self.assertGreater(tally["tried"], int(count) // 2)

    def assert_as_the_driver(self, name, *words, env=None, driver=None):
        bare = harness.run([LEND, name], driver=driver)
        self.assertEqual((0, ""), (bare.code, bare.err))
        said = self.story(name, *words, env=env, driver=driver)
        self.assertEqual([tuple(line.split(": ", 1)) for line in bare.out.splitlines()], said)

    def test_an_opened_mapped_block_answers_as_an_opened_handle_of_the_driver(self):
        self.assert_as_the_driver("answers")

    def test_an_opened_mapped_block_answers_alike_where_cupool_is_switched_off(self):
        self.assert_as_the_driver("answers", "off")

    def test_closing_a_mapped_block_while_a_stream_captures_is_answered_as_by_the_driver(self):
        self.assert_as_the_driver("capturing")

    def test_closing_a_mapped_block_while_a_stream_captures_works_on_a_full_device(self):
        self.assert_as_the_driver("capturing", env={"CUPOOL_SIM_FAULTS": "cuMemAlloc_v2@*=2"}, driver="sim")

    def test_a_block_of_many_chunks_is_shared_in_both_directions(self):
        self.assert_all_well(self.story("large"))

    def test_what_is_freed_stays_with_the_process_that_has_it_open_and_cannot_be_opened_again(self):
        once = [("open", "0"), ("wrong", "0"), ("close", "0"), ("open", "400")]
        self.assertEqual([*once, *once, ("importer", "0"), ("second", "0")], self.story("freed"))

    def test_a_block_that_is_freed_while_it_is_opened_is_itself_or_refused(self):
        self.assert_all_well(self.story("racing"))

    def test_what_is_open_survives_a_killed_exporter_and_the_rest_is_refused(self):
        self.assertEqual([("open", "0"), ("wrong", "0"), ("close", "0"), ("open the other", "400"), ("importer", "0")],
                         self.story("dead"))

    def test_a_killed_importer_leaves_the_exporter_as_it_was(self):
        self.assertEqual([("open", "0"), ("die", "-1"), ("open", "0"), ("wrong", "0"), ("wrong", "0"), ("close", "0"),
                          ("second", "0")], self.story("killed"))

    def test_closing_waits_for_the_work_on_an_opened_block(self):
        self.assert_all_well(self.story("busy"))

    def test_an_opened_block_ends_with_its_context(self):
        self.assertEqual([("open", "0"), ("end", "0"), ("other context", "0"), ("read", "-1"), ("open", "0"), ("wrong", "0"),
                          ("close", "0"), ("importer", "0"), ("second", "0")], self.story("ended"))

    def test_an_opened_block_ends_with_its_context_where_cupool_is_switched_off(self):
        self.assertEqual(self.story("ended"), self.story("ended", "off"))

    def test_another_device_opens_a_mapped_block_where_cupool_is_switched_off(self):
        if harness.DRIVER == "gpu":
            self.skipTest("needs two devices")
        self.assert_all_well(self.story("peers", "off", env={"CUPOOL_SIM_DEVICES": "2"}))

    def test_another_device_opens_a_mapped_block(self):
        if harness.DRIVER == "gpu":
            self.skipTest("needs two devices")
        self.assert_all_well(self.story("peers", env={"CUPOOL_SIM_DEVICES": "2"}))

    def test_sharing_leaves_no_descriptor_in_the_way(self):
        self.assert_all_well(self.story("files"))


if __name__ == "__main__":
    harness.main()
