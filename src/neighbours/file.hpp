// The file of the registry: where it is, whether it may be used, and access to its bytes. A descriptor is
// open for microseconds only, in a process of the program's on threads with own files (base/own_files.hpp).
// Also the page that carries the bell: mapped read-only, as an address for futex(2), and never read or
// written here. Under the registry's lock, except sleep().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/output.hpp"

namespace cupool::neighbours {

class OpenFile;

class RegistryFile {
 public:
  static constexpr uint32_t kOwn = UINT32_MAX;
  constexpr explicit RegistryFile(const char* directory, uint32_t user = kOwn)
      : directory_(directory), user_(user) {}

  // Whose file it is.
  uint32_t owner() const;
  // Opens and checks the file, creates or repairs it if `create`, and maps the bell of this very file.
  // False: refusal() says why.
  bool connect(bool create);
  // The bell is mapped; the file may have been removed since.
  bool is_connected() const { return inode_.load(std::memory_order_relaxed) != 0; }
  void disconnect() { inode_.store(0, std::memory_order_relaxed); }
  const char* refusal() const { return refusal_; }

  // 0, or the errno of futex(2): EAGAIN: the bell is not at `seen`; EFAULT: the file is too short.
  int sleep(uint32_t seen, uint64_t ns) const;
  void wake_all() const;

 private:
  friend class OpenFile;
  int open_named(bool create);
  int open_checked(bool create);
  int refuse(int file, const char* why);
  bool map(int file, uint64_t device, uint64_t inode);

  const char* directory_;
  uint32_t user_;
  const char* refusal_ = "it was not opened yet";
  uint32_t named_ = kOwn;                 // the user for whom name_ was found
  uint32_t name_ = kOwn;                  // the number in the file's name
  std::atomic<uint32_t*> bell_{nullptr};  // one page; replaced in place when the file is another
  uint64_t device_ = 0;
  std::atomic<uint64_t> inode_{0};
};

// The file, open for one operation; not open if the file is gone or was replaced since the bell was mapped.
class OpenFile {
 public:
  explicit OpenFile(RegistryFile& file);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  explicit operator bool() const { return number_ >= 0; }
  bool read(uint64_t at, void* out, size_t size) const;
  bool write(uint64_t at, const void* from, size_t size) const;
  // Takes the lock of the file until it is closed here. False: another process held it during all tries; that
  // process may be stopped, so nobody waits for it.
  bool try_exclusive() const;

 private:
  CancelShield shield_;
  mutable NoSignals quiet_;
  int number_;
  mutable bool locked_ = false;
};

}  // namespace cupool::neighbours
