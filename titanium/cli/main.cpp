#include "titanium/base/machine/cpu_tiles.h"
#include "titanium/base/machine/end_process.h"
#include "titanium/cli/program.h"

int main(int argc, char** argv) {
  titanium::avoid_hidden_amx_tiles();
  titanium::end_process(titanium::cli::run_program({argv + 1, argv + argc}));
}
