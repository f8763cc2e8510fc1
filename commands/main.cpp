#include "commands/program.h"

int main(int argc, char** argv) { return megatron::run_program(argc, argv); }
