"""Includes point down only, CUDA stays in its layers, one folder reads the environment; and the check can fail."""

import harness
import layers


class LayersTest(harness.TestCase):
    def sample(self, path, text):
        """The faults of a source tree that holds this one file."""
        file = self.scratch / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
        return layers.faults(self.scratch)

    def test_layers_point_down_only(self):
        self.assertEqual([], layers.faults(harness.SOURCE / "src"))
        self.assertGreater(len(layers.source_files(harness.SOURCE / "src")), 20, "the walk found too little to mean anything")

    def test_the_layer_check_sees_an_include_that_points_up(self):
        self.assertEqual(1, len(self.sample("order/fence.hpp", '#include "pool/slab.hpp"\n')))

    def test_the_layer_check_sees_an_include_of_a_neighbour(self):
        self.assertEqual(1, len(self.sample("config/options.cpp", '#include "stats/counters.hpp"\n')))

    def test_the_layer_check_sees_an_include_that_points_up_within_a_folder(self):
        self.assertEqual(1, len(self.sample("hooks/state/serving.cpp", '#include "hooks/doors/loads.hpp"\n')))
        self.assertEqual(2, len(self.sample("hooks/doors/loads.cpp", '#include "hooks/sharing/imports.hpp"\n')))

    def test_the_layer_check_sees_a_file_that_is_in_no_part_of_a_divided_folder(self):
        self.assertEqual(1, len(self.sample("hooks/misc.cpp", "\n")))
        self.assertEqual(2, len(self.sample("hooks/util/misc.cpp", "\n")))

    def test_the_layer_check_sees_a_cuda_header_below_its_layers(self):
        self.assertEqual(1, len(self.sample("pool/slab.cpp", "#include <cuda.h>\n")))

    def test_the_layer_check_sees_a_header_named_by_a_relative_path(self):
        self.assertEqual(1, len(self.sample("pool/slab.cpp", '#include "slab.hpp"\n')))

    def test_the_layer_check_sees_a_read_of_the_environment(self):
        self.assertEqual(1, len(self.sample("hooks/process/start.cpp", 'const char* x = getenv("CUPOOL_X");\n')))
        self.assertEqual([], layers.faults(self.scratch / "hooks" / "none"))

    def test_the_layer_check_sees_text_that_is_not_made_by_the_one_formatter(self):
        self.assertEqual(1, len(self.sample("tools/say.cpp", "#include <fmt/format.h>\n")))
        self.assertEqual(2, len(self.sample("sim/say.cpp", 'void f() { std::fprintf(stderr, "x"); }\n')))

    def test_the_layer_check_sees_a_folder_that_is_no_layer(self):
        self.assertEqual(1, len(self.sample("util/misc.hpp", "\n")))

    def test_the_layer_check_passes_what_is_allowed(self):
        text = '// getenv("X") is for config\n#include <cuda.h>\n#include "hooks/state/serving.hpp"\n#include "pool/slab.hpp"\n#include "base/log.hpp"\n'
        self.assertEqual([], self.sample("hooks/calls/memory.cpp", text))


if __name__ == "__main__":
    harness.main()
