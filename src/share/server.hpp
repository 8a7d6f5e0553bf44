// The exporter's end: writes export tokens, and a thread that gives out descriptors for them. The thread
// starts with the first export token, sleeps until somebody connects, and serves one request after the other;
// a client that is silent, talks noise or does not read loses its connection and costs nobody else anything;
// other users cannot even connect (socket_file.hpp). `lock_` guards the identity and the start; `working_` is
// held while a request may call the driver.
#pragma once

#include <array>
#include <atomic>

#include "base/descriptors.hpp"
#include "base/lock.hpp"
#include "base/own_thread.hpp"
#include "share/wire.hpp"

namespace cupool::share {

// Descriptors of some chunks under a block, which the server closes.
struct Loan {
  Reply reply = {};
  int descriptors[kMostAtOnce] = {};
};

// The owner of the blocks, which the server asks for their chunks.
class Source {
 public:
  // Descriptors of the chunks from `first` on, at most `most`; false: there is no such block any more. The
  // export token is one of ours.
  virtual bool lend(const ExportToken& token, uint32_t first, uint32_t most, Loan* out) = 0;

 protected:
  ~Source() = default;
};

class Server {
 public:
  struct Settings {
    uint32_t user = kOwnUser;  // the one user who is served
    // How long a connection may be silent.
    uint64_t patience_ns = 2'000'000'000;
  };

  constexpr explicit Server(Source& source) : source_(source) {}
  constexpr Server(Source& source, const Settings& settings) : source_(source), settings_(settings) {}

  // The export token of a block, the same for the same block; starts the thread. False: no thread, socket or
  // random number is available.
  bool offer(uint64_t start, uint64_t bytes, uint64_t life, Handle* out);
  // Whether this process wrote the export token.
  bool is_own(const ExportToken& token);

  // Before the driver shuts down: no request calls it any more, and the thread ends.
  void stop();
  // The parent serves its export tokens; the child has none.
  void forget_after_fork();

 private:
  struct Connection {
    KeptDescriptor socket;
    uint64_t since_ns = 0;  // connected, or last served
  };
  // When one more comes, the one that has been silent longest makes room.
  static constexpr size_t kMostConnections = 16;
  bool make_ready_locked() CUPOOL_REQUIRES(lock_);
  bool start_locked() CUPOOL_REQUIRES(lock_);
  bool is_reachable_locked() CUPOOL_REQUIRES(lock_);
  bool end_orphan_locked() CUPOOL_REQUIRES(lock_);
  static ThreadEnds run(void* server);
  void serve(KeptDescriptor listener);
  void end_if_filtered();
  bool wait(const KeptDescriptor& listener);
  void accept_one(const KeptDescriptor& listener);
  Connection& place();
  static void end(Connection* one);
  bool answer(int socket);
  bool is_genuine(const ExportToken& token) const;

  Source& source_;
  const Settings settings_{};
  Lock lock_{Rank::kExportTokens};
  Lock working_{Rank::kExportTokenWork};
  // The identity is drawn once, before the thread starts, and is the same for all export tokens.
  std::atomic<uint64_t> instance_{0};  // 0: none yet
  Key key_;
  uint32_t pid_ = 0;
  KeptDescriptor listener_;                                 // the thread has a copy
  std::array<Connection, kMostConnections> connections_{};  // the thread's
  std::atomic<bool> runs_{false};
  std::atomic<bool> is_lost_{false};  // nobody can reach its socket any more: it is to end
  bool had_filter_ = false;           // of system calls, before the thread was started
  std::atomic<bool> is_stopped_{false};
};

}  // namespace cupool::share
