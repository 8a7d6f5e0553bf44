// See trace_file.hpp. Zstandard's interface is declared here as far as it is used, so that its headers are
// not needed.
#include "tools/trace_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/say.hpp"
#include "base/system_library.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kPiece = 256 << 10;
constexpr uint32_t kZstdMagic = 0xFD2FB528;
constexpr char kNoZstd[] = "libzstd.so.1 is not installed (Debian has it in libzstd1)";

struct From {
  const void* bytes;
  size_t size;
  size_t at;
};
struct To {
  void* bytes;
  size_t size;
  size_t at;
};
struct Zstd {
  void* (*make_reader)();
  size_t (*free_reader)(void*);
  size_t (*read)(void*, To*, From*);
  void* (*make_writer)();
  size_t (*free_writer)(void*);
  size_t (*write)(void*, To*, From*, int);
  size_t (*set)(void*, int, int);
  unsigned (*is_error)(size_t);
};
constexpr int kGoOn = 0;  // ZSTD_e_continue
constexpr int kEnd = 2;   // ZSTD_e_end
constexpr int kLevel = 100;
constexpr int kChecksum = 201;

const Zstd* zstd() {
  static Zstd all = {};
  static const bool is_there = [] {
    void* const library = open_system_library("libzstd.so.1");
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return library != nullptr && find(all.make_reader, "ZSTD_createDCtx") &&
           find(all.free_reader, "ZSTD_freeDCtx") && find(all.read, "ZSTD_decompressStream") &&
           find(all.make_writer, "ZSTD_createCCtx") && find(all.free_writer, "ZSTD_freeCCtx") &&
           find(all.write, "ZSTD_compressStream2") && find(all.set, "ZSTD_CCtx_setParameter") &&
           find(all.is_error, "ZSTD_isError");
  }();
  return is_there ? &all : nullptr;
}

// A compressed file as a stream of what is in it.
class Inflated {
 public:
  Inflated(const Zstd& zstd, OpenFile file)
      : zstd_(zstd), file_(std::move(file)), reader_(zstd.make_reader()), piece_(kPiece) {}
  ~Inflated() { zstd_.free_reader(reader_); }
  Inflated(const Inflated&) = delete;
  Inflated& operator=(const Inflated&) = delete;

  ssize_t read(char* to, size_t bytes) {
    To out{to, bytes, 0};
    while (out.at < bytes) {
      if (from_.at == from_.size) {
        from_ = {piece_.data(), fread(piece_.data(), 1, piece_.size(), file_.get()), 0};
        if (from_.size == 0) break;
      }
      if (reader_ == nullptr || zstd_.is_error(zstd_.read(reader_, &out, &from_)) != 0) {
        // What came before is given out first.
        if (out.at != 0) break;
        errno = EIO;
        return -1;
      }
    }
    return static_cast<ssize_t>(out.at);
  }

 private:
  const Zstd& zstd_;
  OpenFile file_;
  void* reader_;
  std::vector<char> piece_;
  From from_{nullptr, 0, 0};
};

OpenFile inflate(OpenFile file) {
  cookie_io_functions_t functions = {};
  functions.read = [](void* self, char* to, size_t bytes) {
    return static_cast<Inflated*>(self)->read(to, bytes);
  };
  functions.close = [](void* self) {
    delete static_cast<Inflated*>(self);
    return 0;
  };
  return OpenFile(fopencookie(new Inflated(*zstd(), std::move(file)), "r", functions));
}

}  // namespace

OpenFile open_trace(const std::string& path) {
  // (A pipe would be waited for until somebody writes to it.)
  struct stat about;
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    say(stderr, "cupool: cannot read {}: it is not a file\n", printable(path));
    return nullptr;
  }
  OpenFile file(fopen(path.c_str(), "re"));
  if (file == nullptr) {
    say(stderr, "cupool: cannot open {}: {}\n", printable(path), strerror(errno));
    return nullptr;
  }
  uint32_t magic = 0;
  const bool is_compressed = fread(&magic, sizeof magic, 1, file.get()) == 1 && magic == kZstdMagic;
  rewind(file.get());
  if (!is_compressed) return file;
  if (zstd() == nullptr) {
    say(stderr, "cupool: cannot read {}: it is compressed, and {}\n", printable(path), kNoZstd);
    return nullptr;
  }
  return inflate(std::move(file));
}

std::string compress_trace(const std::string& from, const std::string& to) {
  constexpr int kGood = 6;
  if (zstd() == nullptr) return kNoZstd;
  const OpenFile in(fopen(from.c_str(), "re"));
  if (in == nullptr) return strerror(errno);
  const int descriptor = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return strerror(errno);
  const OpenFile out(fdopen(descriptor, "w"));
  void* const writer = zstd()->make_writer();
  std::vector<char> read(kPiece);
  std::vector<char> packed(kPiece);
  bool is_good = writer != nullptr;
  if (is_good) {
    zstd()->set(writer, kLevel, kGood);
    zstd()->set(writer, kChecksum, 1);
  }
  for (bool is_last = false; is_good && !is_last;) {
    From piece{read.data(), fread(read.data(), 1, read.size(), in.get()), 0};
    is_last = piece.size < read.size();
    for (bool is_done = false; is_good && !is_done;) {
      To room{packed.data(), packed.size(), 0};
      const size_t left = zstd()->write(writer, &room, &piece, is_last ? kEnd : kGoOn);
      is_good = zstd()->is_error(left) == 0 && fwrite(packed.data(), 1, room.at, out.get()) == room.at;
      is_done = is_last ? left == 0 : piece.at == piece.size;
    }
  }
  zstd()->free_writer(writer);
  if (is_good && ferror(in.get()) == 0 && fflush(out.get()) == 0) return {};
  std::string why = errno != 0 ? strerror(errno) : "it cannot be compressed";
  unlink(to.c_str());
  return why;
}

}  // namespace cupool::tools
