// Library at the end of the RTLD_NEXT chain: the victim_tag() that next_override.cpp must find behind itself.
extern "C" int victim_tag() { return 7; }
