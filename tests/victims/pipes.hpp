// Plain values through a pipe between two processes of a test.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace pipes {

// False: the other end is closed.
template <typename T>
bool receive(int pipe, T* out) {
  auto* at = reinterpret_cast<char*>(out);
  for (size_t left = sizeof(T); left > 0;) {
    const ssize_t got = read(pipe, at, left);
    if (got <= 0) return false;
    at += got;
    left -= static_cast<size_t>(got);
  }
  return true;
}

// Nobody there to read it ends the program: then the test has failed.
template <typename T>
void send(int pipe, const T& value) {
  if (write(pipe, &value, sizeof value) == static_cast<ssize_t>(sizeof value)) return;
  std::perror("write");
  std::exit(2);
}

}  // namespace pipes
