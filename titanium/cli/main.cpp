#include "titanium/cli/program.h"

int main(int argc, char** argv) { return titanium::cli::run_program({argv + 1, argv + argc}); }
