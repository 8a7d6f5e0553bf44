// See server.hpp.
#include "share/server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/filters.hpp"
#include "base/fork_gate.hpp"
#include "base/preserve_errno.hpp"
#include "share/socket_file.hpp"

namespace cupool::share {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

bool draw(void* out, size_t bytes) {
  return syscall(SYS_getrandom, out, bytes, 0) == static_cast<long>(bytes);
}

}  // namespace

// ---- Export tokens: on the program's threads.

bool Server::offer(uint64_t start, uint64_t bytes, uint64_t life, Handle* out) {
  const PreserveErrno preserve;
  {
    Guard hold(lock_);
    if (!make_ready_locked()) return false;
  }
  {
    const NoFork gate;
    Guard hold(lock_);
    if (!start_locked()) return false;
  }
  ExportToken token{instance_.load(std::memory_order_acquire), pid_, start, bytes, life};
  token.check = check_of(token, key_);
  *out = to_handle(token);
  return true;
}

bool Server::is_genuine(const ExportToken& token) const {
  const uint64_t instance = instance_.load(std::memory_order_acquire);
  return instance != 0 && token.instance == instance && token.pid == pid_ &&
         token.check == check_of(token, key_);
}

bool Server::is_own(const ExportToken& token) { return is_genuine(token); }

// A program may have closed the socket with all its descriptors, and whatever tidies up shared memory may
// have removed its file.
bool Server::is_reachable_locked() {
  return listener_.is_ours() && is_named(pid_, instance_.load(std::memory_order_relaxed), kOwnUser);
}

// The thread of a socket that is lost, asleep, still holds it: it is woken and ends, and the next one has a
// new socket under the same name.
bool Server::end_orphan_locked() {
  constexpr int kMostTries = 1000;
  is_lost_.store(true, std::memory_order_release);
  if (listener_.is_ours()) shutdown(listener_.number(), SHUT_RDWR);
  int knock = -1;
  if (connect_to(pid_, instance_.load(std::memory_order_relaxed), &knock) == Connected::kYes) close(knock);
  for (int i = 0; i < kMostTries && runs_.load(std::memory_order_acquire); ++i) sleep_for(kMillisecond);
  return !runs_.load(std::memory_order_acquire);
}

// Draws the identity, and sees that no thread runs whose socket is lost.
bool Server::make_ready_locked() {
  if (is_stopped_.load(std::memory_order_relaxed)) return false;
  if (runs_.load(std::memory_order_acquire)) {
    if (is_reachable_locked()) return true;
    if (!end_orphan_locked()) return false;
  }
  if (instance_.load(std::memory_order_relaxed) != 0) return true;
  uint64_t instance = 0;
  if (!draw(&key_, sizeof key_) || !draw(&instance, sizeof instance)) return false;
  pid_ = static_cast<uint32_t>(getpid());
  instance_.store(instance | 1, std::memory_order_release);
  remove_abandoned();
  return true;
}

bool Server::start_locked() {
  if (runs_.load(std::memory_order_acquire)) return true;
  // What a lost one has left.
  is_lost_.store(false, std::memory_order_relaxed);
  listener_.close();
  listener_ = KeptDescriptor(listen_as(pid_, instance_.load(std::memory_order_relaxed)));
  if (!listener_) return false;
  // Of this thread, which the new one has them from: the program may get more before that one runs.
  had_filter_ = has_filter();
  runs_.store(true, std::memory_order_release);
  if (start_own_thread(run, this, "cupool-lends")) return true;
  runs_.store(false, std::memory_order_relaxed);
  listener_.close();
  remove_name(pid_, instance_.load(std::memory_order_relaxed));
  return false;
}

void Server::stop() {
  is_stopped_.store(true, std::memory_order_release);
  // Wakes the thread.
  if (lock_.try_lock_for_a_moment()) {
    if (runs_.load(std::memory_order_acquire)) {
      remove_name(pid_, instance_.load(std::memory_order_relaxed));
      if (listener_.is_ours()) shutdown(listener_.number(), SHUT_RDWR);
    }
    lock_.unlock();
  }
  // If a request holds it for longer, the driver hangs; the exit does not wait for that.
  if (working_.try_lock_for_a_moment()) working_.unlock();
}

void Server::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  working_.reset_after_fork();
  listener_.close();
  for (Connection& one : connections_) one.socket.close();
  instance_.store(0, std::memory_order_relaxed);
  key_ = {};
  runs_.store(false, std::memory_order_relaxed);
  is_lost_.store(false, std::memory_order_relaxed);
  is_stopped_.store(false, std::memory_order_relaxed);
}

// ---- The thread.

