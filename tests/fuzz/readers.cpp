// Any bytes as a recorded program, in each of the four forms (FUZZ_FORM): either a program whose steps hold
// together, or a sentence; never a crash. As "report" they are a trace of which everything is made that can
// be made of one. Of a trace of cupool's the blocks are also tried with the lengths and checksums that their
// content asks for, or nothing behind the checksum would ever be read.
#include "replay/readers.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "see/exports.hpp"
#include "see/findings.hpp"
#include "see/page.hpp"
#include "see/text.hpp"
#include "tools/code_names.hpp"
#include "tools/load_program.hpp"
#include "tools/trace_file.hpp"
#include "tools/trace_lines.hpp"
#include "tools/trace_live.hpp"
#include "tools/trace_reader.hpp"
#include "trace/format.hpp"

namespace {

using namespace cupool;

void look(bool is_read, const replay::Program& program, const std::string& error) {
  if (is_read != error.empty()) abort();
  if (!is_read) return;
  for (const replay::Step& step : program.steps) {
    const bool is_block = step.what == replay::Do::kAllocate || step.what == replay::Do::kFree;
    if (is_block && (step.block >= program.blocks || step.place >= program.places.size())) abort();
    if (step.thread != replay::kNoThread && step.thread >= program.threads) abort();
  }
}

template <typename Read>
void try_reader(const Read& read) {
  replay::Program program;
  std::string error;
  const bool is_read = read(&program, &error);
  look(is_read, program, error);
}

void try_program(std::string_view bytes) {
  try_reader([&](replay::Program* out, std::string* error) {
    return tools::read_program(bytes, false, out, error);
  });
}

std::string mended(std::string bytes) {
  const std::string magic(reinterpret_cast<const char*>(&trace::kMagic), sizeof trace::kMagic);
  for (size_t at = bytes.find(magic); at != std::string::npos;) {
    trace::BlockHead head;
    if (bytes.size() - at < sizeof head) break;
    memcpy(&head, &bytes[at], sizeof head);
    const size_t content = at + sizeof head;
    const size_t next = bytes.find(magic, content);
    head.bytes = static_cast<uint32_t>(std::min(next, bytes.size()) - content);
    if (head.bytes <= trace::kMostContent) head.checksum = trace::checksum_of(head, bytes.data() + content);
    memcpy(&bytes[at], &head, sizeof head);
    at = next;
  }
  return bytes;
}

tools::OpenFile opened(std::string_view bytes) {
  return tools::OpenFile(fmemopen(const_cast<char*>(bytes.data()), bytes.size(), "r"));
}

// What `cupool trace` does.
void try_lines(std::string_view bytes) {
  const tools::OpenFile file = opened(bytes);
  if (file == nullptr) return;
  tools::TraceReader reader(file.get());
  if (!reader.begin()) {
    if (reader.error().empty()) abort();
    return;
  }
  tools::TraceLive live(reader.about());
  std::string line;
  const bool is_whole = reader.read([&](const tools::Happened& happened) {
    live.see(happened);
    line.clear();
    tools::print_event(reader.about(), happened, reader.began(), &line);
    if (line.find('\n') != std::string::npos) abort();
  });
  if (is_whole != reader.error().empty()) abort();
}

// What `cupool report` does.
void try_report(std::string_view bytes) {
  static std::FILE* const nowhere = fopen("/dev/null", "we");
  const tools::OpenFile file = opened(bytes);
  if (file == nullptr) return;
  tools::TraceReader reader(file.get());
  if (!reader.begin()) return;
  see::Model model(reader);
  model.read([] {});
  tools::CodeNames names({});
  const see::Holders holders(model, names);
  see::Limits limits;
  limits.moments = 300;  // fewer than a seed has events
  const see::Picture picture = see::make_picture(model, holders, limits, [] {});
  const std::vector<std::string> sentences = see::findings(model, holders, picture);
  see::print_text(nowhere, model, holders, picture, sentences);
  see::write_page(nowhere, model, holders, picture, sentences);
  see::write_pytorch(nowhere, model, holders, 0);
  see::write_perfetto(nowhere, model, holders, picture);
  see::write_pprof(nowhere, model, holders, picture);
  see::write_speedscope(nowhere, model, holders, picture);
  see::write_folded(nowhere, model, holders, picture);
  see::write_csv(nowhere, model);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const form = getenv("FUZZ_FORM");
  if (form == nullptr) abort();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto with = [&](replay::Reader reader) {
    try_reader([&](replay::Program* out, std::string* error) { return reader(bytes, out, error); });
  };
  if (strcmp(form, "text") == 0) with(replay::read_text);
  if (strcmp(form, "rmm") == 0) with(replay::read_rmm_log);
  if (strcmp(form, "pytorch") == 0) with(replay::read_pytorch_snapshot);
  const bool is_report = strcmp(form, "report") == 0;
  if (!is_report && strcmp(form, "cupool") != 0) return 0;
  for (const std::string& one : {std::string(bytes), mended(std::string(bytes))}) {
    if (!is_report) {
      try_program(one);
      continue;
    }
    try_lines(one);
    try_report(one);
  }
  return 0;
}
