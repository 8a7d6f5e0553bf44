// Victim: uses a library that calls the driver once more when everything ends.
extern "C" void use_greens();

int main() {
  use_greens();
  return 0;
}