ThreadEnds Server::run(void* server) {
  auto* const self = static_cast<Server*>(server);
  self->serve(self->listener_);
  return ThreadEnds::kPlainly;
}

// The program has forbidden itself system calls since, perhaps those that would follow.
void Server::end_if_filtered() {
  if (!knows_new_filter() && (had_filter_ || !has_filter())) return;
  note_new_filter();
  is_stopped_.store(true, std::memory_order_release);
  runs_.store(false, std::memory_order_release);
  end_own_thread_now();
}

void Server::serve(KeptDescriptor listener) {
  while (wait(listener)) {
    const uint64_t now = now_ns();
    for (Connection& one : connections_) {
      if (!one.socket) continue;
      pollfd ready{one.socket.number(), POLLIN, 0};
      const bool speaks = poll(&ready, 1, 0) > 0;
      if (speaks && one.socket.is_ours() && answer(one.socket.number())) {
        one.since_ns = now;
      } else if (speaks || now - one.since_ns > settings_.patience_ns) {
        end(&one);
      }
    }
    // After the connected clients, so that a burst of new connections displaces none that has just sent a
    // request.
    accept_one(listener);
  }
  for (Connection& one : connections_) end(&one);
  if (!is_lost_.load(std::memory_order_acquire) && listener.is_ours()) {
    // Under the lock, because stop() may be using it. A thread that holds the lock and waits for this one has
    // said that it is lost, and closes it.
    const NoFork gate;
    Guard hold(lock_);
    listener.close();
  }
  runs_.store(false, std::memory_order_release);
}

// A fork copies the descriptors before the memory: the child would have the socket and no record of it.
void Server::end(Connection* one) {
  const NoFork gate;
  one->socket.close();
}

// Sleeps until a socket is ready; false: the server is to end.
bool Server::wait(const KeptDescriptor& listener) {
  std::array<pollfd, kMostConnections + 1> watched;
  size_t count = 0;
  watched[count++] = {listener.number(), POLLIN, 0};
  uint64_t oldest = UINT64_MAX;
  for (const Connection& one : connections_) {
    if (!one.socket) continue;
    watched[count++] = {one.socket.number(), POLLIN, 0};
    oldest = std::min(oldest, one.since_ns);
  }
  int timeout_ms = -1;
  if (oldest != UINT64_MAX) {
    const uint64_t end = oldest + settings_.patience_ns;
    const uint64_t now = now_ns();
    timeout_ms = end <= now ? 0 : static_cast<int>((end - now) / kMillisecond + 1);
  }
  poll(watched.data(), count, timeout_ms);
  end_if_filtered();
  return !is_stopped_.load(std::memory_order_acquire) && !is_lost_.load(std::memory_order_acquire) &&
         listener.is_ours();
}

// A free place, or that of the connection that has been silent longest.
Server::Connection& Server::place() {
  Connection* longest = &connections_[0];
  for (Connection& one : connections_) {
    if (!one.socket) return one;
    if (one.since_ns < longest->since_ns) longest = &one;
  }
  longest->socket.close();
  return *longest;
}

void Server::accept_one(const KeptDescriptor& listener) {
  int error = 0;
  {
    const NoFork gate;
    const int made = accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    error = made < 0 ? errno : 0;
    KeptDescriptor socket(move_up(made));
    if (socket && is_user(socket.number(), settings_.user)) {
      place() = {socket, now_ns()};
    } else {
      socket.close();
    }
  }
  // The process has no descriptor left, and the waiting client would wake poll() again at once.
  if (error != 0 && error != EAGAIN && error != EINTR && error != ECONNABORTED) sleep_for(10 * kMillisecond);
}

// One request; false: the connection is to end.
bool Server::answer(int socket) {
  Request request;
  size_t none = 0;
  bool lost = false;
  const int64_t got = receive_packet(socket, &request, sizeof request, nullptr, &none, &lost);
  if (got < 0) return errno == EAGAIN;
  if (got != sizeof request || lost || request.magic != kRequestMagic || !is_all_read(socket)) return false;
  ExportToken token;
  Loan loan;
  Guard hold(working_);
  const NoFork gate;
  if (is_stopped_.load(std::memory_order_acquire)) return false;
  const bool given = from_handle(request.token, &token) && is_genuine(token) &&
                     source_.lend(token, request.first, std::clamp(request.most, 1u, kMostAtOnce), &loan);
  if (!given) loan.reply = {};
  loan.reply.magic = kReplyMagic;
  const size_t count = loan.reply.count;
  const bool sent = send_packet(socket, &loan.reply, sizeof loan.reply, loan.descriptors, count);
  for (size_t i = 0; i < count; ++i) close(loan.descriptors[i]);
  return sent;
}

}  // namespace cupool::share
