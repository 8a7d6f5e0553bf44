"""Two processes exchange memory through the exported native pool, or are told that this driver cannot."""

import harness

PROGRAM = harness.BUILD / "tests" / "report" / "exchange"


class ExchangeTest(harness.TestCase):
    def test_two_processes_exchange_memory_through_the_exported_pool(self):
        done = harness.with_cupool([PROGRAM], env={"CUPOOL_BACKEND": "native", "CUPOOL_NATIVE_HANDLE": "fd"})
        self.assertEqual(0, done.code, done.out + done.err)
        if harness.DRIVER == "gpu":
            self.assertEqual("exchanged\n", done.out)
        else:
            self.assertIn(done.out, ("exchanged\n", "cannot 801\n"))

    def test_a_pool_that_was_not_made_shareable_is_not_exported(self):
        done = harness.with_cupool([PROGRAM], env={"CUPOOL_BACKEND": "native"})
        self.assertEqual((0, "cannot 801\n"), (done.code, done.out))


if __name__ == "__main__":
    harness.main()
