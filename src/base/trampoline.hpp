// Exported names for hooks that C++ cannot give a C name: a template's instantiation, and a function whose
// type we do not know. Each becomes two instructions of assembly under the C name, which jump through a
// constant slot.
#pragma once

#if defined(__x86_64__)
#define CUPOOL_LAND "endbr64\n"
#define CUPOOL_JUMP_SLOT(slot) "jmp *" slot "(%rip)\n"
#define CUPOOL_JUMP_WITH_SLOT(slot, target) "mov " slot "(%rip), %r11\njmp " target "\n"
#elif defined(__aarch64__)
#define CUPOOL_LAND "hint #34\n"
#define CUPOOL_JUMP_SLOT(slot) "adrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nbr x16\n"
#define CUPOOL_JUMP_WITH_SLOT(slot, target) \
  "adrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nb " target "\n"
#else
#error "cupool runs on x86-64 and aarch64"
#endif

#define CUPOOL_TRAMPOLINE(name, jump)      \
  asm(".pushsection .text\n"               \
      ".balign 16\n"                       \
      ".globl " #name                      \
      "\n"                                 \
      ".type " #name ", %function\n" #name \
      ":\n"                                \
      ".cfi_startproc\n" CUPOOL_LAND jump  \
      ".cfi_endproc\n"                     \
      ".size " #name ", . - " #name        \
      "\n"                                 \
      ".popsection\n")

// Hidden, with a C name, so that assembly can name it.
#define CUPOOL_SLOT(name, type, value)                                \
  extern "C" {                                                        \
  [[gnu::visibility("hidden")]] extern const type cupool_slot_##name; \
  [[gnu::used]] constinit const type cupool_slot_##name = value;      \
  }
