#include "titanium/base/machine/cpu_tiles.h"
#include "titanium/cli/program.h"

int main(int argc, char** argv) {
  titanium::avoid_hidden_amx_tiles();
  return titanium::cli::run_program({argv + 1, argv + argc});
}
