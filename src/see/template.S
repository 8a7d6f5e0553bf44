// The built page of src/see/page/ as bytes of the command. CUPOOL_PAGE names the file.
#if defined(__CET__)
#include <cet.h>
#endif

  .section .rodata
  .global cupool_page_begin
  .global cupool_page_end
  .hidden cupool_page_begin
  .hidden cupool_page_end
cupool_page_begin:
  .incbin CUPOOL_PAGE
cupool_page_end:
#include "base/object_notes.inc"
