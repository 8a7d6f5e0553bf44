// `cupool report`: a trace as a page, as text, or in the form of another viewer. Reads the trace into memory,
// and writes one file or stdout.
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/say.hpp"
#include "see/exports.hpp"
#include "see/findings.hpp"
#include "see/page.hpp"
#include "see/text.hpp"
#include "tools/commands.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"
#include "tools/trace_file.hpp"

namespace cupool::see {
namespace {

using tools::Arguments;

// What can be made of a trace, and how the file is called if the user does not say.
struct Form {
  const char* flag;
  const char* ending;  // null: stdout
};
constexpr Form kForms[] = {
    {"", ".html"},
    {"--text", nullptr},
    {"--pytorch", ".pickle"},
    {"--perfetto", ".perfetto-trace"},
    {"--pprof", ".pb.gz"},
    {"--speedscope", ".speedscope.json"},
    {"--folded", nullptr},
    {"--csv", nullptr},
};

// False, after an error message: it is no number from 1.
bool number_of(const Arguments& arguments, const char* flag, uint64_t* number) {
  const std::string text = arguments.value(flag);
  if (text.empty()) return true;
  char* end = nullptr;
  errno = 0;
  *number = strtoull(text.c_str(), &end, 10);
  if (errno == 0 && *end == '\0' && text[0] >= '0' && text[0] <= '9' && *number != 0) return true;
  say(stderr, "cupool: {} takes a number from 1, not \"{}\"\n", flag, text);
  return false;
}

void write_form(const std::string& flag, std::FILE* file, const Model& model, const Holders& holders,
                const Picture& picture, uint64_t last) {
  if (flag == "--pytorch") return write_pytorch(file, model, holders, last);
  if (flag == "--perfetto") return write_perfetto(file, model, holders, picture);
  if (flag == "--pprof") return write_pprof(file, model, holders, picture);
  if (flag == "--speedscope") return write_speedscope(file, model, holders, picture);
  if (flag == "--folded") return write_folded(file, model, holders, picture);
  if (flag == "--csv") return write_csv(file, model);
  if (flag == "--text") return print_text(file, model, holders, picture, findings(model, holders, picture));
  write_page(file, model, holders, picture, findings(model, holders, picture));
}

struct Wanted {
  std::string path;    // of the trace
  std::string form;    // as its flag; empty: the page
  std::string target;  // empty: stdout
  uint64_t last = 0;
  Limits limits;
  std::vector<std::string> folders;  // with debug information
};

// The exit code, after an error message if it is not 0.
int make(const Wanted& wanted) {
  const std::string& path = wanted.path;
  const tools::OpenFile file = tools::open_trace(path);
  if (file == nullptr) return 1;
  struct stat about = {};
  stat(path.c_str(), &about);
  tools::TraceReader reader(file.get());
  if (!reader.begin()) {
    say(stderr, "cupool: cannot read {}: {}\n", path, reader.error());
    return 1;
  }
  struct stat there = {};
  if (!wanted.target.empty() && stat(wanted.target.c_str(), &there) == 0 && there.st_dev == about.st_dev &&
      there.st_ino == about.st_ino) {
    say(stderr, "cupool: {} is the trace itself; name another file with -o\n", wanted.target);
    return tools::kMisuse;
  }
  tools::Progress progress;
  const auto is_read = [&] {
    // (One that was compressed has no place.)
    const long at = ftell(file.get());
    if (at < 0) return progress.show("reading the trace");
    progress.show("reading the trace", static_cast<uint64_t>(at), static_cast<uint64_t>(about.st_size));
  };
  Model model(reader);
  int code = 0;
  if (!model.read(is_read)) {
    // What came before is shown all the same.
    say(stderr, "cupool: cannot read all of {}: {}\n", path, reader.error());
    code = 1;
  }
  progress.show("looking up who asked for memory");
  tools::CodeNames names(wanted.folders);
  const Holders holders(model, names);
  const Picture picture =
      make_picture(model, holders, wanted.limits, [&] { progress.show("adding up what happened"); });
  progress.show("writing");
  if (wanted.target.empty()) {
    // (That it did not all arrive is said at the end, for every verb.)
    write_form(wanted.form, stdout, model, holders, picture, wanted.last);
    return code;
  }
  tools::OpenFile out(fopen(wanted.target.c_str(), "we"));
  if (out != nullptr) write_form(wanted.form, out.get(), model, holders, picture, wanted.last);
  if (out == nullptr || ferror(out.get()) != 0 || fclose(out.release()) != 0) {
    say(stderr, "cupool: cannot write {}: {}\n", wanted.target, strerror(errno));
    return 1;
  }
  return code;
}

}  // namespace
}  // namespace cupool::see

namespace cupool::tools {

int write_report(const std::string& trace, const std::string& page) {
  see::Wanted wanted;
  wanted.path = trace;
  wanted.target = page;
  return see::make(wanted);
}

int report(const Arguments& arguments) {
  using namespace see;
  const Form* form = &kForms[0];
  for (const Form& one : kForms) {
    if (*one.flag == '\0' || !arguments.has(one.flag)) continue;
    if (form != &kForms[0]) {
      say(stderr, "cupool: {} and {} are two forms, and a report has one\n", form->flag, one.flag);
      return kMisuse;
    }
    form = &one;
  }
  Wanted wanted;
  wanted.form = form->flag;
  if (!number_of(arguments, "--last", &wanted.last) ||
      !number_of(arguments, "--brief", &wanted.limits.brief_calls))
    return kMisuse;
  if (arguments.operands.size() != 1) {
    say(stderr, "cupool: report needs a file that CUPOOL_TRACE left\n");
    return kMisuse;
  }
  wanted.folders = arguments.values("--debug-path");
  wanted.path = arguments.operands[0];
  wanted.target = arguments.value("-o");
  if (wanted.target.empty() && form->ending != nullptr) wanted.target = wanted.path + form->ending;
  if (wanted.target == "-") wanted.target.clear();
  const int code = make(wanted);
  if (code == 0 && !wanted.target.empty()) say("{}\n", wanted.target);
  return code;
}

}  // namespace cupool::tools
