// Reserved addresses and which chunk of memory lies at which of them: a table, page by page, of what is free,
// claimed, or mapped. The caller's lock protects it; nothing here calls the driver.
#pragma once

#include <array>
#include <cstdint>

#include "driver/mapping.hpp"

namespace cupool::mapped {

using driver::Address;

struct Part {
  Address start = 0;
  uint64_t bytes = 0;
};

class Addresses {
 public:
  // Each page of addresses knows its chunk; `pages` 0: nothing there.
  struct Page {
    driver::Chunk chunk;
    uint32_t pages;
    uint32_t before;  // pages of the chunk before this one
  };
  static constexpr uint32_t kClaimed = ~uint32_t{0};
  static constexpr Page kClaimedPage{driver::Chunk::kNone, kClaimed, 0};
  struct Reservation {
    Address base = 0;
    uint64_t bytes = 0;
    uint64_t count = 0;  // pages that may be used
    uint64_t used = 0;   // pages from the first on, above which all are free
    uint64_t full = 0;   // pages from the first on of which none is free
    Page* pages = nullptr;

    Address end() const { return base + count * driver::kMappingStep; }
  };
  static constexpr size_t kMostReservations = 64;
  using Reservations = std::array<Reservation, kMostReservations>;

  const Reservations& reservations() const { return reservations_; }
  // False: there is no room for one more.
  bool add(const Reservation& made);
  // Forgets all, and gives the tables of their pages back.
  void drop_all();

  // Claims addresses that are free: anywhere, which it tells, or there. False: there are none.
  bool claim(uint64_t bytes, Address* out);
  bool claim_at(Address at, uint64_t bytes);
  bool is_vacant(Address at, uint64_t bytes);
  // What lies there from now on: one chunk, nothing, or claimed.
  void mark(Address at, uint64_t bytes, Page page);
  // Null: not among the reserved addresses.
  Page* page(Address at);

  // See Space.
  Part chunks_in(Address start, uint64_t bytes, uint64_t enough);
  Part chunks_around(Address start, uint64_t bytes);
  Part chunk_at(Address address);
  // Calls `visit(Part)` for every chunk of a reservation.
  template <typename Visit>
  static void for_each_chunk(const Reservation& one, Visit&& visit) {
    for (uint64_t i = 0; i < one.used;) {
      const uint32_t held = one.pages[i].pages;
      const bool is_chunk = held != 0 && held != kClaimed;
      if (is_chunk) visit(Part{one.base + i * driver::kMappingStep, held * driver::kMappingStep});
      i += is_chunk ? held : 1;
    }
  }

 private:
  Reservation* reservation(Address at);
  static bool find_gap(const Reservation& where, uint64_t pages, uint64_t* first);

  Reservations reservations_;
};

}  // namespace cupool::mapped
