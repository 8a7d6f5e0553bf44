// Any bytes as a recorded program, in each of the four forms: either a program whose steps hold together, or
// a sentence; never a crash.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "replay/readers.hpp"
#include "tools/recording.hpp"

namespace {

void look(bool is_read, const cupool::replay::Program& program, const std::string& error) {
  if (is_read != error.empty()) abort();
  if (!is_read) return;
  for (const cupool::replay::Step& step : program.steps) {
    const bool is_block =
        step.what == cupool::replay::Do::kAllocate || step.what == cupool::replay::Do::kFree;
    if (is_block && (step.block >= program.blocks || step.place >= program.places.size())) abort();
    if (step.thread != cupool::replay::kNoThread && step.thread >= program.threads) abort();
  }
}

template <typename Read>
void try_reader(const Read& read) {
  cupool::replay::Program program;
  std::string error;
  const bool is_read = read(&program, &error);
  look(is_read, program, error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cupool;
  static const char* const form = getenv("FUZZ_FORM");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto with = [&](replay::Reader reader) {
    try_reader([&](replay::Program* out, std::string* error) { return reader(bytes, out, error); });
  };
  if (strcmp(form, "text") == 0) with(replay::read_text);
  if (strcmp(form, "rmm") == 0) with(replay::read_rmm_log);
  if (strcmp(form, "pytorch") == 0) with(replay::read_pytorch_snapshot);
  if (strcmp(form, "cupool") == 0) {
    try_reader([&](replay::Program* out, std::string* error) {
      return tools::read_program(bytes, false, out, error);
    });
  }
  return 0;
}
